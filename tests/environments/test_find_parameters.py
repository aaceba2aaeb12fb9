"""Which environments have physical parameters."""

from __future__ import annotations

import gymnasium as gym
import pytest

from adv_wrappers.environments.physical_parameters import parameters_of
from adv_wrappers.errors import SpaceError


def test_through_any_wrappers():
    env = gym.wrappers.ClipAction(gym.make("Hopper-v5"))
    assert "mass.torso" in parameters_of(env).space.names


def test_an_environment_without_is_refused_by_its_name():
    class Plain(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

    with pytest.raises(SpaceError, match="Plain has no physical parameters that are known: those of MuJoCo"):
        parameters_of(Plain())
