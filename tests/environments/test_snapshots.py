"""Environments repeat to the bit after a restore, under many wrappers, and a snapshot that forgets is found out."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import (
    FrameStackObservation,
    NormalizeObservation,
    RecordEpisodeStatistics,
    TimeAwareObservation,
)

import adv_wrappers as adv
from adv_wrappers.atari.env import atari
from adv_wrappers.environments import object_snapshot
from adv_wrappers.environments.gym_make import make_environment
from adv_wrappers.environments.snapshot import Snapshot, check_repeats, difference
from adv_wrappers.errors import SnapshotError
from tests.episodes import play
from tests.every_case import every_case


def layered(env):
    """Five more layers: what Gymnasium counts and stacks, what ours draw and remember."""
    env = RecordEpisodeStatistics(env)
    env = adv.PerturbAction(
        env, "action-noise:p=0.3" if isinstance(env.action_space, gym.spaces.Discrete) else "action-noise:eps=0.1"
    )
    env = NormalizeObservation(TimeAwareObservation(env))
    env = adv.PerturbObservation(env, "noise:eps=0.01", when="bernoulli(0.5)&atmost(20)")
    return FrameStackObservation(env, 3)


def pong():
    game = atari("PongNoFrameskip-v4", raw="brightness:beta=10", frame="rotation:degrees=3", stack="noise:eps=2")
    return RecordEpisodeStatistics(adv.PerturbAction(game, "action-noise:p=0.3"))


MAKERS = {
    **{id: lambda id=id: layered(gym.make(id)) for id in ("CartPole-v1", "Hopper-v5")},
    "Pong": pong,
    "FrozenLake-v1": lambda: RecordEpisodeStatistics(gym.make("FrozenLake-v1")),
    "Blackjack-v1": lambda: gym.make("Blackjack-v1"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_equal_to_the_bit_after_a_restore(name):
    env = MAKERS[name]()
    env.reset(seed=3)
    env.action_space.seed(0)
    draw = [env.action_space.sample() for _ in range(48)]
    play(env, draw[:16])
    snapshot = Snapshot.of(env)
    first = play(env, draw[16:])
    assert len({str(answer[0]) for answer in first}) > 1  # something happens
    for _ in range(2):
        snapshot.restore(env)
        assert difference(first, play(env, draw[16:]), "answers") == ""
    snapshot.restore(env)
    again = Snapshot.of(env)
    play(env, draw[:5])
    again.restore(env)
    check_repeats(env)
    assert difference(first, play(env, draw[16:]), "answers") == ""
    env.close()


def test_the_control_suite(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")  # or it looks for a display
    pytest.importorskip("dm_control")
    env = make_environment("dm_control/cartpole-balance-v0", {})
    env.reset(seed=3)
    env.action_space.seed(0)
    draw = [env.action_space.sample() for _ in range(12)]
    play(env, draw)
    snapshot = Snapshot.of(env)
    first = play(env, draw)
    snapshot.restore(env)
    assert difference(first, play(env, draw), "answers") == ""
    check_repeats(env)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_vectors_in_this_process(mode):
    rows = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=mode)
    env = adv.wrap(rows, "noise:eps=0.1", "action-noise:p=0.5")
    env.reset(seed=0)
    env.step(np.array([0, 1]))
    snapshot = Snapshot.of(env)
    first = [env.step(np.array([1, 1])) for _ in range(4)]
    snapshot.restore(env)
    assert difference(first, [env.step(np.array([1, 1])) for _ in range(4)], "answers") == ""


@every_case(
    ("forgotten", "limit"),
    [(np.random.Generator, None), (gym.wrappers.TimeLimit, 2), ("MjData", None), ("ALEInterface", None)],
)
def test_a_snapshot_that_forgets_is_found(monkeypatch, forgotten, limit):
    """Mutants: the random state, the counters, a simulator's own state."""
    if forgotten is np.random.Generator:
        env = gym.make("FrozenLake-v1")
    elif forgotten == "MjData":
        env = gym.make("Hopper-v5")
    elif forgotten == "ALEInterface":
        env = gym.make("ALE/Pong-v5", obs_type="ram", repeat_action_probability=0)
    else:
        env = gym.make("Acrobot-v1", max_episode_steps=limit)
    env.reset(seed=1)
    check_repeats(env)
    kinds = dict(object_snapshot._KEEP)
    for kind in kinds:
        if kind is forgotten or kind.__name__ == forgotten:
            kinds[kind] = (lambda walk, value: walk.visit(value.env)) if limit else None
    monkeypatch.setattr(object_snapshot, "_KEEP", kinds)
    with pytest.raises(SnapshotError, match=r"does not repeat: step [123] after a restore has another"):
        check_repeats(env)
