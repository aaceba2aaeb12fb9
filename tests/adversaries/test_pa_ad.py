"""PA-AD's forms: which is taken when none is given, and ranges of actions in which there is no target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from tests.core.helpers import context, randn

SEEN = spaces.Box(-1, 1, (3,), np.float64)
STEERS = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])


def acting_in(high: float) -> adv.Victim:
    torch.manual_seed(0)
    return adv.from_module(torch.nn.Linear(3, 2).double(), SEEN, spaces.Box(-high, high, (2,), np.float64), "mean")


def test_a_range_without_bounds_has_directions_only():
    assert adv.PAAD(acting_in(1.0)).manner == "target" and adv.PAAD(acting_in(np.inf)).manner == "direction"
    for actor in (adv.PAAD, adv.ActionPAAD):
        with pytest.raises(adv.ValueRangeError, match="form='target' needs bounded actions"):
            actor(acting_in(np.inf), form="target")


@pytest.mark.parametrize("high", [1.0, np.inf])
def test_every_steer_moves_the_action_its_own_way(high):
    victim, x = acting_in(high), randn(4, 3, seed=1)
    y = adv.PAAD(victim)(x, STEERS, context(x, adv.Linf(0.1)))
    moved = victim.params(y) - victim.params(x)
    assert ((moved * STEERS).sum(1) > 0).all()
