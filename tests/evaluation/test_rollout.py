"""Vectors of evaluations keep what layers read, and rows without an episode stand still."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.evaluation.rollout import EpisodesVectorEnv, StandingEnv, play_episodes
from adv_wrappers.wrappers.action_recorder import VectorActionRecorder
from adv_wrappers.wrappers.wrap import wrap
from tests.evaluation.agents import balancing, short
from tests.rigs import RIGS

MASKED = replace(RIGS["logits"], masked=True)


class Talking(gym.Wrapper[Any, Any, Any, Any]):
    """Says more in its infos than anybody asks for."""

    def reset(self, **arguments: Any) -> Any:
        obs, info = self.env.reset(**arguments)
        return obs, {**info, "speed": 1.0}

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "speed": 2.0}


def test_infos_hold_action_masks_alone() -> None:
    def make() -> gym.Env[Any, Any]:
        return Talking(MASKED.env())

    lean = EpisodesVectorEnv(make, 3)
    whole = SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.DISABLED)
    steps = [[env.reset(seed=5)[1], env.step(np.array([1, 2, 3]))[-1]] for env in (lean, whole)]
    for few, all_of_them in zip(*steps, strict=True):
        assert {*few} == {"action_mask", "_action_mask"} and "speed" in all_of_them
        for key, value in few.items():
            np.testing.assert_array_equal(value, all_of_them[key])
    plain = EpisodesVectorEnv(short, 2)
    assert plain.reset(seed=0)[1] == {} == plain.step(np.array([0, 1]))[-1]
    for env in (lean, whole, plain):
        env.close()


def test_attacks_of_an_evaluation_know_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    def received() -> list[list[Any]]:
        made: list[Any] = []

        def make() -> gym.Env[Any, Any]:
            made.append(MASKED.env())
            return made[-1]

        adv.evaluate(MASKED.victim(), make, ["action-flip", "worst-action"], episodes=3, num_envs=2)
        return [actions for env in made for actions in env.received]

    lean = received()
    monkeypatch.setattr(EpisodesVectorEnv, "_add_info", SyncVectorEnv._add_info)
    assert lean == received() and any(lean)
    monkeypatch.setattr(EpisodesVectorEnv, "_add_info", lambda self, infos, info, row: infos)
    assert lean != received()


def test_a_standing_environment_stays_where_it_was_reset() -> None:
    env = StandingEnv(short())
    obs, info = env.reset(seed=3)
    for action in (0, 1):
        seen = env.step(action)
        assert seen[0] is obs and seen[1:] == (0.0, False, False, info)
    assert env.action_space == short().action_space


@pytest.mark.parametrize("on", ["observation", "action"])
def test_attacks_are_counted_by_step(on: Any) -> None:
    """Five episodes of forty steps, three of them on rows that begin later; the final observation counts nowhere."""
    victim = balancing()
    how: Any = adv.Noise() if on == "observation" else adv.ActionFlip()
    within = adv.Linf(1e-4) if on == "observation" else adv.Valid()
    env, counted = EpisodesVectorEnv(short, 2), Counter[int]()
    recorder = VectorActionRecorder(env)
    attacked = wrap(recorder, adv.ThreatModel(on, how, within, adv.Window(1, 3) | adv.Window(39, 99)), victim=victim)
    run = play_episodes(attacked, recorder, victim, [1, 2, 3, 4, 5], attacked_at=counted)
    assert run.lengths.tolist() == [40] * 5 and run.attacked_steps.tolist() == [3] * 5
    assert counted == {1: 5, 2: 5, 39: 5}
    env.close()
