"""Bounds of networks that are no layers in a row: no point outside, for every operation of a graph."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from adv_wrappers.bounds import crown, graph_network, interval
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.graph import GraphNetwork
from adv_wrappers.networks.operations.arithmetic import Join, ProductStep
from adv_wrappers.networks.operations.gelu_silu import Even
from adv_wrappers.networks.operations.layer_norm import Standardized
from adv_wrappers.networks.operations.pooling import MaxPool
from tests.bounds.networks import NETS, TD3Actor, boxes_of, net_of, points_of
from tests.core.helpers import randn
from tests.networks.test_input_gradient import WIDTH, random_graph

SLACK = 1e-9  # bounds are not rounded outwards
OWN = [name for name in NETS if not name.startswith("forward")]
# the forwards whose operations, or their order, no network of OWN has; `test_tracing.py` takes all of them
BOUNDED = [
    *OWN, "forward: residuals, one taken back", "forward: heads that meet", "forward: weights as arguments",
    "forward: scaled tanh", "forward: gate", "forward: splits", "forward: two axes", "forward: sequence",
    "forward: strided", "forward: log std beside", "forward: number minus", "forward: dense",
]  # fmt: skip
HOW = [("interval",), ("crown",)]


def check_sound(name: str, seeds: int, ways: int) -> None:
    """No point of boxes lies outside of bounds, and none of linear bounds outside of interval bounds."""
    for seed in range(seeds):
        net, shape = net_of(name, seed)
        check_boxes(net, *boxes_of(shape, seed, 20, 30.0 if name == "impala" else 1.0), seed, ways)


def check_boxes(net: nn.Module, low: torch.Tensor, high: torch.Tensor, seed: int, ways: int) -> None:
    """The same of one network and some boxes."""
    points = points_of(low, high, 40)
    values = net(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    slack = SLACK * (1 + values.abs().max())
    for rows in (None, randn(2, values.shape[-1], seed=seed)):
        found = values if rows is None else values @ rows.T
        first = interval(net, low, high, rows)
        for least, most in [first, *(crown(net, low, high, rows, *how) for how in HOW[:ways])]:
            assert (found >= least - slack).all() and (found <= most + slack).all()
            assert (least >= first[0] - slack).all() and (most <= first[1] + slack).all()


@pytest.mark.parametrize("name", BOUNDED)
def test_no_point_lies_outside(name):
    small = net_of(name)[1] == (4,) and name != "dueling"
    check_sound(name, 1, 3 if small else 2)


@pytest.mark.parametrize("seed", range(8, 14))
def test_no_point_lies_outside_of_bounds_on_random_graphs(seed):
    check_boxes(GraphNetwork(random_graph(seed)), *boxes_of((WIDTH,), seed, 20), seed, 2)


def product_without_error(patch):
    real = ProductStep.pull

    def middles(step, *rest):
        return real(replace(step, boxes=tuple((torch.lerp(*box, 0.5),) * 2 for box in step.boxes)), *rest)

    patch.setattr(ProductStep, "pull", middles)
    return "forward: gate"


def windows_all_certain(patch):
    real = MaxPool.step

    def certain(*given):
        step = real(*given)
        return replace(step, certain=torch.ones_like(step.certain), most=torch.zeros_like(step.most))

    patch.setattr(MaxPool, "step", certain)
    return "impala"


def variance_of_the_middle(patch):
    def others(self, low, high, variance):
        return (((low + high) / 2).square().mean(-1, True) + self.eps,) * 2

    patch.setattr(Standardized, "_others", others)
    return "residual"


def tangents_too_high(patch):
    real = Even._tangent
    patch.setattr(Even, "_tangent", lambda *given: (real(*given)[0], real(*given)[1] + 0.3))
    return "residual, GELU"


def a_difference_is_a_sum(patch):
    real = Join.pull_back

    def as_sum(join, *rest):
        return real(Join("sum") if join.how == "difference" else join, *rest)

    patch.setattr(Join, "pull_back", as_sum)
    return "dueling"


@pytest.mark.parametrize(
    "break_",
    [
        product_without_error, windows_all_certain, variance_of_the_middle, tangents_too_high,
        a_difference_is_a_sum,
    ],
)  # fmt: skip
def test_the_check_finds_what_is_broken(monkeypatch, break_):
    with pytest.raises(AssertionError):
        check_sound(break_(monkeypatch), 2, 2)


@pytest.mark.parametrize("name", OWN)
def test_a_graph_computes_what_its_module_does(name):
    net, shape = net_of(name)
    x = randn(5, *shape)
    graph = graph_network(net, x)
    torch.testing.assert_close(graph(x), net(x))
    single = copy.deepcopy(graph).float()
    torch.testing.assert_close(single(x.float()), copy.deepcopy(net).float()(x.float()))
    assert {tensor.dtype for tensor in [*single.parameters(), *single.buffers()]} <= {torch.float32, torch.int64}
    low, high = boxes_of(shape, 0, 3)
    for bound in (interval, crown):
        torch.testing.assert_close(torch.stack(bound(graph, low, high)), torch.stack(bound(net, low, high)))


@pytest.mark.parametrize("name", ["residual, GELU", "dueling", "normalised", "forward: gate"])
def test_gradients_of_weights_and_box(name):
    net, shape = net_of(name)
    graph = graph_network(net.requires_grad_(), randn(2, *shape))
    names, weights = zip(*[(n, p.detach().requires_grad_()) for n, p in graph.named_parameters()], strict=True)
    low = randn(2, *shape).requires_grad_()

    class Bounds(nn.Module):
        def __init__(self, bound):
            super().__init__()
            self.graph, self.bound = graph, bound

        def forward(self, low):
            return self.bound(self.graph, low, low + 0.1)

    def bounds(bound):
        def of(low, *weights):
            named = {f"graph.{n}": w for n, w in zip(names, weights, strict=True)}
            return torch.func.functional_call(Bounds(bound), named, (low,))

        return of

    assert torch.autograd.gradcheck(bounds(interval), [low, *weights], fast_mode=True)
    if shape == (4,) and "GELU" not in name:  # whose tangents come from a table
        assert torch.autograd.gradcheck(bounds(crown), [low, *weights], fast_mode=True)


def test_a_graph_follows_weights_that_are_trained():
    net, shape = net_of("dueling")
    x = randn(3, *shape)
    graph = graph_network(net.requires_grad_(), x)
    before = interval(graph, x, x)[0]
    before.sum().backward()
    assert all(weight.grad is not None for weight in net.parameters())
    with torch.no_grad():
        for weight in net.parameters():
            weight -= 0.1 * weight.grad
    assert torch.equal(interval(graph, x, x)[0], net(x)) and not torch.equal(before, net(x))


def test_what_is_computed_from_weights_is_not_taken_for_constant_while_they_are_trained():
    net, shape = net_of("forward: scaled tanh")
    x = randn(2, *shape)
    interval(net, x, x)
    with pytest.raises(VictimError, match="exp, which is computed from weights that are trained"):
        interval(net.requires_grad_(), x, x)
    with torch.no_grad():
        torch.testing.assert_close(interval(net, x, x)[0], net(x))


def test_a_graph_of_weights_that_are_trained_is_copied_and_cast():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.log_std = nn.Linear(4, 3), nn.Parameter(torch.zeros(3))
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.mean(x) * self.scale, self.log_std

    net, x = Pair(), torch.randn(2, 4)
    graph = graph_network(net, x)
    exact = copy.deepcopy(graph).double().requires_grad_(False)
    with torch.no_grad():
        net.log_std += 1
        net.scale += 1
        assert torch.equal(graph(x), torch.cat([net(x)[0], net.log_std.expand(2, 3)], -1))
        torch.testing.assert_close(exact(x.double()).float()[:, :3], net.mean(x))
    graph(x).sum().backward()
    assert net.scale.grad is not None and exact(x.double()).dtype == torch.float64


def test_linear_bounds_see_what_a_residual_sum_takes_away():
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x):
            y = self.first(x).tanh()
            return y - 0.5 * y - y / 2

    net, (low, high) = Returns().double().requires_grad_(False), boxes_of((4,), 0, 5)
    least, most = crown(net, low, high)
    assert interval(net, low, high)[1].max() > 0.1
    torch.testing.assert_close(torch.stack([least, most]), torch.zeros(2, 5, 4, dtype=torch.float64))


def test_differences_of_a_dueling_network_forget_its_value():
    net, (low, high) = net_of("dueling")[0], boxes_of((4,), 0, 5)
    spec = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    apart = interval(net, low, high, spec)
    net.value.weight.mul_(1000.0)
    for together in (interval(net, low, high, spec), crown(net, low, high, spec)):
        assert (together[0] >= apart[0] - 1e-6).all() and (together[1] <= apart[1] + 1e-6).all()


def test_arithmetic_behind_the_last_curve_costs_nothing():
    net, (low, high) = net_of("td3")[0], boxes_of((4,), 0, 20)
    inner = nn.Sequential(net.fc1, nn.ReLU(), net.fc2, nn.ReLU(), net.fc_mu, nn.Tanh())
    expected = [end * net.action_scale + net.action_bias for end in crown(inner, low, high, None, "crown")]
    torch.testing.assert_close(list(crown(net, low, high, None, "crown")), expected)


def test_what_has_no_bounds_is_named():
    class Norms(nn.Module):
        def __init__(self, do):
            super().__init__()
            self.inner, self.do = nn.Sequential(nn.Linear(4, 4), nn.Mish()), do

        def forward(self, x):
            return self.do(self, x)

    x = torch.zeros(4, 4)
    for do, words in (
        (
            lambda self, x: self.inner(x) + x,
            r"layer inner\.1 \(Mish\(\)\): known: .*LayerNorm",
        ),
        (lambda self, x: torch.softmax(x, -1) + x, "softmax.*known"),
        (lambda self, x: x if x.sum() > 0 else -x, "does not run with a stand-in for its input"),
        (lambda self, x: x / (x.exp() + 1), "exp.*known"),
        (lambda self, x: x.mean(0, keepdim=True) + x, "mixes them"),
        (lambda self, x: x + x.mean(1), "mixes them"),
        (lambda self, x: x.view(-1, 2).mean(1), "does something else"),
        (lambda self, x: nn.functional.dropout(x, 0.5, True) + x, "dropout"),
    ):
        with pytest.raises(VictimError, match=words):
            interval(Norms(do), x, x)
    for layer in (nn.BatchNorm1d(4), nn.Dropout(0.5)):
        with pytest.raises(VictimError, match=r"in training mode: call \.eval\(\)"):
            interval(nn.Sequential(layer, nn.Linear(4, 2)), x, x)


def test_one_output_without_an_axis():
    net, (low, high) = nn.Sequential(TD3Actor(), nn.Linear(2, 1)).double().requires_grad_(False), boxes_of((4,), 0, 5)

    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x).squeeze(-1)

    for bound in (interval, crown):
        expected = torch.stack(bound(net, low, high)).squeeze(-1)
        torch.testing.assert_close(torch.stack(bound(Squeezed(), low, high)), expected)
