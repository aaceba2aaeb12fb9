"""Rewards of adversaries: what attacks cost, by algorithms 1 and 2, and what a reward function is told."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.core.serialization import decode
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.wrappers.adversary_rewards import PerturbationCost
from tests.every_case import every_case

DQN = adv.load_victim("zoo:cartpole-dqn")


def played(reward, attacked_steps):
    """Rewards, terminated, and the attacks of an episode in which the worst action is induced at some steps."""
    env = adv.AdversaryEnv(gym.make("CartPole-v1"), DQN, "timed:worst-action", reward=reward)
    env.reset(seed=3)
    rewards, over, t = [], False, 0
    while not over:
        *_, own, terminated, truncated, _ = (None, *env.step(int(t in attacked_steps))[1:])
        rewards.append(own)
        over, t = terminated or truncated, t + 1
    return rewards


def test_the_dense_form_and_the_papers_differ_by_a_constant():
    steps = set(range(0, 12))
    dense = played(PerturbationCost(2.0), steps)
    literal = played(PerturbationCost(2.0, terminal=True, r_max=500.0), steps)
    length = len(dense)
    assert dense == [-1.0 - 2.0 * (t in steps) for t in range(length)]
    assert literal == [-2.0 * (t in steps) + (500.0 - length) * (t == length - 1) for t in range(length)]
    assert sum(literal) == sum(dense) + 500
    assert -sum(dense) == PerturbationCost(2.0).total(np.array([length]), np.array([min(12, length)]))[0]


def test_beyond_the_budget_an_attack_costs_budget_times_as_much():
    steps = set(range(6))
    rewards = played(PerturbationCost(1.0, budget=4), steps)
    assert rewards[:7] == [-2.0] * 4 + [-5.0] * 2 + [-1.0] * (len(rewards) > 6)
    total = PerturbationCost(1.0, budget=4).total(np.array([10.0, 10.0]), np.array([4, 6]))
    assert total.tolist() == [14.0, 10 + 4 + 2 * 4]
    dear = PerturbationCost(1.0, budget=4, beyond=50.0)
    assert played(dear, steps)[:6] == [-2.0] * 4 + [-51.0] * 2
    assert dear.total(np.array([10.0]), np.array([6])).tolist() == [10 + 4 + 2 * 50.0]
    assert decode(dear.to_dict()) == dear


def test_vectors_earn_row_by_row():
    vector = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.DISABLED)
    env = adv.AdversaryEnv(vector, DQN, "timed:worst-action", reward=PerturbationCost(0.5, budget=1))
    env.reset(seed=0)
    assert env.step(np.array([1, 0]))[1].tolist() == [-1.5, -1.0]
    assert env.step(np.array([1, 1]))[1].tolist() == [-1.5, -1.5]
    assert env.step(np.array([0, 1]))[1].tolist() == [-1.0, -1.5]


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize("actor", ["induce", "timed:noise"])
def test_a_reward_may_ask_which_action_was_induced(rows, actor):
    told = []

    def reward(reward, *, induced_action, attacked, **more):
        told.append((induced_action, attacked))
        return -reward

    env = gym.make("CartPole-v1")
    if rows is not None:
        env = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * rows, autoreset_mode=AutoresetMode.DISABLED)
    env = adv.AdversaryEnv(env, DQN, actor, None if actor == "induce" else adv.Linf(1e-6), reward=reward)
    obs, _ = env.reset(seed=0)
    own = DQN.act_on(np.atleast_2d(obs))
    named = 2 - own  # of induce: the other action
    env.step(named if rows else int(named[0]))
    induced, attacked = np.atleast_1d(told[0][0]), np.atleast_1d(told[0][1])
    assert induced.tolist() == (1 - own if actor == "induce" else own)[: len(induced)].tolist()
    assert attacked.all() if actor == "induce" else (attacked == (named != 0)[: len(attacked)]).all()


def test_in_json():
    for reward in (PerturbationCost(0.5, budget=3), PerturbationCost(terminal=True, r_max=500.0)):
        assert decode(json.loads(json.dumps(reward.to_dict()))) == reward


@every_case(
    ("make", "error", "match"),
    [
        (lambda: PerturbationCost(-1.0), ValueRangeError, "cost must be .* from 0 to"),
        (lambda: PerturbationCost(budget=2, beyond=-1.0), ValueRangeError, "beyond must be .* from 0 to"),
        (lambda: PerturbationCost(beyond=1.0), ThreatError, "beyond is the cost of attacks beyond a budget"),
        (lambda: PerturbationCost(budget=2.5), ValueRangeError, "budget must be an integer"),
        (lambda: PerturbationCost(budget=0), ValueRangeError, "budget must be"),
        (lambda: PerturbationCost(terminal=True), ThreatError, "terminal= and r_max= go together"),
        (lambda: PerturbationCost(r_max=1.0), ThreatError, "terminal= and r_max= go together"),
        (lambda: PerturbationCost(terminal=True, r_max=np.nan), ValueRangeError, "r_max"),
        (
            lambda: adv.AdversaryEnv(gym.make("CartPole-v1"), DQN, "induce", reward=lambda reward: 0.0),
            ValueRangeError,
            r"reward must take \(reward, \*, attacked",
        ),
    ],
)
def test_what_cannot_work(make, error, match):
    with pytest.raises(error, match=match):
        make()
