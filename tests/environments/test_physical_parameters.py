"""What every simulator's parameters have in common."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

import adv_wrappers as adv
from adv_wrappers.core.parameter_space import Parameter, ParameterSpace
from adv_wrappers.environments.physical_parameters import PhysicalParameters
from adv_wrappers.environments.snapshot import Snapshot


class Noted(PhysicalParameters):
    def __init__(self):
        super().__init__(ParameterSpace([Parameter("mass", 0.1, 10.0), Parameter("force", -1.0, 1.0, 0.0)]))
        self.written = []

    def write(self, values, changed):
        self.written.append((values.tolist(), changed.tolist()))


def test_only_what_changed_is_written():
    parameters = Noted()
    parameters.set(np.array([1.0, 0.0]))
    assert parameters.written == [] and not parameters.changed
    parameters.set(np.array([2.0, 0.0]))
    parameters.set(np.array([2.0, 0.5]))
    parameters.set(np.array([2.0, 0.5]))
    parameters.restore()
    assert parameters.written == [
        ([2.0, 0.0], [True, False]), ([2.0, 0.5], [False, True]), ([1.0, 0.0], [True, True]),
    ]  # fmt: skip


def test_a_snapshot_brings_them_back():
    """In the middle of an episode, from another point of it where they are others."""
    env = adv.PerturbDynamics(gym.make("Hopper-v5"), "dynamics-noise:at=mass;force,eps=0.5,every=step")
    env.reset(seed=0)
    action = np.zeros(3, np.float32)
    env.step(action)
    saved = Snapshot.of(env)
    mass = env.unwrapped.model.body_mass.copy()
    first = [env.step(action)[0].tobytes() for _ in range(3)]
    assert not np.array_equal(env.unwrapped.model.body_mass, mass)
    saved.restore(env)
    assert np.array_equal(env.unwrapped.model.body_mass, mass)
    assert [env.step(action)[0].tobytes() for _ in range(3)] == first
