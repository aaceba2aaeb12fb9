"""Tasks of the DeepMind Control Suite: one vector, an action held for several control steps, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from adv_wrappers.environments.dmc import ActionRepeat, FlatObservation, dmc
from adv_wrappers.environments.snapshot import Snapshot
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.every_case import every_case

WALKER, CARTPOLE = "dm_control/walker-walk-v0", "dm_control/cartpole-balance-v0"


@pytest.fixture(autouse=True)
def suite():
    pytest.importorskip("dm_control")


def test_keys_are_in_alphabetical_order_whatever_the_task_says():
    env = dmc(WALKER)
    raw = gym.make(WALKER)
    seen, _ = env.reset(seed=3)
    keys, _ = raw.reset(seed=3)
    assert list(keys) != sorted(keys)  # else the test would say nothing
    expected = np.concatenate([np.ravel(keys[key]) for key in sorted(keys)])
    assert seen.dtype == np.float32 and np.array_equal(seen, expected.astype(np.float32))
    names = env.get_wrapper_attr("feature_names")
    assert names[0] == "height" and names[1] == "orientations[0]" and names[-1] == "velocity[8]"
    assert env.observation_space.shape == (len(names),) == seen.shape


def test_rewards_of_held_actions_are_added():
    held, plain = dmc(CARTPOLE, action_repeat=4), dmc(CARTPOLE)
    first, _ = held.reset(seed=0)
    assert np.array_equal(first, plain.reset(seed=0)[0])
    action = np.array([0.3])
    obs, reward, _, _, info = held.step(action)
    steps = [plain.step(action) for _ in range(4)]
    assert reward == sum(step[1] for step in steps)
    assert np.array_equal(obs, steps[-1][0])
    assert np.array_equal(info["control_observations"], np.stack([step[0] for step in steps]))


def test_an_episode_that_ends_ends_the_step():
    env = dmc(CARTPOLE, action_repeat=3)
    env.reset(seed=0)
    lengths, over = [], False
    while not over:
        _, _, terminated, truncated, info = env.step(np.zeros(1))
        lengths.append(len(info["control_observations"]))
        over = terminated or truncated
    assert truncated and not terminated
    assert sum(lengths) == 1000 and lengths[-1] == 1 and set(lengths[:-1]) == {3}


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped")
@pytest.mark.filterwarnings("ignore:.*Box observation space")
def test_the_checks_of_gymnasium():
    check_env(dmc(WALKER, action_repeat=2), skip_render_check=True, skip_close_check=True)


def test_it_is_saved_and_comes_back():
    env = dmc(WALKER, action_repeat=2)
    env.reset(seed=1)
    snapshot = Snapshot.of(env)
    first = [env.step(np.full(6, 0.4))[0] for _ in range(5)]
    snapshot.restore(env)
    assert all(np.array_equal(env.step(np.full(6, 0.4))[0], obs) for obs in first)


@every_case("count", [0, 1.5])
def test_an_action_is_held_for_at_least_one_step(count):
    with pytest.raises(ValueRangeError, match=r"control steps .* got"):
        dmc(CARTPOLE, action_repeat=count)


def test_other_ids_and_other_observations_are_refused():
    with pytest.raises(SpaceError, match=r"dm_control/\.\.\.\), got 'CartPole-v1'"):
        dmc("CartPole-v1")
    with pytest.raises(SpaceError, match="a dictionary of boxes"):
        FlatObservation(gym.make("CartPole-v1"))


def test_a_mujoco_that_the_suite_does_not_know_is_refused(monkeypatch):
    for name in [name for name in gym.registry if name.startswith("dm_control/")]:
        monkeypatch.delitem(gym.registry, name)
    monkeypatch.setitem(sys.modules, "mujoco", types.SimpleNamespace(__version__="4.0.1"))
    with pytest.raises(SpaceError, match=r"mujoco >=3.17,<4, this is 4\.0\.1"):
        dmc(CARTPOLE)


def test_held_actions_are_for_any_environment():
    env = ActionRepeat(gym.make("MountainCarContinuous-v0"), 2)
    env.reset(seed=0)
    assert env.step(np.array([1.0], np.float32))[4]["control_observations"].shape == (2, 2)


@pytest.mark.slow
def test_an_optimizer_can_be_made_after_a_task_with_egl():
    code = "import torch; from adv_wrappers.environments.dmc import dmc; dmc('{}'); "
    code += "torch.optim.Adam([torch.zeros(1, requires_grad=True)])"
    environment = {**os.environ, "MUJOCO_GL": "egl"}
    made = subprocess.run([sys.executable, "-c", code.format(CARTPOLE)], env=environment, capture_output=True)
    if b"SpaceError" in made.stderr:
        pytest.skip("dm_control cannot be imported with EGL here")
    assert made.returncode == 0, made.stderr.decode()
