"""What an episode can still earn: rewards of every sign, limits of steps, and what is known of environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward

from adv_wrappers.certification.least_return import LeastReturn, known_least_reward
from adv_wrappers.errors import ValueRangeError
from tests.certification.walks import Walk


@pytest.mark.parametrize(
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


def test_what_is_known_of_environments():
    cartpole, car = gym.make("CartPole-v1"), gym.make("MountainCar-v0", max_episode_steps=300)
    assert LeastReturn.create(cartpole, "CartPole-v1") == LeastReturn(1.0, None, 500)
    assert LeastReturn.create(car, "MountainCar-v0") == LeastReturn(-1.0, None, 300)
    assert LeastReturn.create(Walk(), "ALE/Pong-v5") == LeastReturn(None, -21.0, None)
    assert LeastReturn.create(Walk(), "ALE/Pong-v5", 0.5, -2) == LeastReturn(0.5, -2.0, None)
    other = gym.make("CartPole-v1", sutton_barto_reward=True)
    assert known_least_reward(TransformReward(cartpole, lambda reward: -reward)) is None
    assert known_least_reward(other) is None and known_least_reward(Walk()) is None


def test_what_is_not_known():
    with pytest.raises(ValueRangeError, match="needs the least reward of a step of Walk, which is not known: give"):
        LeastReturn.create(Walk(), "Walk")
    with pytest.raises(ValueRangeError, match=r"rewards of -0\.5 without a limit of steps have no least sum: give"):
        LeastReturn.create(Walk(), "Walk", -0.5)
    with pytest.raises(ValueRangeError, match="least_reward must be a finite number, got nan"):
        LeastReturn.create(Walk(), "Walk", float("nan"))
    with pytest.raises(ValueRangeError, match="least_return must be a finite number, got '1'"):
        LeastReturn.create(Walk(), "Walk", None, "1")
