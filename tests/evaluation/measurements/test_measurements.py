"""What is counted of single observations: gradients that are zero, and answers that differ between two calls."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.measurements import measurements as run_monitor
from adv_wrappers.victims import Victim, from_module
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.smoothed import Smoothed
from tests.evaluation.agents import balancing
from tests.evaluation.masked import LAW, noisy, saturated
from tests.every_case import every_case


@pytest.mark.parametrize("text", ["noise:eps=0.1", "pgd:eps=0.1"])
def test_gradients_are_looked_at_where_an_attack_has_an_objective(victim: Victim, text: str) -> None:
    layer = adv.wrap(gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"), text, victim=victim)
    obs, _ = layer.reset(seed=0)
    assert run_monitor.count_zero_gradients(layer.engine, obs, np.arange(2)) == ((0, 0) if "noise" in text else (2, 0))


class Cusp(nn.Module):
    """The same law on a smooth path, beside a root at zero: every gradient is NaN, every answer is finite."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        lead = (obs @ torch.tensor(LAW, dtype=obs.dtype))[:, None]
        return torch.cat([-lead, lead], 1) + (0 * obs[:, :1]).sqrt()


def test_a_gradient_that_is_not_finite_is_none() -> None:
    env = gym.make("CartPole-v1")
    cusp = from_module(Cusp(), env.observation_space, env.action_space, "q", ref="cusp")
    attacked = adv.wrap(gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"), "pgd:eps=0.1", victim=cusp)
    obs = np.full((3, 4), 0.01, np.float32)
    assert run_monitor.count_zero_gradients(attacked.engine, obs, np.arange(3)) == (3, 3)
    with pytest.raises(ThreatError, match="not finite"):
        attacked.engine.apply(obs, True)


@pytest.mark.parametrize(("make", "zero"), [(saturated, 3), (lambda: balancing("q"), 0)])
def test_zero_gradients_of_a_saturated_agent(make, zero: int) -> None:
    attacked = adv.wrap(gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"), "max-diff:eps=0.1", victim=make())
    obs = np.full((3, 4), 0.01, np.float32)
    assert run_monitor.count_zero_gradients(attacked.engine, obs, np.arange(3)) == (3, zero)


@every_case(
    ("victim", "differ"),
    [
        (noisy(noise=0.01), True), (noisy(dropout=0.5), True), (noisy(), False), (balancing("q"), False),
        (balancing("logits", "sample"), False), (Smoothed(balancing("q"), 0.1), False),
    ],
)  # fmt: skip
def test_answers_are_compared_with_a_second_one(victim: Victim, differ: bool) -> None:
    obs = np.random.default_rng(0).uniform(-1, 1, (6, 4)).astype(np.float32)
    asked, unequal = run_monitor.count_unequal_answers(PolicyRunner(victim, 6), obs, np.arange(5))
    assert asked == 5 and (unequal > 0) is differ


CALLS = itertools.count()  # a count of its own would be a hidden state, which is carried along


class Units(nn.Module):
    """Logits of which one is ruled out; every second answer is some units in the last place larger."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        more = 1 + (next(CALLS) % 2) * self.units * torch.finfo(obs.dtype).eps
        return torch.cat([obs[:, :2] * more, torch.full_like(obs[:, :1], -torch.inf)], 1)


@pytest.mark.parametrize(("units", "unequal"), [(8, 0), (1000, 2)])
def test_differences_of_rounding_are_none(units: int, unequal: int) -> None:
    box = spaces.Box(-1, 1, (4,), np.float32)
    victim = from_module(Units(units), box, spaces.Discrete(3), "logits", live=True)
    obs = np.full((2, 4), 0.5, np.float32)
    assert run_monitor.count_unequal_answers(PolicyRunner(victim, 2), obs, np.arange(2)) == (2, unequal)


def test_answers_that_are_none_are_refused() -> None:
    runner, obs = PolicyRunner(balancing("q"), 2), np.zeros((2, 4), np.float32)
    with pytest.raises(ValueRangeError, match="not finite"):
        run_monitor.count_unequal_answers(runner, obs * np.nan, np.arange(2))
    box = spaces.Box(-1, 1, (4,), np.float32)
    broken = from_module(lambda x: x[:, :2] * torch.nan, box, spaces.Discrete(2), "q")
    with pytest.raises(VictimError, match="not finite"):
        run_monitor.count_unequal_answers(PolicyRunner(broken, 2), obs, np.arange(2))


def test_choices_that_stay_what_they_are_were_not_rounded() -> None:
    lake = gym.make("FrozenLake-v1")
    blind = from_module(
        nn.Embedding.from_pretrained(torch.zeros(16, 4)), lake.observation_space, lake.action_space, "q"
    )
    report = adv.evaluate(blind, "FrozenLake-v1", ["discrete-search"], episodes=2, num_envs=2)
    assert report.warnings[0].endswith("attacked observations came out unchanged")
