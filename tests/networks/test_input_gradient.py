"""Random graphs against autograd, and networks without a gradient."""

from __future__ import annotations

import copy
import pickle
import random
import threading

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from adv_wrappers.networks.graph import GraphNetwork, Node, chain, needed
from adv_wrappers.networks.input_gradient import LayerGraph, followed, graph_of
from adv_wrappers.networks.operations.arithmetic import Arithmetic, Join
from adv_wrappers.networks.operations.shapes import Mean, Slice
from adv_wrappers.networks.policy_layers import Clip, TwoLogits
from tests.every_case import every_case
from tests.networks.autograd import check_gradient

WIDTH = 6


def random_graph(seed):
    """Layers of vectors, each of values that are there already, the last of all that nobody took."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    nodes, loose = list[Node](), {0}
    full = [0]  # numbers of values of the whole width

    def add(layer, *inputs, narrow=False):
        nodes.append(Node(layer, inputs))
        loose.difference_update(inputs)
        if not narrow:
            loose.add(len(nodes))
            full.append(len(nodes))
        return len(nodes)

    def linear():
        return nn.Linear(WIDTH, WIDTH).double().requires_grad_(False)

    def batch_norm():
        layer = nn.BatchNorm1d(WIDTH).double().eval().requires_grad_(False)
        for each in (layer.running_mean, layer.weight, layer.bias):
            each.normal_()
        layer.running_var.uniform_(0.1, 2)
        return layer

    makers = [
        linear,
        linear,
        batch_norm,
        nn.Tanh,
        nn.ReLU,
        nn.SiLU,
        nn.ELU,
        nn.Sigmoid,
        nn.GELU,
        nn.Flatten,
        lambda: Clip(-0.9, 0.9),
        lambda: nn.LayerNorm(WIDTH).double().requires_grad_(False),
        lambda: Arithmetic("add", torch.randn(WIDTH).double()),
        lambda: Arithmetic("multiply", -0.7),
        lambda: Arithmetic("divide", torch.rand(1, WIDTH).double() + 0.5),
    ]
    for _ in range(draw.randint(3, 14)):
        kind, source, other = draw.random(), draw.choice(full[-4:]), draw.choice(full)
        if kind < 0.6:
            add(draw.choice(makers)(), source)
        elif kind < 0.85:
            add(Join(draw.choice(["sum", "difference", "product"])), source, other)
        elif kind < 0.93:
            add(Join("difference"), source, add(Mean((1,), True), other, narrow=True))
        else:
            half = add(Slice("chunk", (2, 1), draw.randint(0, 1)), source, narrow=True)
            two = add(Slice("", (), (slice(None), slice(1, 4))), other, narrow=True)
            add(Join("concatenate", 1), half, two)
    while len(loose) > 1:
        add(Join("sum"), *sorted(loose)[:2])
    return needed(nodes, len(nodes))


@every_case("seed", range(15))
def test_random_graphs(seed):
    nodes = random_graph(seed)
    check_gradient(LayerGraph(nodes), GraphNetwork(nodes), lambda rows: torch.randn(rows, WIDTH).double(), 1e-9)


def test_only_what_is_needed_is_computed():
    nodes = [Node(nn.Tanh(), (0,)), Node(nn.ReLU(), (0,)), Node(nn.Sigmoid(), (1,)), Node(nn.ReLU(), (3,))]
    assert [node.inputs for node in needed(nodes, 3)] == [(0,), (1,)]
    assert needed(nodes, 0) == []


def mlp(rows=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(rows, 16), nn.Tanh(), nn.Linear(16, 3)).requires_grad_(False)


def one(graph, x):
    return graph.input_gradient(torch.ones_like)(x)


def test_copies():
    graph, x = graph_of(mlp()), torch.randn(4, 8)
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert torch.equal(one(other, x), one(graph, x))


def test_threads_share_a_victim():
    graph, alone, failed = graph_of(mlp()), graph_of(mlp()), []

    def attack(seed):
        x = torch.randn(1 + seed % 3, 8, generator=torch.Generator().manual_seed(seed))
        expected = one(alone, x)
        for _ in range(50):
            if not torch.equal(one(graph, x), expected):
                failed.append(seed)

    threads = [threading.Thread(target=attack, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@every_case("layers", [[nn.Flatten()], [nn.Tanh()], [nn.Linear(3, 3)], []])
def test_what_an_output_gradient_returns_is_not_overwritten(layers):
    slope = torch.ones(2, 3)
    found = LayerGraph(chain(layers)).input_gradient(lambda params: slope)(torch.zeros(2, 3))
    found.fill_(torch.nan)  # as an attack may
    assert torch.equal(slope, torch.ones(2, 3))


@pytest.mark.parametrize("before", [[], [nn.Flatten()], [nn.Tanh(), nn.Hardtanh()]])
def test_a_gradient_outlives_the_next_step(before):
    layers = [*before, nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)]
    gradient = LayerGraph(chain(layers)).input_gradient(torch.ones_like)
    first = gradient(torch.zeros(2, 3))
    kept = first.clone()
    assert not torch.equal(gradient(torch.full((2, 3), 0.5)), kept)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("mode", [lambda: FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode])
def test_what_a_mode_makes_of_weights_is_not_used_outside(mode):
    net = nn.Sequential(nn.Linear(8, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3), TwoLogits()).eval()
    graph, x = graph_of(net, frozen=True), torch.randn(4, 8)
    with mode():
        one(graph, x)
    assert torch.equal(one(graph, x), one(graph_of(net), x))


def test_input_gradient_follows_the_weights():
    net = nn.Sequential(nn.Linear(2, 2))
    graph = graph_of(net)
    assert followed(net, graph) is graph
    with torch.no_grad():
        net[0].weight.fill_(3.0)
    assert torch.equal(graph.input_gradient(torch.ones_like)(torch.ones(1, 2)), torch.tensor([[6.0, 6.0]]))
    net[0].weight = nn.Parameter(torch.zeros(2, 2))
    assert torch.equal(graph.input_gradient(torch.ones_like)(torch.ones(1, 2)), torch.zeros(1, 2))
    net[0] = nn.Linear(2, 2)
    assert [node.layer for node in followed(net, graph).nodes] == [net[0]]
    net[0].register_forward_hook(lambda *_: None)
    assert followed(net, graph) is None


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2))
    net.register_forward_hook(lambda module, args, out: out * 2)
    return net


@every_case(
    "net",
    [
        nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)),
        nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)),
        Doubled(nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), Doubled(nn.Linear(2, 2))),
        hooked(),
        nn.Conv2d(1, 1, 3, padding="same"),
        nn.MaxPool2d(2, return_indices=True),
        nn.ELU(-1.0),
    ],
)  # fmt: skip
def test_no_graph(net):
    assert graph_of(net) is None
