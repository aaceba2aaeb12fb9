"""Random actions of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers import ActionNoise
from adv_wrappers.core.budgets.budget import L0, Linf, Valid
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import BudgetError, ValueRangeError
from tests.core.helpers import box

ROWS = 4000


def noisy(space, actions, kind="uniform", budget=None, mask=None, seed=0):
    made = Engine(ThreatModel("action", ActionNoise(kind), budget or Valid()), Wrapped(box(2), space, len(actions)))
    made.begin_episode(seed)
    return made.apply(np.asarray(actions, space.dtype), True, mask=mask)


def evenly(values, expected) -> None:
    found, counts = np.unique(values, return_counts=True)
    share = 1 / len(expected)
    assert found.tolist() == list(expected)
    assert np.abs(counts - ROWS * share).max() < 5 * (ROWS * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("start", [0, -3, 5])
def test_discrete_actions_are_even(start):
    evenly(noisy(spaces.Discrete(4, start=start), np.full(ROWS, start)), range(start, start + 4))


@pytest.mark.parametrize("start", [0, -3, 5])
def test_masks_are_respected_and_the_rest_is_even(start):
    space = spaces.Discrete(5, start=start)
    mask = torch.tensor([[False, True, False, True, True]]).expand(ROWS, 5)
    evenly(noisy(space, np.full(ROWS, start + 1), mask=mask), [start + 1, start + 3, start + 4])
    one = torch.eye(5, dtype=torch.int8)
    assert noisy(space, np.full(5, start), mask=one).tolist() == list(range(start, start + 5))


def test_several_discrete_actions():
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    y = noisy(space, np.tile([0, 5], (ROWS, 1)))
    evenly(y[:, 0], range(2))
    evenly(y[:, 1], range(5, 8))
    few = noisy(space, np.tile([0, 5], (ROWS, 1)), budget=L0(1))
    assert ((few != [0, 5]).sum(1) <= 1).all() and (few != [0, 5]).any(0).all()
    evenly(noisy(spaces.MultiBinary(2), np.zeros((ROWS, 2)))[:, 1], range(2))


@pytest.mark.parametrize("kind", ["uniform", "bernoulli", "gaussian"])
def test_continuous_actions(kind):
    space = spaces.Box(-1, 1, (1,), np.float64)
    delta = noisy(space, np.zeros((ROWS, 1)), kind, Linf(0.5))[:, 0]
    share = np.mean(np.abs(delta) > 0.4999)
    assert np.abs(delta).max() <= 0.5 and abs(delta.mean()) < 0.03
    assert {"uniform": share < 0.01, "bernoulli": share == 1, "gaussian": 0.27 < share < 0.36}[kind]
    whole = noisy(space, np.zeros((ROWS, 1)), kind)[:, 0]  # half the action space is one radius
    assert np.abs(whole).max() <= 1 and np.abs(whole).mean() > 1.5 * np.abs(delta).mean()


def test_what_is_not_defined():
    for kind in ("bernoulli", "gaussian"):
        with pytest.raises(ValueRangeError, match="discrete"):
            noisy(spaces.Discrete(3), [0], kind)
    with pytest.raises(ValueRangeError, match="sign"):
        ActionNoise("sign")
    with pytest.raises(BudgetError, match="unbounded"):
        noisy(box(2), np.zeros((1, 2)))
    with pytest.raises(BudgetError, match="no distance"):
        noisy(spaces.Discrete(3), [0], budget=Linf(1))
