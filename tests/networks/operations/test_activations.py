"""Lines of activation functions: below and above them within the interval."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adv_wrappers.networks.operations.activations import Relaxed
from adv_wrappers.networks.operations.lookup import operation_of
from adv_wrappers.networks.policy_layers import Clip
from tests.core.helpers import randn

CURVES = {
    "relu": nn.ReLU(), "leaky": nn.LeakyReLU(0.2), "straight": nn.LeakyReLU(1.0), "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(), "hardtanh": nn.Hardtanh(-0.4, 1.3), "relu6": nn.ReLU6(), "low": Clip(-0.5, None),
    "high": Clip(None, 0.5), "both": Clip(-0.5, 0.5), "point": nn.Hardtanh(0.1, 0.1001), "gelu": nn.GELU(),
    "gelu, tanh": nn.GELU("tanh"), "silu": nn.SiLU(), "elu": nn.ELU(), "flat elu": nn.ELU(0.3),
}  # fmt: skip


def intervals(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Intervals of every size and place, some of them points."""
    centre = torch.cat([randn(1000), 6 * randn(400, seed=1), torch.zeros(50)])
    radius = randn(1450, seed=2).abs() * 10 ** (6 * torch.rand(1450, dtype=torch.float64) - 5)
    radius[::7] = 0
    low, high = (centre - radius).to(dtype), (centre + radius).to(dtype)
    far = torch.tensor([[-1e4, 1e4], [-40.0, 0.1], [-0.1, 40.0], [-31.999, 5.0], [-1e-30, 1e-30], [30.0, 50.0]])
    return torch.cat([low, far[:, 0].to(dtype)]), torch.cat([high, far[:, 1].to(dtype)])


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_function_lies_between_its_lines(name, dtype):
    torch.manual_seed(0)
    curve, (low, high) = operation_of(CURVES[name]), intervals(dtype)
    share = torch.linspace(0, 1, 101, dtype=dtype)[:, None]
    x = torch.minimum(low + share * (high - low), high)
    rounding = 4 * torch.finfo(dtype).eps * (1 + low.abs() + high.abs())
    lower_slope, lower_offset, upper_slope, upper_offset = curve.lines(low, high)
    assert (lower_slope * x + lower_offset <= curve(x) + rounding).all()
    assert (upper_slope * x + upper_offset >= curve(x) - rounding).all()
    exact = ~curve.loose(low, high)
    gap = (upper_slope - lower_slope) * x + upper_offset - lower_offset
    assert (gap[:, exact] <= 2 * rounding[exact]).all()


@pytest.mark.parametrize("name", CURVES)
def test_lines_touch_the_function(name):
    curve, (low, high) = operation_of(CURVES[name]), intervals(torch.float64)
    near = (low > -5) & (high < 5)  # beyond, an S is flat
    low, high = low[near], high[near]
    share = torch.linspace(0, 1, 501, dtype=torch.float64)[:, None]
    x = low + share * (high - low)
    found = curve.lines(low, high)
    assert ((curve(x) - found[0] * x - found[1]).amin(0) < 2e-2 * (high - low) + 1e-9).all()
    assert ((found[2] * x + found[3] - curve(x)).amin(0) < 2e-2 * (high - low) + 1e-9).all()


def test_lines_of_narrow_intervals_are_narrow():
    low = torch.linspace(-3, 3, 101, dtype=torch.float64)
    for curve in map(operation_of, (nn.Tanh(), nn.Sigmoid())):
        high = low + 1e-3
        found = curve.lines(low, high)
        assert ((found[2] - found[0]) * high + found[3] - found[1]).max() < 1e-6


def test_gradients_go_through_intervals():
    low = randn(40).requires_grad_()
    for curve in map(
        operation_of, (nn.ReLU(), nn.Hardtanh(), nn.ELU())
    ):  # of an S the first tangent comes from a table
        assert torch.autograd.gradcheck(lambda low, c=curve: c.lines(low, low + 0.9), [low])


def test_which_layers_have_lines():
    def has_lines(layer):
        operation = operation_of(layer)
        return isinstance(operation, Relaxed) and operation.has_lines()

    assert all(map(has_lines, CURVES.values()))
    assert not any(map(has_lines, (nn.LeakyReLU(2.0), nn.LeakyReLU(-0.1), nn.Softplus(), nn.ELU(1.7), nn.Linear(1, 1))))
