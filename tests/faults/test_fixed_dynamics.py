"""Physical parameters of given values."""

from __future__ import annotations

import gymnasium as gym
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.every_case import every_case


def test_values_are_factors_of_the_environments_own():
    env = adv.PerturbDynamics(gym.make("CartPole-v1"), "fixed-dynamics:at=mass.pole;gravity,values=3;0.5")
    env.reset(seed=0)
    env.step(0)
    assert (env.unwrapped.masspole, env.unwrapped.gravity) == (pytest.approx(0.3), 4.9)


def test_a_budget_bounds_them():
    env = adv.PerturbDynamics(gym.make("CartPole-v1"), "fixed-dynamics:at=mass.pole,values=3,eps=0.5")
    env.reset(seed=0)
    env.step(0)
    assert env.unwrapped.masspole == pytest.approx(0.15)


@every_case(
    ("values", "error", "words"),
    [
        ((1.0, 2.0, 3.0), SpaceError, "has 3 values for 2 numbers .*: give one for all, or one for each"),
        (0.0, ValueRangeError, r"values must lie in \[0.01, 100\] here, got 0"),
        (float("nan"), ValueRangeError, "values must be finite numbers"),
        ("heavy", ValueRangeError, "values must be finite numbers"),
        ((), ValueRangeError, "values must be finite numbers"),
    ],
)
def test_bad_values(values, error, words):
    with pytest.raises(error, match=words):
        adv.PerturbDynamics(gym.make("CartPole-v1"), adv.FixedDynamics(values), at="mass")
