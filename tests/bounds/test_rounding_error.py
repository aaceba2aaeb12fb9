"""Estimates of rounding errors: what float32 is off by, within a small factor, for nets of every kind of layer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from adv_wrappers.bounds.rounding_error import rounding
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.networks.policy_layers import AppendLogStd, Normalize, QuantileMean, TwoLogits
from tests.core.helpers import linear, randn

EPS = torch.finfo(torch.float32).eps


def nets():
    """Float32 networks and a row of what they take."""
    torch.manual_seed(0)
    wide = nn.Linear(4, 64)
    wide.bias.data.add_(1000.0)
    apart = nn.Linear(64, 3)  # large numbers cancel
    apart.weight.data.copy_(torch.cat([torch.ones(3, 32), -torch.ones(3, 32)], 1) / 64)
    yield (
        nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6), QuantileMean(2)),
        (4,),
    )
    yield nn.Sequential(wide, nn.ReLU(), apart, nn.Sigmoid(), nn.Linear(3, 3, bias=False), TwoLogits()), (4,)
    tail = nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3), nn.Tanh(), AppendLogStd(torch.randn(3))
    yield nn.Sequential(Normalize(torch.randn(4) * 100, torch.rand(4) + 0.5, 10.0), *tail), (4,)
    last = nn.AvgPool2d(2), nn.Conv2d(8, 4, 3), nn.Softplus(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    yield nn.Sequential(nn.Conv2d(2, 8, 3, 1, 1), nn.ReLU(), *last), (2, 12, 12)


@pytest.mark.parametrize("number", range(4))
@torch.no_grad()
def test_errors_are_of_the_size_that_is_estimated(number):
    net, shape = [*nets()][number]
    exact, x = copy.deepcopy(net).double(), 20 * randn(500, *shape, dtype=torch.float32)
    errors = net(x).double() - exact(x.double())
    spec = randn(4, errors.shape[1])
    low, high = x.double() - 0.01, x.double() + 0.01
    ratio = (errors @ spec.T).abs() / rounding(exact, low, high, spec, EPS)
    assert ratio.max() < 4 and ratio.max() > 0.01
    assert (rounding(exact, low - 1, high + 1, spec, EPS) >= rounding(exact, low, high, spec, EPS)).all()


def test_a_specification_that_does_not_fit():
    x = randn(1, 2)
    with pytest.raises(ValueRangeError, match="each of the 3 outputs, got 2"):
        rounding(linear(randn(3, 2)), x, x, randn(1, 2), EPS)
