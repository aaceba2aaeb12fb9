"""Noise itself; what it draws is tested with the budgets and the context."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import Noise
from adv_wrappers.core.budgets import Linf
from adv_wrappers.errors import ValueRangeError
from tests.core.helpers import context, randn

X = randn(500, 3)


@pytest.mark.parametrize("kind", ["uniform", "sign", "gaussian"])
def test_kinds(kind):
    y = Noise(kind)(X, context(X, Linf(0.5)))
    delta = (y - X).abs()
    assert torch.equal(y, context(X, Linf(0.5)).noise(kind)) and delta.max() <= 0.5 + 1e-12
    share = (delta > 0.4999).double().mean()  # at the edge of the budget
    assert {"uniform": share < 0.02, "sign": share == 1, "gaussian": 0.25 < share < 0.39}[kind]


def test_kinds_differ():
    assert len({Noise(kind)(X, context(X, Linf(0.5))).sum().item() for kind in ("uniform", "sign", "gaussian")}) == 3


def test_unknown_kinds():
    with pytest.raises(ValueRangeError, match="laplace"):
        Noise("laplace")
