"""Law 6: the environment's random stream and dynamics are those of the unwrapped one under the same actions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from tests.laws.checks import by_turns, check_dynamics, of_each_sort
from tests.rigs import PLAIN


@pytest.mark.parametrize(("case", "kind"), by_turns(of_each_sort(), PLAIN), ids=str)
def test_every_preset(case, kind):
    check_dynamics(case, kind)


def test_a_real_environment():
    """CartPole's own states, rewards and random stream under an attacked observation."""
    bare, env = gym.make("CartPole-v1"), adv.wrap(gym.make("CartPole-v1"), "noise:eps=1.0")
    bare.reset(seed=4)
    env.reset(seed=4)
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = int(rng.integers(2))
        a, b = bare.step(action), env.step(action)
        assert np.array_equal(bare.unwrapped.state, env.unwrapped.state) and a[1:4] == b[1:4]
        if a[2] or a[3]:
            bare.reset()
            env.reset()
    assert bare.unwrapped.np_random.bit_generator.state == env.unwrapped.np_random.bit_generator.state
