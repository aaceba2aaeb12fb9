"""Box2D's worlds, whose bodies are made anew at every reset."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.environments.replay import record_for_replay
from adv_wrappers.environments.snapshot import Snapshot
from adv_wrappers.errors import SnapshotError
from tests.box2d import needs_box2d

pytestmark = needs_box2d


def play(env, steps=40, seed=3):
    env.action_space.seed(0)
    seen = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        seen.append(env.step(env.action_space.sample())[0])
    return np.array(seen)


@pytest.mark.parametrize(
    ("id", "at"), [("LunarLander-v3", "gravity"), ("LunarLander-v3", "force"), ("BipedalWalker-v3", "density")]
)
def test_a_parameter_changes_the_episode_as_it_does_in_a_new_environment(id, at):
    threat = f"fixed-dynamics:at={at},values={20.0 if at == 'force' else 0.5}"
    clean, changed = play(gym.make(id)), play(adv.PerturbDynamics(gym.make(id), threat))
    assert not np.array_equal(changed, clean)
    env = adv.PerturbDynamics(gym.make(id), threat)
    assert play(copy.deepcopy(env)).tobytes() == changed.tobytes()
    assert play(env).tobytes() == changed.tobytes()
    off = adv.PerturbDynamics(gym.make(id), threat, when="never")
    assert play(off).tobytes() == clean.tobytes()
    if id == "LunarLander-v3":  # a world of BipedalWalker does not repeat an episode to the bit
        assert play(env).tobytes() == changed.tobytes()


def test_densities_and_gravity_are_factors():
    env = adv.PerturbDynamics(gym.make("LunarLander-v3"), "fixed-dynamics:at=density;gravity,values=2;0.5")
    env.reset(seed=0)
    mass = env.unwrapped.lander.mass
    env.step(0)
    assert env.unwrapped.lander.mass == pytest.approx(2 * mass)
    assert tuple(env.unwrapped.world.gravity) == (0.0, -5.0)
    env.reset(seed=0)
    assert env.unwrapped.lander.mass == pytest.approx(mass) and tuple(env.unwrapped.world.gravity) == (0.0, -10.0)


def test_a_world_with_other_parameters_cannot_be_saved():
    recorded = record_for_replay(gym.make("LunarLander-v3"))
    env = adv.PerturbDynamics(recorded, "fixed-dynamics:at=gravity,values=0.5")
    env.reset(seed=0)
    with pytest.raises(SnapshotError, match="a replay knows no other parameters"):
        Snapshot.of(env)
