"""The policy runner: native actions, reproducible samples, one hidden state a row."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.victims import Victim, from_module
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.evaluation.agents import balancing
from tests.every_case import every_case


@pytest.fixture
def victim():
    return balancing("q")


@pytest.fixture
def sampler():
    return balancing("logits", "sample", 1.0)


OBS = np.random.default_rng(0).normal(size=(6, 4))


class Counter(nn.Module):
    """Adds up what it sees: its action tells the sum."""

    def forward(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = state + obs[:, :1]
        return state, state


def counter() -> Victim:
    box = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    return from_module(Counter(), box, box, "mean", initial_state=lambda rows: torch.zeros(rows, 1))


def test_discrete_actions_are_int64(victim: Victim) -> None:
    action = PolicyRunner(victim, 6).act(OBS)
    assert action.dtype == np.int64 and action.shape == (6,)
    assert action.tolist() == (OBS @ [0.1, 0.3, 3.0, 1.0] > 0).astype(int).tolist()


def test_continuous_actions_have_the_dtype_of_the_space() -> None:
    action = PolicyRunner(counter(), 2).act(np.ones((2, 1), np.float32))
    assert action.dtype == np.float32 and action.shape == (2, 1)


def test_a_sample_depends_on_seed_and_step_alone(sampler: Victim) -> None:
    seeds = [3, 4, 5, 6, 7, 8]
    whole, part = PolicyRunner(sampler, 6), PolicyRunner(sampler, 2)
    whole.reset(None, seeds)
    part.reset(None, [6, 4])
    runs = []
    for _ in range(40):
        actions = whole.act(OBS * 0)
        assert part.act(OBS[:2] * 0).tolist() == [actions[3], actions[1]]
        runs.append(actions)
    drawn = np.stack(runs)
    assert 0.3 < drawn.mean() < 0.7  # the law is undecided at zero
    assert all((drawn[:, 0] != drawn[:, row]).any() for row in range(1, 6))


def test_a_reset_row_starts_again_and_the_others_go_on(sampler: Victim) -> None:
    a, b = PolicyRunner(sampler, 6), PolicyRunner(sampler, 6)
    for runner in (a, b):
        runner.reset(None, list(range(6)))
    first = [a.act(OBS * 0) for _ in range(30)]
    for _ in range(5):
        b.act(OBS * 0)
    mask = np.array([True, False, False, False, False, False])
    b.reset(mask, [0, None, None, None, None, None])
    later = np.stack([b.act(OBS * 0) for _ in range(25)])
    assert later[:, 0].tolist() == np.stack(first)[:25, 0].tolist()
    assert later[:, 1:].tolist() == np.stack(first)[5:, 1:].tolist()


def test_without_a_seed_the_next_episode_draws_anew(sampler: Victim) -> None:
    runner = PolicyRunner(sampler, 6)
    runner.reset(None, 0)
    first = np.stack([runner.act(OBS * 0) for _ in range(30)])
    runner.reset()
    assert (np.stack([runner.act(OBS * 0) for _ in range(30)]) != first).any(0).all()


def test_would_is_what_act_does_and_moves_nothing(sampler: Victim) -> None:
    runner = PolicyRunner(sampler, 6)
    rows = np.array([4, 1])
    for _ in range(10):
        some, every = runner.peek(OBS, rows), runner.peek(OBS)
        acted = runner.act(OBS)
        assert acted.tolist() == every.tolist() and acted[rows].tolist() == some.tolist()


def test_every_row_has_a_state() -> None:
    runner, obs = PolicyRunner(counter(), 2), np.array([[1.0], [10.0]], np.float32)
    assert runner.act(obs).ravel().tolist() == [1, 10]
    assert runner.act(obs).ravel().tolist() == [2, 20]
    assert runner.peek(obs, np.array([1])).ravel().tolist() == [30]
    runner.reset(np.array([True, False]))
    assert runner.act(obs).ravel().tolist() == [1, 30]


@every_case("bad", [np.nan, np.inf])
def test_observations_must_be_finite(victim: Victim, bad: float) -> None:
    obs = OBS.copy()
    obs[2, 1] = bad
    with pytest.raises(ValueRangeError, match="not finite"):
        PolicyRunner(victim, 6).act(obs)
