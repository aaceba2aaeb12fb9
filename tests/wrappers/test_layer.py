"""What every wrapper shares: budgets that change, pickling, streams of draws, and the state of recurrent victims."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError
from tests.rigs import CARTPOLE, RIGS, ReplayEnv, Start, same_bytes


def _still(rig="mean", steps=200):
    return ReplayEnv([[RIGS[rig].env().recordings[0][0]] * (steps + 1)], RIGS[rig].space, RIGS[rig].actions)


def test_set_budget():
    env = adv.wrap(_still(), "noise:eps=1")
    first = env.reset(seed=0)[0]
    env.set_budget(adv.Linf(0.5))
    true = _still().reset(seed=0)[0]
    np.testing.assert_allclose(env.reset(seed=0)[0] - true, (first - true) / 2, atol=1e-12)
    with pytest.raises(BudgetError, match="scale has 2 numbers for a space of 6"):
        env.set_budget(adv.Linf(1.0, scale=(1.0, 2.0)))
    assert env.threat.within == adv.Linf(0.5)


def test_set_budget_shows_through_an_outer_gate():
    env = adv.ProbabilisticTiming(adv.wrap(gym.make("CartPole-v1"), "noise:eps=1"), 0.5)
    assert '"eps": 1.0' in env.spec.to_json()
    env.env.set_budget(adv.Linf(0.5))
    assert '"eps": 0.5' in env.spec.to_json()


@pytest.mark.parametrize("rig", ["q", "recurrent", "mean", "image", "dict"])
def test_pickle_in_the_middle_of_an_episode(rig):
    """A copy goes on as the original does, state of a recurrent victim included."""
    rig = RIGS[rig]
    env = adv.wrap(
        rig.env(),
        adv.threat(
            "max-diff", rig.victim(torch.float64), eps=max(rig.eps, 1.0 if rig.name == "image" else 0), at=rig.at
        ),
    )
    env = adv.ProbabilisticTiming(adv.wrap(env, adv.threat("action-noise", p=0.5)), 0.8)
    env.reset(seed=1)
    env.step(rig.act(0, 0, 0))
    again, deep = pickle.loads(pickle.dumps(env)), copy.deepcopy(env)
    for t in range(1, 3):
        expected = env.step(rig.act(0, 0, t))
        for other in (again, deep):
            got = other.step(rig.act(0, 0, t))
            same_bytes(got[0], expected[0], f"step {t}")
            assert got[1:4] == expected[1:4]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pickle_of_a_vector():
    venv = adv.wrap(gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point"), "noise:eps=0.1")
    venv.reset(seed=1)
    again = pickle.loads(pickle.dumps(venv))
    same_bytes(again.step(np.array([0, 1]))[0], venv.step(np.array([0, 1]))[0], "step 1")


def _correlation(a, b):
    return abs(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


def test_layers_draw_apart_within_a_stack():
    env = adv.wrap(_still(), "noise:eps=1", "noise:eps=1", keep_true=True)
    true = _still().reset(seed=0)[0]
    info, moves = env.reset(seed=0)[1], []
    obs = None
    for _ in range(100):
        obs, *_, info = env.step(np.zeros(3, np.float32))
        middle = info["adv_wrappers"]["1:noise"]["true"]
        moves.append((middle - true, obs - middle))
    assert _correlation([m[0] for m in moves], [m[1] for m in moves]) < 0.15


def test_layers_draw_apart_across_the_boundary_of_a_vector():
    venv = adv.wrap(SyncVectorEnv([lambda: adv.wrap(_still(), "noise:eps=1")] * 2), "noise:eps=1", keep_true=True)
    true = _still().reset(seed=0)[0]
    venv.reset(seed=0)
    moves = []
    for _ in range(100):
        obs, *_, info = venv.step(np.zeros((2, 3), np.float32))
        middle = info["adv_wrappers"]["1:noise"]["true"]
        moves.append((middle - true, obs - middle))
    assert _correlation([m[0] for m in moves], [m[1] for m in moves]) < 0.15
    assert _correlation([m[0][0] for m in moves], [m[0][1] for m in moves]) < 0.15  # and two rows


class Counting(torch.nn.Module):
    """Logits from the observation and the sum of everything seen so far: the state is that sum, and a count."""

    def forward(self, obs, state):
        total = state[0] + obs
        return total[:, :3], (total, state[1] + 1)


class Counts:
    """Initial state of :class:`Counting`."""

    def __call__(self, rows):
        return torch.zeros(rows, 4, dtype=torch.float64), torch.zeros(rows, 1, dtype=torch.float64)


def _counting():
    return adv.from_module(
        Counting(), CARTPOLE, gym.spaces.Discrete(3), "logits", initial_state=Counts(), dtype=torch.float64
    )


def _state(env, victim):
    return env.engine.session.state(victim)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_state_follows_the_attacked_observations_once_a_step(layers):
    victim, rig = _counting(), RIGS["q"]
    env = adv.wrap(rig.env(), *[adv.threat("max-diff", victim, eps=0.1)] * layers, adv.threat("worst-action", victim))
    handed = [env.reset(seed=1)[0]]
    assert _state(env, victim)[1].item() == 0
    for t in range(4):
        handed.append(env.step(0)[0])
        total, count = _state(env, victim)
        assert count.item() == t + 1, "advanced more or less than once"
        np.testing.assert_allclose(total[0].numpy(), np.sum(handed[:-1], 0, dtype=np.float64), rtol=1e-6)
    assert not np.array_equal(handed[0], rig.env().reset(seed=1)[0])
    env.reset()
    assert not _state(env, victim)[1].any()


def test_attacks_see_the_state_but_do_not_advance_it():
    """An attack of many evaluations leaves the state where it was; its result depends on that state."""
    rig, victim = RIGS["recurrent"], RIGS["recurrent"].victim(torch.float64)
    env = adv.wrap(rig.env(), adv.threat("pgd", victim, eps=0.2))
    env.reset(seed=1)
    before = [leaf.clone() for leaf in _state(env, victim)]
    assert all(not leaf.any() for leaf in before)
    env.step(0)
    assert all(leaf.any() for leaf in _state(env, victim))
    assert all(torch.equal(a, b) for a, b in zip(Start(torch.float64)(1), before, strict=True))
