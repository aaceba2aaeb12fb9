"""The flip: from the other end, through the middle, and not where the mask forbids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers import ActionFlip
from adv_wrappers.core.budgets.budget import L0, Linf, Valid
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.threat import ThreatModel
from tests.core.helpers import box


def flip(space, actions, budget=None, mask=None):
    made = Engine(ThreatModel("action", ActionFlip(), budget or Valid()), Wrapped(box(2), space, len(actions)))
    return made.apply(np.asarray(actions, space.dtype), True, mask=mask).tolist()


@pytest.mark.parametrize("start", [0, -3, 5])
def test_discrete_actions_are_numbered_from_the_other_end(start):
    numbers = [start + i for i in range(4)]
    assert flip(spaces.Discrete(4, start=start), numbers) == numbers[::-1]


def test_several_discrete_actions():
    space = spaces.MultiDiscrete([2, 4], start=[0, 5])
    assert flip(space, [[0, 5], [1, 6]]) == [[1, 8], [0, 7]]
    assert [sum(a != b for a, b in zip([0, 5], row, strict=True)) for row in flip(space, [[0, 5]], L0(1))] == [1]
    assert flip(spaces.MultiBinary(3), [[0, 1, 1]]) == [[1, 0, 0]]


def test_continuous_actions():
    space = spaces.Box(np.array([-1.0, 0.0, -np.inf]), np.array([1.0, 4.0, np.inf]), dtype=np.float64)
    assert flip(space, [[0.25, 1.0, 7.0]]) == [[-0.25, 3.0, -7.0]]
    assert np.allclose(flip(space, [[0.25, 1.0, 7.0]], Linf(0.5)), [[-0.25, 1.5, 6.5]])


def test_masks():
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    assert flip(spaces.Discrete(4, start=2), [2, 2], mask=mask) == [2, 5]
    assert flip(spaces.Discrete(4), [1, 3], mask=mask.to(torch.int8)) == [1, 0]
