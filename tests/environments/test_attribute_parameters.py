"""Parameters that are attributes of an environment."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest

from adv_wrappers.environments.physical_parameters import parameters_of
from adv_wrappers.errors import SpaceError

IDS = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")


@pytest.mark.parametrize("id", IDS)
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
