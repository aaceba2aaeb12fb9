"""CROWN: sound on thousands of boxes, at least as tight as intervals, exact where nothing bends, near the truth."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from adv_wrappers.bounds import crown, interval
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.operations.pooling import MaxPool
from adv_wrappers.networks.policy_layers import ActionValue
from tests.bounds.networks import CURVES, boxes_of, curve_net
from tests.core.helpers import linear, randn

ROUNDING = 1e-9
HOW = [("interval",), ("crown",)]


def attacked(net, low, high, steps=3):
    """Points ``[2 M, B, *S]`` where sign steps along gradients have taken every output up and down, from corners on."""
    count = net(low).shape[1]
    signs = torch.cat([torch.eye(count), -torch.eye(count)]).double()
    x = low + (high - low) * torch.rand(len(signs), *low.shape, dtype=torch.float64).round()
    for i in range(steps):
        x.requires_grad_()
        loss = (net(x.flatten(0, 1)).unflatten(0, x.shape[:2]) * signs[:, None]).sum()
        (grad,) = torch.autograd.grad(loss, x)
        x = (x.detach() + (high - low) * grad.sign() / 2 ** (i + 1)).clamp(low, high)
    return x.detach()


@pytest.mark.slow
def test_no_point_of_ten_thousand_boxes_lies_outside():
    """Random, corner and attacked points, for random nets of every kind; every way of bounding takes its share."""
    kinds, pairs = list(itertools.product(["plain", "heads", "squashed", "picture"], CURVES)), 0
    for seed in range(126):
        net, shape = curve_net(*kinds[seed % len(kinds)], seed)
        low, high = boxes_of(shape, seed, 80)
        share = torch.rand(30, *low.shape, dtype=torch.float64)
        share[:15] = share[:15].round()
        points = torch.cat([low + share * (high - low), attacked(net, low, high)])
        values = net(points.flatten(0, 1)).unflatten(0, points.shape[:2])
        rows = None
        if seed % 3:  # combinations of outputs: the same for every box, or other ones
            rows = randn(*([80] if seed % 2 else []), 2, values.shape[-1], seed=seed)
            values = (rows @ values[..., None]).squeeze(-1)
        how = HOW[seed % 2]
        least, most = crown(net, low, high, rows, *how)
        wide = interval(net, low, high, rows)
        assert (values >= least - ROUNDING).all() and (values <= most + ROUNDING).all(), (seed, how)
        assert (least >= wide[0] - ROUNDING).all() and (most <= wide[1] + ROUNDING).all(), (seed, how)
        assert (least <= most).all()
        pairs += len(low)
    assert pairs >= 10_000


@pytest.mark.parametrize("intermediate", ["interval", "crown"])
def test_affine_where_nothing_bends(intermediate):
    """Where no neuron may be on either side of its bend, the net is affine, and bounds are exact."""
    net, x = curve_net("plain", "relu", 1)[0], randn(6, 3)
    low, high = x - 1e-6, x + 1e-6
    for i in (1, 3):
        least, most = interval(net[:i], low, high)
        assert ((least > 0) | (most < 0)).all()
    slope = torch.func.vmap(torch.func.jacrev(net))(x)
    radius = slope.abs().sum(-1) * 1e-6
    least, most = crown(net, low, high, intermediate=intermediate)
    torch.testing.assert_close(least, net(x) - radius, rtol=0, atol=1e-12)
    torch.testing.assert_close(most, net(x) + radius, rtol=0, atol=1e-12)


def extremes(first: nn.Linear, last: nn.Linear, low: torch.Tensor, high: torch.Tensor):
    """Least and most of ``last(relu(first(x)))`` over a box in the plane, exactly.

    The net is affine between the lines where neurons bend, so that its extremes lie where two of them, or one and a
    side of the box, cross, or in a corner.
    """
    eye = torch.eye(2, dtype=torch.float64)
    normals = torch.cat([first.weight, eye, eye])
    offsets = torch.cat([first.bias, -low, -high])
    points = []
    for i, j in itertools.combinations(range(len(normals)), 2):
        pair = normals[[i, j]]
        if pair.det().abs() > 1e-9:
            points.append(torch.linalg.solve(pair, -offsets[[i, j]]))
    points = torch.stack(points)
    inside = ((points >= low - 1e-9) & (points <= high + 1e-9)).all(-1)
    values = last(first(points[inside]).relu())
    return values.amin(0), values.amax(0)


def test_tiny_nets_against_enumeration():
    gaps = torch.zeros(2, dtype=torch.float64)
    for seed in range(5):
        first, last = linear(randn(4, 2, seed=seed), randn(4, seed=seed + 1)), linear(randn(2, 4, seed=seed + 2))
        net = nn.Sequential(first, nn.ReLU(), last)
        low = randn(2, seed=seed + 3)
        high = low + randn(2, seed=seed + 4).abs()
        least, most = extremes(first, last, low, high)
        found = [way(net, low[None], high[None]) for way in (interval, crown)]
        for i, (under, over) in enumerate(found):
            assert (under[0] <= least + ROUNDING).all() and (over[0] >= most - ROUNDING).all()
            gaps[i] += (over[0] - most + least - under[0]).sum().detach()
    assert gaps[1] < 0.5 * gaps[0]


@pytest.mark.parametrize("curve", ["relu", "clamp"])
def test_more_work_makes_tighter_bounds(curve):
    net, shape = curve_net("plain", curve, 3)
    low, high = boxes_of(shape, 3, 50)
    spec = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    plain, full = (crown(net, low, high, spec, how) for how in ("interval", "crown"))
    widths = [(most - least).mean() for least, most in (interval(net, low, high, spec), plain, full)]
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.75 * widths[0]


def test_few_rows_at_once_give_the_same(monkeypatch):
    net, shape = curve_net("picture", "relu", 0)
    low, high = boxes_of(shape, 0, 4)
    whole = crown(net, low, high, intermediate="crown")
    monkeypatch.setattr("adv_wrappers.bounds.crown_bounds._AT_ONCE", 1)
    torch.testing.assert_close(torch.stack(crown(net, low, high, intermediate="crown")), torch.stack(whole))


def test_a_specification_for_every_box_or_for_all():
    net, shape = curve_net("heads", "relu", 0)
    low, high = boxes_of(shape, 0, 5)
    spec = randn(4, 6)
    for how in HOW:
        one, each = crown(net, low, high, spec, *how), crown(net, low, high, spec.expand(5, 4, 6), *how)
        torch.testing.assert_close(torch.stack(one), torch.stack(each))
        assert one[0].shape == (5, 4)


def test_bounds_are_the_same_whatever_the_mode():
    net, shape = curve_net("plain", "relu", 0)
    low, high = boxes_of(shape, 0, 5)
    asked = nn.Sequential(nn.Flatten(), *net), low, high, None, "crown"
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = torch.stack(crown(*asked))
        torch.testing.assert_close(found, torch.stack(crown(*asked)))
    net.requires_grad_()
    low.requires_grad_()
    least, _ = crown(net, low, high)
    least.sum().backward()
    assert low.grad is not None and net[0].weight.grad.abs().sum() > 0


def test_refusals():
    net, x = nn.Linear(2, 3), torch.zeros(1, 2)
    with pytest.raises(ValueRangeError, match="'interval' or 'crown', got 'best'"):
        crown(net, x, x, intermediate="best")
    with pytest.raises(ValueRangeError, match="low <= high"):
        crown(net, x + 1, x)
    with pytest.raises(ValueRangeError, match="two float tensors"):
        crown(net, (x, x), (x, x))
    with pytest.raises(ValueRangeError, match="each of the 3 outputs, got 2"):
        crown(net, x, x, torch.zeros(1, 2))
    with pytest.raises(VictimError, match=r"Mish.*known"):
        crown(nn.Sequential(net, nn.Mish()), x, x)
    with pytest.raises(VictimError, match="several inputs"):
        crown(ActionValue(nn.Identity(), net), x, x)


POOLS = {
    "plain": nn.MaxPool2d(2), "overlapping": nn.MaxPool2d(3, 2, 1), "ceil": nn.MaxPool2d(2, ceil_mode=True),
    "dilated": nn.MaxPool2d((2, 3), (1, 2), (1, 0), (2, 1), ceil_mode=True),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
def test_windows_of_max_pooling(name):
    """Elements, the largest bounds, and whose they are, beside those of a loop over all windows."""
    pool, (low, high) = POOLS[name], boxes_of((2, 7, 6), 0, 3)
    least, place, members, highs, others = MaxPool(pool).windows(low, high)
    assert torch.equal(least, pool(low).flatten(2)) and torch.equal(highs.amax(2), pool(high).flatten(2))
    for window in range(least.shape[-1]):
        inside = [int(number) for number in members[0, 0, :, window] if number >= 0]
        at = place[:, :, window, None]
        assert torch.equal(low.flatten(2)[:, :, inside].amax(-1), least[:, :, window])
        assert torch.equal(low.flatten(2).gather(2, at)[..., 0], least[:, :, window])
        expected = high.flatten(2).scatter(2, at, -torch.inf)[:, :, inside].amax(-1)
        assert torch.equal(expected, others[:, :, window])


def test_max_pooling_is_exact_where_one_element_is_the_largest_for_certain():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)).double()
    x = randn(20, 2, 6, 6)
    radius = 1e-6
    least, most = crown(net.requires_grad_(False), x - radius, x + radius)
    slope = torch.func.vmap(torch.func.jacrev(lambda x: net(x[None])[0]))(x).flatten(2).abs().sum(-1)
    torch.testing.assert_close(most - least, 2 * radius * slope, rtol=1e-6, atol=1e-12)


def test_max_pooling_is_no_looser_than_the_boxes_of_its_windows():
    pool = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(3, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3)).double()
    before = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 3, 2), nn.ReLU()).double()
    tighter = 0
    for seed in range(5):
        low, high = boxes_of((2, 7, 7), seed, 40)
        with torch.no_grad():
            found = crown(nn.Sequential(before, pool), low, high)
            ended = crown(pool, *interval(before, low, high))
        assert (found[0] >= ended[0] - ROUNDING).all() and (found[1] <= ended[1] + ROUNDING).all()
        tighter += float((found[1] < ended[1] - 1e-6).double().mean())
    assert tighter > 1
