"""Noise itself; what it draws is tested with the budgets and the context."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers import Noise, threat
from adv_wrappers.core.budgets.budget import L0, Linf, Valid
from adv_wrappers.errors import ValueRangeError
from tests.core.helpers import context, randn
from tests.every_case import every_case

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


@pytest.mark.parametrize("budget", [Valid(), L0(2), L0(1), L0(0)], ids=str)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_choices_become_others(budget, kind):
    """Every entry, or as many as may change; all other values alike often; the same in numpy and in torch."""
    low, counts = torch.tensor([2.0, 0, -1, 7]).double(), (5, 2, 3, 1)
    high = low + torch.tensor(counts) - 1
    x = (low + torch.tensor([1, 1, 0, 0])).expand(6000, 4).clone()
    made = context(x, budget, choices=counts)
    made.space, made.box = (low, high), (low.expand_as(x), high.expand_as(x))
    y = Noise()(x, made)
    if kind is np.asarray and isinstance(budget, Valid):  # other budgets have no numbers of numpy
        made = context(x, budget, choices=counts)
        drawn = made.uniform().numpy()
        made.uniform, made.box = lambda: drawn, (low.expand_as(x).numpy(), high.expand_as(x).numpy())
        assert np.array_equal(Noise()(x.numpy(), made), y.numpy())
    changed = (y != x).sum(1)
    assert bool((changed == min(getattr(budget, "k", 3), 3)).all()) and bool(((y >= low) & (y <= high)).all())
    shares = [(y[:, 0] == value).double().mean().item() for value in range(2, 7)]
    if isinstance(budget, Valid):
        assert shares[1] == 0 and max(abs(share - 0.25) for i, share in enumerate(shares) if i != 1) < 0.03
        assert bool((y[:, 1] == 0).all())


@every_case("kind", ["sign", "gaussian"])
def test_choices_have_no_distance(kind):
    with pytest.raises(ValueRangeError, match=f"{kind} noise.*kind='uniform'"):
        threat("noise", kind=kind, norm="valid").check(spaces.Discrete(3), spaces.Discrete(2))
