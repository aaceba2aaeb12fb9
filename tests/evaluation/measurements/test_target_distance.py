"""Losses of states: every control step of the truth counts, whatever the agent is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.attacks.targets import Fall, LossFunction, PredictedReward
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.measurements.target_distance import EpisodeLosses, measure_text
from tests.evaluation.agents import Film, balancing, short, watcher


def played(seed: int, noise: float = 0.0) -> list[Any]:
    """The true observations of an episode of :func:`short` after every step, for an agent that sees the truth."""
    env, agent = short(), balancing()
    obs, _ = env.reset(seed=seed)
    seen, over = [], False
    while not over:
        action = agent.params(torch.as_tensor(obs[None], dtype=torch.float64)).argmax().item()
        obs, _, terminated, truncated, _ = env.step(action)
        seen.append(obs)
        over = terminated or truncated
    return seen


def test_the_loss_of_an_episode_is_the_sum_over_its_steps() -> None:
    report = adv.evaluate(balancing(), short, ["noise:eps=0.5"], 4, seed=1, num_envs=3, measure="2=0.3&0=1")
    expected = [
        sum((float(obs[2]) - 0.3) ** 2 + (float(obs[0]) - 1) ** 2 for obs in played(seed))
        for seed in report.episode_seeds
    ]
    clean, attacked = report.threats
    assert clean["losses"] == pytest.approx(expected, rel=1e-5)
    assert clean["loss"] == pytest.approx(np.mean(expected)) and clean["loss_std"] > 0
    assert attacked["losses"] != clean["losses"] and report.measure == "2=0.3&0=1.0"
    assert "loss" in str(report) and "loss" not in str(adv.evaluate(balancing(), short, [], 2))


def test_rewards_are_shared_among_control_steps() -> None:
    losses = EpisodeLosses(PredictedReward(), 2, 2)
    for _ in range(3):
        losses.add(np.zeros((2, 1)), [np.zeros((4, 1)), None], np.array([8.0, 3.0]))
    losses.finish(np.array([1, 0]), np.array([True, True]))
    assert losses.totals.tolist() == [9.0, 24.0]
    losses.begin(np.array([True, False]))
    losses.finish(np.array([0, 1]), np.array([True, True]))
    assert losses.totals.tolist() == [0.0, 9.0]


def test_functions_are_known_by_their_names() -> None:
    def height(obs: torch.Tensor) -> torch.Tensor:
        return obs[..., 0]

    assert (
        measure_text(LossFunction(height)) == "height" and measure_text(Fall(3)) == "3" and measure_text(None) is None
    )
    report = adv.evaluate(balancing(), short, [], 2, measure=height)
    assert report.measure == "height"


def test_bad_measures() -> None:
    with pytest.raises(ThreatError, match="has no target of its own"):
        adv.evaluate(balancing(), "CartPole-v1", [], 1, measure=True)
    with pytest.raises(ValueRangeError, match="no feature 9"):
        adv.evaluate(balancing(), "CartPole-v1", [], 1, measure="9")
    with pytest.raises(SpaceError, match=r"observations \[n\]"):
        adv.evaluate(watcher(Film()), Film, [], 1, measure="0")
    with pytest.raises(ValueRangeError, match="not finite"):
        adv.evaluate(balancing(), "CartPole-v1", [], 1, measure=lambda obs: obs[..., 0] / 0)
