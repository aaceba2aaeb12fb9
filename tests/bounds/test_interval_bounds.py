"""Interval bounds: sound on random nets, tight on one layer, exact at a point, differentiable, growing with the box."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

from adv_wrappers.bounds import crown, interval, known
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.operations.operation import LayerOperation, Operation, register
from tests.bounds.networks import CURVES, bounds_of_squares, boxes_of, curve_net
from tests.core.helpers import linear, randn

ROUNDING = 1e-10  # bounds are not rounded outwards


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["plain", "heads", "picture"]), st.sampled_from(sorted(CURVES)), st.integers(0, 10**6),
)  # fmt: skip
def test_every_output_lies_within_the_bounds(kind, curve, seed):
    net, shape = curve_net(kind, curve, seed)
    low, high = boxes_of(shape, seed, 3)
    before = low.clone(), high.clone()
    with torch.no_grad():
        least, most = interval(net, low, high)
        share = torch.rand(200, *low.shape, dtype=torch.float64)
        share[:100] = share[:100].round()  # corners
        points = (low + share * (high - low)).flatten(0, 1)
        values = net(points).unflatten(0, (200, 3))
    assert (values >= least - ROUNDING).all() and (values <= most + ROUNDING).all()
    assert torch.equal(low, before[0]) and torch.equal(high, before[1])
    smaller = interval(net, (3 * low + high) / 4, (low + 3 * high) / 4)
    assert (smaller[0] >= least - ROUNDING).all() and (smaller[1] <= most + ROUNDING).all()


@pytest.mark.parametrize("kind", ["plain", "heads", "picture"])
def test_a_point_gives_the_forward_pass_to_the_bit(kind):
    net, shape = curve_net(kind, "tanh", 0)
    x = randn(4, *shape)
    low, high = interval(net, x, x)
    assert torch.equal(low, net(x)) and torch.equal(high, net(x))


def test_a_layer_that_is_used_twice_or_writes_in_place():
    shared, (low, high) = nn.ReLU(inplace=True), boxes_of((3,), 0, 3)
    first, second = linear(randn(3, 3)), linear(randn(3, 3, seed=4))
    before = low.clone(), high.clone()
    twice = interval(nn.Sequential(shared, first, shared, second, shared), low, high)
    assert torch.equal(low, before[0]) and torch.equal(high, before[1])
    apart = interval(nn.Sequential(nn.ReLU(), first, nn.ReLU(), second, nn.ReLU()), low, high)
    assert torch.equal(twice[0], apart[0]) and torch.equal(twice[1], apart[1])


def test_one_linear_layer_is_tight():
    layer, (low, high) = linear(randn(4, 6), randn(4, seed=5)), boxes_of((6,), 3, 3)
    least, most = interval(layer, low, high)
    w = layer.weight
    for bound, ends in ((least, (low, high)), (most, (high, low))):
        exact = torch.where(w > 0, ends[0][:, None], ends[1][:, None]).mul(w).sum(-1) + layer.bias
        torch.testing.assert_close(bound, exact)


def test_one_convolution_is_tight():
    layer, (low, high) = nn.Conv2d(2, 3, 3, 2, 1).double(), boxes_of((2, 6, 5), 3, 3)
    least, most = interval(layer, low, high)
    w = layer.weight
    how = layer.stride, layer.padding
    up = torch.conv2d(high, w.clamp(min=0), layer.bias, *how) + torch.conv2d(low, w.clamp(max=0), None, *how)
    down = torch.conv2d(low, w.clamp(min=0), layer.bias, *how) + torch.conv2d(high, w.clamp(max=0), None, *how)
    torch.testing.assert_close(most, up)
    torch.testing.assert_close(least, down)


@pytest.mark.parametrize("kind", ["plain", "picture"])
@pytest.mark.parametrize("rows", [(4,), (3, 4)])
def test_a_specification_is_multiplied_into_the_last_linear_layer(kind, rows):
    net, shape = curve_net(kind, "leaky", 3)
    low, high = boxes_of(shape, 5, 3)
    width = net(low).shape[1]
    spec = randn(*rows, width)
    least, most = interval(net, low, high, spec)
    share = torch.rand(200, *low.shape, dtype=torch.float64)
    values = (spec @ net((low + share * (high - low)).flatten(0, 1)).unflatten(0, (200, 3))[..., None]).squeeze(-1)
    assert least.shape == (3, 4) and (values >= least - ROUNDING).all() and (values <= most + ROUNDING).all()
    single = interval(net, low, high)
    apart = interval(nn.Identity(), *single, spec)
    assert ((most - least) < apart[1] - apart[0] - 1e-6).any() and ((most - least) <= apart[1] - apart[0] + 1e-9).all()
    every = interval(net, low, high, torch.eye(width, dtype=torch.float64))
    torch.testing.assert_close(torch.stack(every), torch.stack(single))


def test_a_specification_behind_a_curve_is_one_linear_layer_more():
    net, (low, high) = nn.Sequential(linear(randn(3, 4)), nn.Tanh()), boxes_of((4,), 0, 3)
    spec = randn(2, 3)
    got, expected = interval(net, low, high, spec), interval(nn.Sequential(net, linear(spec)), low, high)
    torch.testing.assert_close(torch.stack(got), torch.stack(expected))
    low.requires_grad_()
    assert torch.autograd.gradcheck(lambda low, spec: interval(net, low, high + 1, spec), [low, spec.requires_grad_()])


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (torch.zeros(2, 5), "each of the 3 outputs, got 5"), (torch.zeros(2, 3).double(), "torch.float32, as"),
        (torch.zeros(3), r"\[M, K\]"), (torch.zeros(4, 2, 3), r"\[2, M, K\]"), ([1.0], "list"),
    ],
)  # fmt: skip
def test_specifications_that_do_not_fit(spec, word):
    for net in (nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3), nn.Tanh())):
        with pytest.raises(ValueRangeError, match=word):
            interval(net, torch.zeros(2, 4), torch.ones(2, 4), spec)


def test_what_has_no_rule_is_named():
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh(), nn.Mish())).double()
    with pytest.raises(VictimError, match=r"layer 1\.1 \(Mish.*known: AdaptiveAvgPool2d, AppendLogStd"):
        interval(net, randn(1, 2), randn(1, 2) + 1)
    for layer in (nn.LeakyReLU(-0.1), nn.ELU(-1.0), nn.Softplus(-1.0), nn.Conv2d(1, 1, 1, padding_mode="circular")):
        with pytest.raises(VictimError, match="expected"):
            interval(layer, randn(1, 1, 2, 2), randn(1, 1, 2, 2))
    hooked = nn.Tanh()
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(VictimError, match="hook"):
        interval(hooked, randn(1, 2), randn(1, 2))
    assert "Linear" in known() and "Mish" not in known()


def test_a_layer_that_changes_what_it_inherits_has_another_rule():
    class Other(nn.Linear):
        def forward(self, x):
            return -super().forward(x)

    class Unknown(nn.Linear):
        def forward(self, x):
            return super().forward(x).sort(-1).values

    class Same(nn.Linear):
        pass

    x = randn(1, 2), randn(1, 2) + 1
    other = Other(2, 2).double()
    low, high = interval(linear(other.weight, other.bias), *x)
    torch.testing.assert_close(interval(other, *x), (-high, -low))
    with pytest.raises(VictimError, match="sort"):
        interval(Unknown(2, 2).double(), *x)
    assert interval(Same(2, 2).double(), *x)[0].shape == (1, 2)
    patched = nn.Tanh()
    patched.forward = torch.cos
    with pytest.raises(VictimError, match="forward that was replaced"):
        interval(patched, *x)
    weighed = parametrizations.weight_norm(nn.Linear(2, 2).double())
    torch.testing.assert_close(interval(weighed, x[0], x[0])[0], weighed(x[0]))


def test_operations_of_ones_own():
    class Square(nn.Module):
        def forward(self, x):
            return x.square()

    @register
    class Cube(nn.Module, Operation):
        monotone = True

        def forward(self, x):
            return x**3

    x = torch.tensor([[-1.0]]), torch.tensor([[2.0]])
    with pytest.raises(VictimError, match=r"no rule for .*; a subclass of Operation adds one"):
        interval(nn.Sequential(Cube(), Square()), *x)

    @register
    class OfSquares(LayerOperation):
        layers = (Square,)

        def interval(self, low, high):
            return bounds_of_squares(self.layer, low, high)

    for bounds in (interval, crown):
        low, high = bounds(nn.Sequential(Cube(), Square()), *x)
        assert (low.item(), high.item()) == (0.0, 64.0)


def test_an_operation_has_to_say_how_it_is_bounded():
    @register
    class Squared(nn.Module, Operation):
        def forward(self, x):
            return x**2

    with pytest.raises(NotImplementedError, match="Squared has no bounds: expected interval"):
        interval(Squared(), -torch.ones(1, 1), torch.ones(1, 1))


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (torch.ones(1, 2), torch.zeros(1, 2), "low <= high"),
        (torch.full((1, 2), torch.nan), torch.zeros(1, 2), "NaN"),
        (torch.zeros(1, 2), torch.zeros(2, 2), "shape"),
        (torch.zeros(1, 2), torch.zeros(1, 2).double(), "dtype"),
        (torch.zeros(1, 2).long(), torch.zeros(1, 2).long(), "float"),
        (torch.zeros(1, 2), 1.0, "float"),
    ],
)
def test_boxes_that_are_none(low, high, word):
    with pytest.raises(ValueRangeError, match=word):
        interval(nn.Linear(2, 2), low, high)
