"""Parameters that are attributes of an environment."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

import adv_wrappers as adv
from adv_wrappers.environments.physical_parameters import parameters_of
from adv_wrappers.errors import SpaceError
from tests.every_case import every_case

IDS = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")


@every_case("id", IDS)
def test_every_parameter_changes_the_next_state_and_nothing_of_it_stays(id):
    env = gym.make(id)
    env.reset(seed=1)
    env.action_space.seed(0)
    parameters, own = parameters_of(env), dict(vars(env.unwrapped))
    for _ in range(5):  # away from where velocities are 0
        env.step(env.action_space.sample())
    state, action = copy.copy(env.unwrapped.state), env.action_space.sample()
    if id == "CartPole-v1":
        action = 1

    def after():
        env.unwrapped.state = copy.copy(state)
        return np.asarray(env.unwrapped.step(action)[0]).tolist()

    plain = after()
    for place in range(len(parameters.space.nominal)):
        values = parameters.space.nominal.copy()
        values[place] = 2.0
        parameters.set(values)
        assert after() != plain, parameters.space.name_of(place)
        parameters.restore()
        assert after() == plain, parameters.space.name_of(place)
    for name, value in own.items():
        if isinstance(value, (int, float)):
            assert getattr(env.unwrapped, name) == value, name
    assert not {*vars(env.unwrapped)} - {*own} - {"state", "last_u", "steps_beyond_terminated"}


def test_what_follows_from_masses_is_computed_anew():
    env = gym.make("CartPole-v1")
    parameters = parameters_of(env)
    values = parameters.space.nominal.copy()
    values[parameters.space.places("mass.pole")] = 3.0
    parameters.set(values)
    own = env.unwrapped
    assert own.total_mass == own.masscart + own.masspole and own.polemass_length == own.masspole * own.length


def test_an_environment_of_ones_own_lists_its_attributes():
    class Spring(gym.Env):
        physical_parameters = {"stiffness": "k", "damping": "c"}  # noqa: RUF012
        observation_space = action_space = gym.spaces.Box(-1, 1)

        def __init__(self, k=4.0, c=0.5):
            self.k, self.c = k, c

    env = Spring()
    parameters = parameters_of(env)
    assert parameters.space.names == ("stiffness", "damping")
    assert parameters.space.low.tolist() == [0.01, 0.0]  # damping may vanish
    parameters.set(np.array([2.0, 0.0]))
    assert (env.k, env.c) == (8.0, 0.0)
    with pytest.raises(SpaceError, match=r"Spring lists 'damping' .*: expected a number other than 0 .* 'c', got 0.0"):
        parameters_of(Spring(c=0.0))
    Spring.physical_parameters = ["k"]
    with pytest.raises(SpaceError, match=r"Spring.physical_parameters must be a dictionary .*, got \['k'\]"):
        parameters_of(env)


class Servoed(HopperEnv):
    """MuJoCo beneath a controller of its own."""

    physical_parameters = {"controller.stiffness": "stiffness"}  # noqa: RUF012
    stiffness = 2.0


def test_what_an_environment_lists_stands_beside_what_its_simulator_has():
    env = adv.PerturbDynamics(
        Servoed(), "fixed-dynamics:at=controller.stiffness;mass.torso,values=0.5;3", when="every(2)"
    )
    own = env.unwrapped.model.body_mass.copy()
    env.reset(seed=0)
    for weak in (True, False, True):
        env.step(np.zeros(3, np.float32))
        assert (env.unwrapped.stiffness, env.unwrapped.model.body_mass[1]) == (
            (1.0, 3 * own[1]) if weak else (2.0, own[1])
        )
    other = copy.deepcopy(env)
    assert (other.unwrapped.model.body_mass == own).all() and other.unwrapped.stiffness in (1.0, 2.0)
    for each in (env, other):
        each.reset(seed=1)
        assert (each.unwrapped.stiffness, each.unwrapped.model.body_mass[1]) == (2.0, own[1])
        each.step(np.zeros(3, np.float32))
        assert (each.unwrapped.stiffness, each.unwrapped.model.body_mass[1]) == (1.0, 3 * own[1])
    env.close()
    assert env.unwrapped.stiffness == 2.0 and (env.unwrapped.model.body_mass == own).all()


def test_a_name_that_the_simulator_has_too_is_refused(monkeypatch):
    monkeypatch.setattr(Servoed, "physical_parameters", {"gravity": "stiffness"})
    with pytest.raises(SpaceError, match="Servoed lists gravity in physical_parameters, which its simulator has too"):
        parameters_of(Servoed())
