"""Layer normalisation: sound, as tight as its elements allow, and lines that touch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adv_wrappers.bounds import crown, interval
from adv_wrappers.networks.operations.layer_norm import Centred, LayerNorm, Standardized
from tests.bounds.networks import boxes_of, points_of
from tests.core.helpers import randn
from tests.every_case import every_case

LAYERS = {
    "plain": (nn.LayerNorm(5), (5,)), "without weights": (nn.LayerNorm(5, elementwise_affine=False), (5,)),
    "eps": (nn.LayerNorm(5, eps=1.0, bias=False), (5,)), "one": (nn.LayerNorm(1), (1,)),
    "no eps": (nn.LayerNorm(5, eps=0.0), (5,)), "two axes": (nn.LayerNorm([3, 4]), (2, 3, 4)),
}  # fmt: skip


def layer_of(name: str) -> tuple[nn.LayerNorm, tuple[int, ...]]:
    """A float64 layer with weights of any sign."""
    layer, shape = LAYERS[name]
    layer = layer.double().requires_grad_(False)
    for i, weight in enumerate(layer.parameters()):
        weight.copy_(randn(*weight.shape, seed=i))
    return layer, shape


@every_case("name", LAYERS)
def test_the_parts_are_the_layer(name):
    layer, shape = layer_of(name)
    x = expected = randn(20, *shape)
    for part in LayerNorm(layer).parts():
        x = part(x)
    torch.testing.assert_close(x, layer(expected))


@pytest.mark.parametrize("name", LAYERS)
def test_no_point_lies_outside(name):
    layer, shape = layer_of(name)
    low, high = boxes_of(shape, 0, 300)
    values = layer(points_of(low, high, 400))
    least, most = interval(layer, low, high)
    assert (values >= least - 1e-9).all() and (values <= most + 1e-9).all()
    centre = interval(layer, low[:1], low[:1])
    torch.testing.assert_close(centre[0], layer(low[:1]))
    torch.testing.assert_close(centre[1], layer(low[:1]))


def test_the_box_of_centred_elements_is_reached():
    layer, (low, high) = Centred(1), boxes_of((6,), 0, 50)
    least, most = layer.interval(low, high)
    for i in range(6):
        corner = torch.where(torch.arange(6) == i, high, low)
        torch.testing.assert_close(layer(corner)[:, i], most[:, i])
        corner = torch.where(torch.arange(6) == i, low, high)
        torch.testing.assert_close(layer(corner)[:, i], least[:, i])


def test_tighter_than_a_quotient_of_boxes_and_never_beyond_the_root():
    layer, (low, high) = nn.LayerNorm(6, elementwise_affine=False), boxes_of((6,), 1, 400)
    least, most = interval(layer, low, high)
    z_low, z_high = Centred(1).interval(low, high)
    squares = torch.maximum(z_low, -z_high).clamp(min=0).square(), torch.maximum(z_high, -z_low).square()
    divisors = [(each.mean(-1, True) + layer.eps).sqrt() for each in squares]
    quotients = torch.stack([z / divisor for z in (z_low, z_high) for divisor in divisors])
    widths, quotient = most - least, quotients.amax(0) - quotients.amin(0)
    assert (widths <= quotient + 1e-9).all() and widths.mean() < 0.2 * quotient.mean()
    assert widths.max() <= 2 * 5**0.5 + 1e-12


@pytest.mark.parametrize(("dtype", "eps"), [(torch.float64, 1e-5), (torch.float64, 0.0), (torch.float32, 1.0)])
def test_lines_hold_for_all_that_the_others_may_be(dtype, eps):
    layer, n = Standardized(1, eps), 5
    low, high = Centred(1).interval(*boxes_of((n,), 2, 1000))
    low, high = low.to(dtype), high.to(dtype)
    lower_slope, lower_offset, upper_slope, upper_offset = layer.lines(low, high)
    z = points_of(low, high, 200)  # whether they sum to zero or not
    y = layer(z)
    slack = 100 * torch.finfo(dtype).eps * (1 + low.abs() + high.abs())
    assert (lower_slope * z + lower_offset <= y + slack).all() and (upper_slope * z + upper_offset >= y - slack).all()
    assert (lower_slope >= 0).all() and (upper_slope >= 0).all()


@pytest.mark.parametrize(("axes", "shape"), [(1, (5,)), (2, (3, 4)), (2, (3, 2, 4))])
def test_the_variance_lies_above_its_tangent_by_no_more_than_is_said(axes, shape):
    layer, (low, high) = Standardized(axes, 1e-5), Centred(axes).interval(*boxes_of(shape, 3, 200))
    rows, offset, addition = layer.tangent(low, high)
    z = points_of(low, high, 200)
    variance = z.square().mean(tuple(range(-axes, 0))).view(200, 200, -1)
    tangent = (rows * z[:, :, None]).flatten(3).sum(-1) + offset
    assert variance.shape == tangent.shape and (variance >= tangent - 1e-9).all()
    assert (variance <= tangent + addition + 1e-9).all()


def test_lines_and_boxes_hold_for_all_points_of_that_variance():
    layer, box = Standardized(1, 1e-5), boxes_of((6,), 4, 300)
    z, (low, high) = Centred(1)(points_of(*box, 300)), Centred(1).interval(*box)
    squares = z.square().mean(-1, True)
    variance = squares.quantile(0.25, 0), squares.quantile(0.75, 0)
    inside = ((squares >= variance[0]) & (squares <= variance[1])).expand_as(z)
    y, (least, most) = layer(z), layer.interval(low, high, variance)
    slope, offset, upper_slope, upper_offset = layer.lines(low, high, variance)
    for under in (least, slope * z + offset):
        assert (y >= under - 1e-9)[inside].all()
    for over in (most, upper_slope * z + upper_offset):
        assert (y <= over + 1e-9)[inside].all()
    wide = layer.interval(low, high)
    assert (least >= wide[0] - 1e-12).all() and (most <= wide[1] + 1e-12).all()
    assert (most - least).mean() < 0.95 * (wide[1] - wide[0]).mean()


def test_linear_bounds_see_that_elements_move_together():
    """Many elements of few inputs: boxes of elements say little of their variance."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), nn.LayerNorm(64), nn.Linear(64, 3)).double().requires_grad_(False)
    x = randn(20, 4)
    low, high = x - 0.05, x + 0.05
    values = net(points_of(low, high, 2000).flatten(0, 1)).view(2000, 20, 3)
    reached = (values.amax(0) - values.amin(0)).mean()
    least, most = crown(net, low, high)
    assert (values >= least - 1e-9).all() and (values <= most + 1e-9).all()
    widths = [(most - least).mean() for least, most in (crown(net, low, high), interval(net, low, high))]
    assert widths[0] < 5 * reached < widths[1]
