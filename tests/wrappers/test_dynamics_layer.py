"""What layers on the dynamics ask of the environments beneath them."""

from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.vector import SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError
from adv_wrappers.wrappers.dynamics_layer import dynamics_beneath


def test_parameters_beneath_leave_the_environment_as_it_is():
    venv = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    before = list(venv.envs)
    assert "mass.pole" in dynamics_beneath(venv).names
    assert venv.envs == before
    assert dynamics_beneath(gym.make("CartPole-v1")) == dynamics_beneath(venv)


def test_rows_with_other_parameters_are_refused():
    class Heavy(gym.Env):
        physical_parameters = {"mass": "m"}  # noqa: RUF012
        observation_space = gym.spaces.Box(-1, 1)
        action_space = gym.spaces.Discrete(2)
        m = 1.0

    class Light(Heavy):
        physical_parameters = {"gravity": "m"}  # noqa: RUF012

    with pytest.raises(SpaceError, match="must have the same physical parameters"):
        adv.PerturbDynamics(SyncVectorEnv([Heavy, Light]), "dynamics-noise:at=mass,eps=0.1")
