"""What an episode can still earn: rewards of every sign, limits of steps, and what is known of environments."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.wrappers import (
    FrameStackObservation,
    MaxAndSkipObservation,
    RecordEpisodeStatistics,
    TransformObservation,
    TransformReward,
)

import adv_wrappers as adv
from adv_wrappers.atari.env import atari
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics.return_range import LeastReturn, described_range, known_range
from tests.certification.walks import Walk
from tests.every_case import every_case


@every_case(
    ("least", "total", "steps", "bound"),
    [
        (LeastReturn(1.0, None, 500), 7.0, 7, 8.0),  # the next step may be the last
        (LeastReturn(1.0, None, None), 7.0, 7, 8.0),
        (LeastReturn(-1.0, None, 200), -7.0, 7, -200.0),
        (LeastReturn(-1.0, -21.0, None), 3.0, 50, -21.0),
        (LeastReturn(-1.0, -21.0, 60), 3.0, 50, -7.0),
        (LeastReturn(None, -21.0, 60), 3.0, 50, -21.0),
        (LeastReturn(0.0, -21.0, None), 3.0, 50, 3.0),
    ],
)
def test_what_is_left(least, total, steps, bound):
    assert least.after(total, steps) == bound


def test_sums_of_rewards_that_are_rounded_stay_above():
    random = np.random.default_rng(0)
    for _ in range(200):
        reward, limit = -float(random.random()), int(random.integers(2, 2000))
        begun = int(random.integers(limit))
        total = 0.0
        for _ in range(begun):
            total += reward + random.random()
        bound = LeastReturn(reward, None, limit).after(total, begun)
        for _ in range(limit - begun):
            total += reward
        assert bound <= total and bound == pytest.approx(total, rel=1e-9, abs=1e-9)


GAMES = [
    ("CartPole-v1", {}, LeastReturn(1.0, None, 500), 0.0),
    ("CartPole-v1", {"max_episode_steps": 40}, LeastReturn(1.0, None, 40), 0.0),
    ("CartPole-v1", {"sutton_barto_reward": True}, LeastReturn(-1.0, -1.0, 500), -1.0),
    ("MountainCar-v0", {}, LeastReturn(-1.0, None, 200), -200.0),
    ("MountainCar-v0", {"max_episode_steps": 1000}, LeastReturn(-1.0, None, 1000), -1000.0),
    ("MountainCar-v0", {"max_episode_steps": -1}, LeastReturn(-1.0, None, None), None),
    ("Acrobot-v1", {}, LeastReturn(-1.0, None, 500), -500.0),
    ("FrozenLake-v1", {}, LeastReturn(0.0, None, 100), 0.0),
    ("FrozenLake-v1", {"reward_schedule": (1, -5, -0.5)}, LeastReturn(-5.0, None, 100), -500.0),
    ("CliffWalking-v1", {}, LeastReturn(-100.0, None, None), None),
    ("Pendulum-v1", {}, LeastReturn(None, None, 200), None),
    ("PongNoFrameskip-v4", {}, LeastReturn(None, -21.0, None), -21.0),
    ("ALE/Pong-v5", {"mode": 1}, LeastReturn(None, None, None), None),
]  # fmt: skip


@pytest.mark.parametrize(("id", "kwargs", "known", "lowest"), GAMES)
def test_what_is_known_is_read_off_the_environment(id, kwargs, known, lowest):
    with closing(gym.make(id, **kwargs)) as env:
        assert LeastReturn.of(env) == known and known.lowest == lowest
    assert described_range({"id": id, "kwargs": kwargs})[0] == lowest


def test_the_fall_is_the_only_loss_of_the_original_cartpole():
    env = gym.make("CartPole-v1", sutton_barto_reward=True)
    env.reset(seed=0)
    rewards, over = [], False
    while not over:
        _, reward, over, _, _ = env.step(1)
        rewards.append(reward)
    assert sum(rewards) == min(rewards) == LeastReturn.of(env).lowest == -1.0


class Loss(gym.Wrapper):
    """Takes a point from every reward."""

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward - 1.0, *rest


class Mine(CartPoleEnv):
    """CartPole by another class, which may have other rewards."""


def test_wrappers_decide_what_is_known():
    car = gym.make("MountainCar-v0")
    for same in (
        RecordEpisodeStatistics(car),
        TransformObservation(car, lambda x: x, None),
        FrameStackObservation(car, 2),
        adv.PerturbObservation(car, "noise:eps=0.1"),
        adv.PerturbAction(car, "action-noise:p=0.1"),
    ):
        assert LeastReturn.of(same) == LeastReturn.of(car) == LeastReturn(-1.0, None, 200)
    for other in (TransformReward(car, lambda reward: 2 * reward), Loss(car), Loss(RecordEpisodeStatistics(car))):
        assert LeastReturn.of(other) == LeastReturn(None, None, 200) and LeastReturn.of(other).lowest is None
    assert LeastReturn.of(MaxAndSkipObservation(car)).lowest is None  # four rewards are one
    assert LeastReturn.of(MaxAndSkipObservation(gym.make("CartPole-v1"))).lowest == 0.0
    assert LeastReturn.of(Mine()) == LeastReturn.of(Walk()) == LeastReturn(None, None, None)
    pong = atari("PongNoFrameskip-v4", raw="jpeg:quality=10", stack="brightness:newest=true")
    assert LeastReturn.of(pong).lowest == -21.0 == LeastReturn.of(atari("ALE/Pong-v5")).lowest
    assert LeastReturn.of(TransformReward(atari("ALE/Pong-v5"), np.sign)).lowest is None


def test_environments_that_a_report_does_not_tell_are_not_known():
    assert described_range({"id": "CartPole-v1", "kwargs": {}, "make": "lab:make"})[0] is None
    assert described_range({"id": "short", "kwargs": {}})[0] is None
    assert described_range({"id": "CartPole-v1", "kwargs": {"wings": 2}})[0] is None


def test_what_is_given_goes_before_what_is_known():
    car = gym.make("MountainCar-v0", max_episode_steps=300)
    assert LeastReturn.create(car, "MountainCar-v0") == LeastReturn(-1.0, None, 300)
    assert LeastReturn.create(car, "MountainCar-v0", -0.5, -2) == LeastReturn(-0.5, -2.0, 300)
    assert LeastReturn.create(Walk(), "ALE/Pong-v5", 0.5) == LeastReturn(0.5, None, None)


def test_what_is_not_known():
    with pytest.raises(ValueRangeError, match="needs the least reward of a step of Walk, which is not known: give"):
        LeastReturn.create(Walk(), "Walk")
    with pytest.raises(ValueRangeError, match=r"needs the least reward of a step of ALE/Pong-v5"):
        LeastReturn.create(Walk(), "ALE/Pong-v5")  # which another function has made
    with pytest.raises(ValueRangeError, match=r"rewards of -0\.5 without a limit of steps have no least sum: give"):
        LeastReturn.create(Walk(), "Walk", -0.5)


@every_case(
    ("id", "kwargs", "known"),
    [
        ("CartPole-v1", {}, (0.0, 500.0)),
        ("CartPole-v1", {"max_episode_steps": 30}, (0.0, 30.0)),
        ("CartPole-v1", {"sutton_barto_reward": True}, (-1.0, None)),
        ("Acrobot-v1", {}, (-500.0, 0.0)),
        ("MountainCar-v0", {}, (-200.0, -1.0)),
        ("Pendulum-v1", {}, (None, None)),
    ],
)
def test_the_range_of_returns(id, kwargs, known):
    with closing(gym.make(id, **kwargs)) as env:
        assert known_range(env) == known
    assert described_range({"id": id, "kwargs": kwargs}) == known


def test_changed_rewards_have_no_known_range():
    with closing(TransformReward(gym.make("CartPole-v1"), lambda reward: 10 * reward)) as env:
        assert known_range(env) == (None, None)
