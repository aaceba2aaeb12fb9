"""An environment whose physical parameters are set for its next step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from adv_wrappers.errors import SimulationError
from adv_wrappers.wrappers.parameterized_env import ParameterizedEnv, parameterized
from tests.environments.test_mujoco_parameters import contents


def test_a_proposal_holds_for_one_step():
    env = ParameterizedEnv(gym.make("CartPole-v1"))
    env.reset(seed=0)
    env.proposed[:] = 2.0
    env.step(0)
    assert env.unwrapped.masspole == 0.2 and (env.proposed == 1).all()
    env.step(0)
    assert env.unwrapped.masspole == 0.1


@pytest.mark.parametrize("end", ["reset", "close", "termination"])
def test_the_environment_is_left_as_it_was(end):
    env = ParameterizedEnv(gym.make("Hopper-v5"))
    env.reset(seed=0)
    before = contents(env.unwrapped.model)
    over = False
    while not over:
        env.proposed[env.parameters.space.places("mass")] = 1.5
        env.proposed[env.parameters.space.places("force")] = 3.0
        over = any(env.step(np.ones(3, np.float32))[2:4])
        assert over or contents(env.unwrapped.model) != before
        over = over or end != "termination"
    if end != "termination":
        getattr(env, end)()
    assert contents(env.unwrapped.model) == before and not env.unwrapped.data.xfrc_applied.any()


def test_it_is_put_around_once_and_not_named():
    env, inner = parameterized(gym.make("CartPole-v1"))
    again, same = parameterized(gym.wrappers.ClipReward(env, -1, 1))
    assert same is inner and again is not inner
    assert str(env) == str(env.env) and env.spec == env.env.spec


def test_values_that_are_not_finite_end_the_episode_with_their_parameters():
    class Broken(gym.Env):
        physical_parameters = {"mass": "m"}  # noqa: RUF012
        observation_space = action_space = gym.spaces.Box(-1, 1)
        m = 1.0

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.full(1, np.inf if self.m > 1 else 0, np.float32), 0.0, False, False, {}

    env = ParameterizedEnv(Broken())
    env.reset()
    env.step(0)
    env.proposed[:] = 2.0
    with pytest.raises(SimulationError, match=r"diverged at step 2 with mass=2: it returned array\(\[inf\]"):
        env.step(0)
    assert env.unwrapped.m == 1.0
    env.ends_diverged = True
    env.reset()
    env.proposed[:] = 2.0
    with pytest.warns(RuntimeWarning, match="diverged at step 1 with mass=2.*the episode is cut off there"):
        obs, reward, terminated, truncated, _ = env.step(0)
    assert (obs.tolist(), reward, terminated, truncated) == ([0.0], 0.0, False, True) and env.unwrapped.m == 1.0
