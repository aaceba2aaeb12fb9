"""Layers on the dynamics: what they propose, in which order, and to which environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, ThreatError
from adv_wrappers.wrappers.perturb_dynamics import dynamics_beneath


def cartpole():
    return gym.make("CartPole-v1")


def test_layers_add_up_and_the_outermost_acts_first():
    env = adv.wrap(
        cartpole(),
        adv.ThreatModel("dynamics", lambda x, context: x + 1, adv.Valid(), at="mass.pole"),
        "fixed-dynamics:at=gravity,values=2",
        "fixed-dynamics:at=mass.pole,values=3",
    )
    env.reset(seed=0)
    env.step(0)
    own = env.unwrapped
    assert own.masspole == pytest.approx(0.4) and own.gravity == 19.6 and own.masscart == 1.0


def test_steps_that_are_not_attacked_have_the_environments_own():
    env = adv.PerturbDynamics(cartpole(), "fixed-dynamics:at=gravity,values=2,when=window(2,4)")
    env.reset(seed=0)
    found = []
    for t in range(6):
        env.step(t % 2)
        found.append(env.unwrapped.gravity)
    assert found == [9.8, 9.8, 19.6, 19.6, 9.8, 9.8]


@pytest.mark.parametrize("mode", [*AutoresetMode])
def test_episodes_of_a_vector_begin_with_the_environments_own(mode):
    """Whoever resets a row, it is reset with nothing changed."""
    seen = []

    class Look(gym.Wrapper):
        def reset(self, **kwargs):
            seen.append(self.unwrapped.gravity)
            return self.env.reset(**kwargs)

    venv = SyncVectorEnv([lambda: Look(gym.make("CartPole-v1"))] * 2, autoreset_mode=mode)
    venv = adv.PerturbDynamics(venv, "fixed-dynamics:at=gravity,values=2")
    venv.reset(seed=0)
    for _ in range(60):
        *_, terminated, truncated, _ = venv.step(np.zeros(2, np.int64))
        done = terminated | truncated
        if mode == AutoresetMode.DISABLED and done.any():
            venv.reset(options={"reset_mask": done})
    assert len(seen) > 6 and {*seen} == {9.8}
    venv.close()
    assert [env.unwrapped.gravity for env in venv.unwrapped.envs] == [9.8, 9.8]


def test_rows_in_other_processes_are_refused():
    venv = AsyncVectorEnv([cartpole] * 2)
    with pytest.raises(SpaceError, match=r"those of AsyncVectorEnv are not in this process.* use SyncVectorEnv"):
        adv.PerturbDynamics(venv, "dynamics-noise:at=mass,eps=0.1")
    venv.close()
    with pytest.raises(SpaceError, match="CartPoleVectorEnv are not in this process, or not one by one"):
        adv.PerturbDynamics(gym.make_vec("CartPole-v1", num_envs=2), "dynamics-noise:at=mass,eps=0.1")


def test_threats_of_other_kinds_are_refused():
    with pytest.raises(ThreatError, match="perturbs the dynamics, noise is a threat to the observation"):
        adv.PerturbDynamics(cartpole(), "noise:eps=0.1")
    with pytest.raises(ThreatError, match="perturbs the action, dynamics-noise is a threat to the dynamics"):
        adv.PerturbAction(cartpole(), "dynamics-noise:at=mass,eps=0.1")


def test_it_reaches_the_environment_through_wrappers_that_change_what_rows_return():
    venv = SyncVectorEnv([cartpole] * 2)
    venv = gym.wrappers.vector.TransformObservation(venv, lambda obs: obs * 2)
    venv = adv.wrap(venv, "noise:eps=0.1", "fixed-dynamics:at=gravity,values=2")
    venv.reset(seed=0)
    venv.step(np.zeros(2, np.int64))
    assert [env.unwrapped.gravity for env in venv.unwrapped.envs] == [19.6, 19.6]


def test_a_budget_that_grows():
    env = adv.PerturbDynamics(cartpole(), "dynamics-noise:at=gravity,kind=bernoulli,eps=0.5")
    env.set_budget_share(0.5)
    env.reset(seed=0)
    env.step(0)
    assert abs(env.unwrapped.gravity / 9.8 - 1) == pytest.approx(0.25)


def test_a_function_that_returns_no_number():
    env = adv.PerturbDynamics(gym.make("CartPole-v1"), lambda x, context: x * float("nan"), adv.Linf(0.5), at="mass")
    env.reset(seed=0)
    with pytest.raises(ThreatError, match="not finite: a perturbation must return finite numbers"):
        env.step(0)


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
