"""Tasks side by side: what every row returns is what the task itself returns, and branches leave it as it is."""

from __future__ import annotations

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.environments.dmc import DmcVectorEnv, dmc, dmc_vector
from adv_wrappers.errors import SpaceError, ValueRangeError


@pytest.fixture(autouse=True)
def suite():
    pytest.importorskip("dm_control")


@pytest.mark.parametrize(("task", "repeat"), [("cartpole-two_poles", 3), ("walker-stand", 1)])
def test_rows_return_what_the_task_returns(task, repeat):
    task = f"dm_control/{task}-v0"
    many, draw = DmcVectorEnv(task, 3, repeat), np.random.default_rng(1)
    ones = [dmc(task, repeat) for _ in range(3)]
    obs, _ = many.reset(seed=[4, 5, 6])
    assert np.array_equal(obs, [one.reset(seed=seed)[0] for one, seed in zip(ones, (4, 5, 6), strict=True)])
    assert many.feature_names == ones[0].get_wrapper_attr("feature_names")
    assert (
        many.single_observation_space == ones[0].observation_space and many.single_action_space == ones[0].action_space
    )
    space = many.single_action_space
    for t in range(16):
        actions = draw.uniform(space.low, space.high, (3, *space.shape)).astype(np.float32)
        obs, rewards, terminated, truncated, info = many.step(actions)
        for i, one in enumerate(ones):
            seen, reward, *_, told = one.step(actions[i])
            assert np.array_equal(obs[i], seen) and rewards[i] == pytest.approx(reward, abs=1e-12)
            assert np.array_equal(info["control_observations"][i], told["control_observations"])
        assert not (terminated | truncated).any()
        if t == 8:
            mask = np.array([False, True, False])
            obs, _ = many.reset(seed=[None, 9, None], options={"reset_mask": mask})
            assert np.array_equal(obs[1], ones[1].reset(seed=9)[0]) and not np.array_equal(obs[0], obs[1])


@pytest.mark.slow
def test_the_last_step_may_be_shorter_and_finished_rows_stand_still():
    task = "dm_control/cartpole-balance-v0"
    many, one = DmcVectorEnv(task, 1, 300), dmc(task, 300)
    many.reset(seed=0), one.reset(seed=0)
    for t in range(4):
        obs, _, _, over, info = many.step(np.zeros((1, 1), np.float32))
        seen, _, _, ended, told = one.step(np.zeros(1, np.float32))
        assert over[0] == ended == (t == 3) and np.array_equal(obs[0], seen)
        assert len(info["control_observations"][0]) == len(told["control_observations"]) == (100 if t == 3 else 300)
    again, rewards, _, over, info = many.step(np.ones((1, 1), np.float32))
    assert np.array_equal(again, obs) and rewards[0] == 0 and over[0] and info["control_observations"] == [None]


def test_branches_go_on_from_the_present_and_leave_it():
    many = DmcVectorEnv("dm_control/walker-walk-v0", 3, 2)
    many.reset(seed=0)
    draw = np.random.default_rng(0)
    first, then = draw.uniform(-1, 1, (2, 3, 6)).astype(np.float32)
    many.step(first)
    with many.simulator(np.array([0, 2])).rollout(2) as rollout:
        tried = [rollout.step(np.tile(actions[[0, 2]], (2, 1))) for actions in (then, first)]
    once = many.simulator().step(then)
    played = [many.step(then), many.step(first)]
    for (obs, rewards, _), (truth, earned, *_) in zip(tried, played, strict=True):
        assert np.array_equal(obs, np.tile(truth[[0, 2]], (2, 1))) and np.array_equal(
            rewards, np.tile(earned[[0, 2]], 2)
        )
    assert np.array_equal(once[0], played[0][0])


def test_branches_of_any_size_share_their_memory():
    many = DmcVectorEnv("dm_control/cartpole-balance-v0", 4)
    many.reset(seed=0)
    for rows in ([0], [0, 1, 3], [2, 3], [0, 1, 2, 3]):
        once = many.simulator(np.array(rows)).step(np.ones((len(rows), 1), np.float32))
        assert len(once[0]) == len(rows)
    assert len(many._spare) == 4


def test_a_simulation_that_is_not_finite_is_refused():
    many = DmcVectorEnv("dm_control/cartpole-balance-v0", 2)
    many.reset(seed=0)
    many.step(np.zeros((2, 1), np.float32))
    with pytest.raises(ValueRangeError, match="actions must be finite"):
        many.step(np.array([[0.0], [np.nan]], np.float32))
    many._rows.datas[1].qvel[0] = np.nan
    with pytest.raises(ValueRangeError, match=r"\[1\] is not finite"):
        many.step(np.zeros((2, 1), np.float32))


def test_seeds_are_counted_up_and_every_reset_without_one_differs():
    many = DmcVectorEnv("dm_control/fish-upright-v0", 2)
    both, _ = many.reset(seed=3)
    assert np.array_equal(both, many.reset(seed=[3, 4])[0]) and not np.array_equal(both, many.reset()[0])


def test_what_it_does_not_know():
    with pytest.raises(SpaceError, match="formulas of dm_control/cheetah-run-v0"):
        DmcVectorEnv("dm_control/cheetah-run-v0")
    with pytest.raises(ValueRangeError, match="num_envs"):
        DmcVectorEnv("dm_control/cartpole-balance-v0", 0)
    for task in ("cartpole-balance_sparse", "fish-swim", "humanoid-walk"):
        assert dmc_vector(f"dm_control/{task}-v0", 2, {}) is None
    assert dmc_vector("dm_control/cartpole-balance-v0", 2, {"render_mode": "rgb_array"}) is None


def test_an_evaluation_is_the_same_in_either():
    agent, task = adv.load_victim("zoo:cartpole-balance-sac"), "dm_control/cartpole-balance-v0"
    how = {"episodes": 1, "measure": True}
    direct = adv.evaluate(agent, task, env_kwargs={"action_repeat": 20}, **how)
    by_function = adv.evaluate(agent, lambda: dmc(task, 20), **{**how, "measure": "1=-1"})
    for a, b in zip(direct.threats, by_function.threats, strict=True):
        assert a["returns"] == pytest.approx(b["returns"], abs=1e-9) and a["losses"] == pytest.approx(b["losses"])
