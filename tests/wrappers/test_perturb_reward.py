"""Layers on rewards: in trainings, and never in what an evaluation counts."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import adv_wrappers as adv
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.wrappers.perturb_reward import checked_total
from tests.faults.test_rewards import TRUE, Counting
from tests.laws.checks import Case
from tests.rigs import RIGS


def test_info_has_the_environments_own_reward():
    env = adv.PerturbReward(Counting(), "reward-flip:when=every(2)")
    assert env.reset()[1]["adv_wrappers"] == {"0:reward-flip": {"attacked": False}}
    assert env.step(0)[4]["adv_wrappers"] == {"0:reward-flip": {"attacked": True, "true": -1.5}}
    venv = adv.PerturbReward(SyncVectorEnv([Counting] * 2), "reward-flip")
    venv.reset()
    _, rewards, _, _, info = venv.step(np.zeros(2, int))
    assert rewards.tolist() == [1.5, 1.5] and info["adv_wrappers"]["0:reward-flip"]["true"].tolist() == [-1.5, -1.5]


def test_layers_add_up_from_the_innermost():
    env = adv.wrap(Counting(), "reward-clip:low=-1,high=1", "reward-flip", "noise:eps=0.1")
    env.reset(seed=0)
    assert [env.step(0)[1] for _ in range(5)] == [1.0, 0.5, -0.5, -1.0, -1.0]


@pytest.mark.parametrize("mode", [*AutoresetMode])
def test_the_reward_of_an_ignored_step_is_left_alone(mode):
    venv = adv.PerturbReward(SyncVectorEnv([Counting] * 2, autoreset_mode=mode), "reward-noise:kind=bernoulli,eps=0.5")
    venv.reset(seed=0)
    for t in range(7):
        _, rewards, terminated, _, _ = venv.step(np.zeros(2, int))
        ignored = mode == AutoresetMode.NEXT_STEP and t == 5
        true = 0.0 if ignored else TRUE[t % 5 if mode != AutoresetMode.NEXT_STEP or t < 5 else t - 6]
        assert (abs(rewards - true) == (0.0 if ignored else 0.5)).all(), t
        if mode == AutoresetMode.DISABLED and terminated.any():
            venv.reset(options={"reset_mask": terminated})


@pytest.mark.parametrize("rows", [None, 2])
def test_a_recurrent_victim_beneath_advances_as_without(rows):
    rig = RIGS["recurrent"]
    shown = []
    for outer in ((), ("reward-flip",)):
        bare = rig.env() if rows is None else SyncVectorEnv([rig.env] * rows)
        env = adv.wrap(bare, Case("max-diff", rig).threat(), *outer)
        observations = [env.reset(seed=0)[0]]
        env.action_space.seed(0)
        for _ in range(3 if rows is None else 8):
            observations.append(env.step(env.action_space.sample())[0])
        shown.append(observations)
    np.testing.assert_array_equal(*shown)


@pytest.mark.parametrize("rows", [None, 3])
def test_a_total_is_all_that_an_attacker_can_pay_for(rows):
    bare = Counting() if rows is None else SyncVectorEnv([Counting] * rows, autoreset_mode=AutoresetMode.SAME_STEP)
    env, changes = adv.PerturbReward(bare, "reward-flip", total=20.0), []
    env.reset(seed=0)
    for _ in range(20):
        _, reward, terminated, _, info = env.step(0 if rows is None else np.zeros(rows, int))
        changes.append(np.abs(np.subtract(reward, info["adv_wrappers"]["0:reward-flip"]["true"])).sum())
        if rows is None and terminated:
            env.reset()
    assert sum(changes) == pytest.approx(20.0) == env.spent and changes[-1] == 0
    assert changes[0] == 3.0 * (rows or 1)
    with pytest.raises(ValueRangeError, match="total"):
        adv.PerturbReward(Counting(), "reward-flip", total=-1.0)


def test_a_spec_makes_it_again():
    env = adv.PerturbReward(gym.make("CartPole-v1"), "reward-flip:p=0.5", total=3.0)
    again = gym.make(env.spec)
    assert again.threat == env.threat and again.total == 3.0
    for one in (env, again):
        one.reset(seed=1)
    assert [env.step(t % 2)[1] for t in range(9)] == [again.step(t % 2)[1] for t in range(9)]


def test_an_evaluation_counts_the_environments_own_rewards():
    def short():
        return gym.make("CartPole-v1", max_episode_steps=15)

    def poisoned():
        return adv.PerturbReward(adv.PerturbReward(short(), "reward-flip"), "reward-clip:high=0,low=-9")

    report = adv.evaluate("zoo:cartpole-dqn", poisoned, ["pgd:eps=0.1"], episodes=3, num_envs=2)
    assert report.threats[0]["returns"] == [15.0] * 3
    assert report.threats[1]["returns"] == report.threats[1]["lengths"]
    assert report.threats[0]["threat"] == "none"
    assert any("changes rewards, by reward-flip + reward-clip:" in warning for warning in report.warnings)


def test_an_evaluation_refuses_threats_to_rewards():
    with pytest.raises(ThreatError, match="reward-flip changes rewards, which an agent that is evaluated never sees"):
        adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", ["reward-flip:p=0.1"], episodes=2)


@pytest.mark.slow
def test_a_training_learns_from_them_and_is_scored_without():
    rollouts = {"n_steps": 32, "n_epochs": 2}
    settings = {"steps": 256, "num_envs": 4, "checks": 2, "episodes": 1, "seed": 0, "settings": rollouts}
    plain = adv.train_agent("CartPole-v1", None, **settings)
    flipped = adv.train_agent("CartPole-v1", "reward-flip", **settings)
    assert flipped.threat is None and flipped.record[-1]["attacked"] is None
    assert flipped.record[-1]["in_training"] < 0 < plain.record[-1]["in_training"]
    assert 0 < flipped.record[-1]["clean"] <= 500
    weights = [one.victim.fingerprint() for one in (plain, flipped)]
    assert weights[0] != weights[1]


def test_sb3_gets_float32():
    venv = adv.PerturbReward(DummyVecEnv([Counting] * 2), "reward-flip", total=4.0)
    venv.reset()
    rewards = venv.step(np.zeros(2, int))[1]
    assert rewards.dtype == np.float32 and rewards.tolist() == [0.5, 0.5]  # 4 of the 6 that it asks for, evenly


def test_totals():
    assert checked_total(None) is None and checked_total(2) == 2.0
    with pytest.raises(ValueRangeError, match="total"):
        checked_total(float("nan"))
