"""Classes become graphs whose gradients are those of autograd, and what a trace does not hold for has no graph.

Those that are layers one after the other become these layers, for cards.
"""

from __future__ import annotations

import copy
import random
import threading
from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces
from torch import fx, nn
from torch.nn import functional

from adv_wrappers import Linf, MinBest, from_module
from adv_wrappers.networks.input_gradient import LayerGraph, agrees, traced_graph
from adv_wrappers.networks.operations.lookup import has_gradient
from adv_wrappers.networks.policy_layers import AppendLogStd, Normalize
from adv_wrappers.networks.tracing import UnknownCall, layers_in_order, trace
from tests.core.helpers import context
from tests.every_case import every_case
from tests.networks.autograd import check_gradient


def traced(module):
    """The nodes of a module for gradients, or None."""
    try:
        return trace(module, has_gradient)
    except UnknownCall:
        return None


class Net(nn.Module):
    """Layers for the forwards below, which are functions of this and the input."""

    def __init__(self, forward=None):
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.norm, self.act, self.body = nn.LayerNorm(8), nn.SiLU(), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.value, self.gate = nn.Linear(8, 1), nn.Linear(8, 8)
        self.conv1, self.conv2, self.out = (
            nn.Conv2d(2, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Linear(64, 2),
        )
        self.pool, self.batch, self.flat = nn.MaxPool2d(3, 2, 1), nn.BatchNorm2d(4), nn.BatchNorm1d(8)
        self.stride, self.drop = nn.Conv2d(2, 4, 4, 2), nn.Dropout(0.5)
        self.log_std, self.scale = nn.Parameter(torch.tensor([0.3, -0.4])), 2.0
        self.register_buffer("mean", torch.tensor([0.1, -0.2, 0.3, 0.0]))
        self.register_buffer("var", torch.tensor([1.0, 2.0, 0.5, 3.0]))
        self.how = forward
        with torch.no_grad():
            for each in (self.batch, self.flat):
                each.running_mean.normal_()
                each.running_var.uniform_(0.5, 2)
                each.weight.normal_()
        self.eval()

    def forward(self, x):
        return self.how(self, x)


def residual_conv(net, x):
    y = net.pool(net.conv1(x / 255))
    return y + net.conv2(functional.relu(net.conv2(functional.relu(y))))


FORWARDS = {
    "functions": lambda net, x: net.head(functional.relu(net.fc2(torch.tanh(net.fc1(x))))),
    "activation of its own": lambda net, x: net.head(net.act(net.fc2(net.act(net.fc1(x))))),
    "residual": lambda net, x: net.head((y := net.fc1(x)) + net.fc2(functional.relu(net.norm(y)))),
    "residuals, one taken back": lambda net, x: net.head(
        net.norm((z := (y := net.fc1(x)) + net.body(y)) - net.fc2(z.relu()) + y)
    ),
    "of the input": lambda net, x: x[:, :2] + net.head(net.fc1(x).tanh()),
    "added to itself": lambda net, x: net.head((y := net.fc1(x).relu()) + y),
    "input and its view": lambda net, x: net.head(net.fc1((y := x.view(x.shape[0], -1)) * 2 + y)),
    "in place": lambda net, x: net.head(functional.relu(net.fc1(x).add_(1), inplace=True)),
    "sum in place": lambda net, x: augmented(net, x),
    "two heads": lambda net, x: torch.cat([net.head(y := net.fc1(x).relu()), net.head(net.fc2(y)).clamp(-20, 2)], -1),
    "heads that meet": lambda net, x: torch.cat((net.value(y := net.act(net.fc1(x))), net.body(y)[..., 2:4]), dim=1),
    "dueling": lambda net, x: net.value(y := net.fc1(x).relu()) + (a := net.head(net.fc2(y))) - a.mean(1, keepdim=True),
    "mean without its axis": lambda net, x: net.head(net.fc1(x) - torch.mean(net.fc2(net.fc1(x)), -1).unsqueeze(1)),
    "gate": lambda net, x: net.head((y := net.fc1(x)) * torch.sigmoid(net.gate(y))),
    "chunks": lambda net, x: (y := net.fc1(x).chunk(2, dim=-1))[0] * y[1],
    "splits": lambda net, x: split_in_two(net, x),
    "dense": lambda net, x: net.head(torch.cat([y := net.fc1(x), y * 3], 1)[:, 4:12]),
    "statistics": lambda net, x: net.head(net.fc1((x - net.mean) / torch.sqrt(net.var + 1e-5))),
    "scaled tanh": lambda net, x: torch.tanh(net.head(net.fc1(x))) * net.log_std.exp() + net.log_std,
    "log std by tanh": lambda net, x: -5 + 0.5 * (2 - (-5)) * (torch.tanh(net.head(net.fc1(x))) + 1),
    "negative": lambda net, x: -net.head(net.fc1(x).neg().relu()),
    "number minus": lambda net, x: 1 - net.head(net.fc1(x)),
    "constant minus": lambda net, x: net.log_std - net.head(net.fc1(x)),
    "log std beside": lambda net, x: torch.cat([y := net.head(net.fc1(x)), net.log_std.clamp(-1, 1).expand_as(y)], 1),
    "log std by its shape": lambda net, x: torch.cat([y := net.head(net.fc1(x)), net.log_std.expand(y.shape)], 1),
    "weights as arguments": lambda net, x: functional.linear(
        functional.layer_norm(functional.linear(x, net.fc1.weight * 2), (8,), net.norm.weight, net.norm.bias, 1e-3),
        net.head.weight, net.log_std,
    ),
    "batch norm": lambda net, x: net.head(net.drop(net.flat(net.fc1(x))).relu()),
    "python number": lambda net, x: net.head(net.fc1(x) * net.scale) / net.scale,
    "two axes": lambda net, x: net.head(net.fc2(net.fc1(x).view(-1, 2, 4).permute(0, 2, 1).flatten(1))),
    "sequence": lambda net, x: net.fc1(x).unsqueeze(1).reshape(-1, 2, 4).mean((1, 2), True).squeeze(1),
    "residual convolutions": lambda net, x: net.out(residual_conv(net, x).flatten(1)),
    "pooled": lambda net, x: net.out(functional.max_pool2d(net.batch(net.conv1(x)), 2).view(-1, 64)),
    "strided": lambda net, x: net.out(strided(net, x)),
}  # fmt: skip
PICTURES = ("residual convolutions", "pooled", "strided")


def augmented(net, x):
    y = net.fc1(x)
    z = net.fc2(y.relu())
    z += y
    z /= 2
    return net.head(z)


def split_in_two(net, x):
    mean, log_std = torch.split(net.fc1(x), 4, -1)
    return torch.cat([mean, log_std.clamp(-0.2, 0.2)], -1)


def strided(net, x):
    y = functional.relu(net.stride(x / 255.0))
    y = functional.relu(functional.conv2d(y, net.conv2.weight, net.conv2.bias, 1, 1))
    return torch.cat([y, y.tanh()], 1)[:, :, :, :].reshape(y.size(0), -1)[:, :64]


def inputs(name, rows, dtype=torch.float64):
    return torch.randn(rows, *((2, 8, 8) if name in PICTURES else (4,)), dtype=dtype) * (255 if name in PICTURES else 1)


@pytest.mark.parametrize("name", FORWARDS)
def test_a_graph_is_its_class(name):
    torch.manual_seed(0)
    net = Net(FORWARDS[name]).double().requires_grad_(False)
    nodes = traced(net)
    assert nodes is not None
    graph = LayerGraph(nodes)
    check_gradient(graph, net, lambda rows: inputs(name, rows))
    assert agrees(graph, lambda x: net(x.clone()), lambda rows: inputs(name, rows))


def test_a_pair_is_put_side_by_side():
    def pair(net, x):
        y = net.fc1(x).relu()
        return net.head(y), net.head(net.fc2(y)).clamp(-20, 2)

    def constant(net, x):
        return net.head(net.fc1(x)), net.log_std

    def first(net, x):
        return net.head(net.fc1(x)), None

    box, actions = spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2,))
    for how, kind in ((pair, "gaussian"), (constant, "gaussian"), (first, "mean")):
        net = Net(how)
        victim = from_module(net, box, actions, kind)
        graph = victim.layer_graph()
        assert graph is not None
        x, seen = torch.randn(3, 4), []
        graph.input_gradient(lambda params, seen=seen: seen.append(params) or torch.ones_like(params))(x)
        torch.testing.assert_close(seen[0], victim.params(x))


def test_arguments_beside_the_observation_keep_their_defaults():
    class Tianshou(Net):
        def forward(self, obs, state=None, info={}, scale=2.0):  # noqa: B006
            return self.head(self.fc1(obs)) * scale, state

    victim = from_module(Tianshou(), spaces.Box(-1, 1, (4,)), spaces.Discrete(2), "logits")
    assert victim.layer_graph() is not None


COUNT = SimpleNamespace(calls=0)


def counts_elsewhere(net, x):
    COUNT.calls += 1
    return net.head(net.fc1(x)) * COUNT.calls


def writes_to_itself(net, x):
    y = net.fc1(x)
    net.last = y
    return net.head(y)


def remembers(net, x):
    y = net.fc1(x) + getattr(net, "before", 0.0)
    net.before = y
    return net.head(y)


def counts(net, x):
    net.calls = getattr(net, "calls", 0) + 1
    return net.head(net.fc1(x))


def fills_a_list(net, x):
    net.seen = getattr(net, "seen", [])
    net.seen.append(1)
    return net.head(net.fc1(x))


def overwrites_a_residual(net, x):
    y = net.fc1(x)
    return net.head(functional.relu(y, inplace=True) + y)


def overwrites_by_position(net, x):
    y = net.fc1(x)
    return net.head(functional.relu(y, True) + y)


def overwrites_and_goes_on(net, x):
    y = net.fc1(x)
    torch.relu_(y)
    return net.head(y)


def overwrites_a_view(net, x):
    y = net.fc1(x)
    z = y.view(-1, 2, 4)
    z += 1
    return net.head(y)


def writes_to_the_input(net, x):
    x += 1
    return net.head(net.fc1(x))


def scales_the_input(net, x):
    return net.head(net.fc1(x.mul_(2)))


def within_no_grad(net, x):
    with torch.no_grad():
        y = net.fc1(x)
    return net.head(net.fc2(y) + net.fc1(x))


def within_autocast(net, x):
    with torch.autocast("cpu", torch.bfloat16):
        y = net.fc1(x)
    return net.head(y.float())


def otherwise_than_traced(net, x):
    y = net.fc1(x)
    return net.head(y if isinstance(x, fx.Proxy) else 2 * y)


def otherwise_in_one_gradient(net, x):
    y = net.fc1(x)
    return net.head(y if isinstance(x, fx.Proxy) else y.detach() + net.fc1(x) - net.fc1(x).detach() + 1e-3 * y)


def saturated(net, x):
    return net.head(1e9 + 1e9 * net.fc1(x)).clamp(-1, 1)


def straight_through(net, x):
    y = net.fc1(x)
    return net.head(y + (y.round() - y).detach())


REFUSED = [
    counts_elsewhere, remembers, overwrites_a_residual, overwrites_by_position, overwrites_and_goes_on,
    overwrites_a_view, within_no_grad, within_autocast, otherwise_than_traced, otherwise_in_one_gradient,
    straight_through, saturated,
]  # fmt: skip
WITHOUT_EFFECT = [writes_to_itself, counts, fills_a_list, writes_to_the_input, scales_the_input]  # on what it answers
OTHERS = {
    "branch on values": lambda net, x: net.fc1(x) if x.sum() > 0 else net.fc1(-x),
    "branch on the rows": lambda net, x: net.fc1(x) if x.shape[0] > 1 else net.fc1(-x),
    "detached": lambda net, x: net.head(net.fc1(x).detach() + net.fc1(x)),
    "item": lambda net, x: net.head(net.fc1(x)) * x.max().item(),
    "random": lambda net, x: net.head(net.fc1(x) + torch.randn(8)),
    "python random": lambda net, x: net.head(net.fc1(x)) * random.random(),
    "new tensor": lambda net, x: net.head(net.fc1(x) * torch.tensor(2.0)),
    "dropout": lambda net, x: net.head(functional.dropout(net.fc1(x), 0.5)),
    "softmax": lambda net, x: net.head(net.fc1(x)).softmax(-1),
    "where": lambda net, x: torch.where((y := net.fc1(x)) > 0, y, 0),
    "weights that depend": lambda net, x: functional.linear(x, net.fc1.weight * net.value(net.fc1(x)).mean(0)),
    "quotient": lambda net, x: net.head(net.fc1(x) / (net.fc1(x).relu() + 1)),
    "number over": lambda net, x: 1 / (net.head(net.fc1(x)).sigmoid() + 1),
    "rows below one another": lambda net, x: torch.cat([net.fc1(x), net.fc1(-x)], 0),
    "some rows": lambda net, x: net.fc1(x)[1:],
    "index by a tensor": lambda net, x: net.fc1(x)[:, torch.tensor([0, 1])],
    "flattened by shapes": lambda net, x: net.head(net.fc1(x).view(-1, net.fc1(x).shape[1])),
    "cast": lambda net, x: net.head(net.fc1(x).double().float()),
    "rounding": lambda net, x: torch.div(net.fc1(x), 2.0, rounding_mode="floor"),
    "alpha": lambda net, x: torch.add(net.fc1(x), net.fc2(net.fc1(x)), alpha=2),
    "expanded value": lambda net, x: net.value(net.fc1(x)).expand(-1, 2),
    "argument of a layer": lambda net, x: functional.elu(net.fc1(x), net.scale_of(x)),
    "fails": lambda net, x: 1 // 0,
    "a dictionary": lambda net, x: {"logits": net.fc1(x)},
}  # fmt: skip


def graph_of_class(net):
    def rows(count):
        return torch.randn(count, 4, generator=torch.Generator().manual_seed(count))

    return traced_graph(net, "pair", lambda x: net(x.clone()), rows)


@every_case("how", [*REFUSED, *OTHERS.values()])
def test_no_graph(how):
    torch.manual_seed(0)
    net = Net(how).requires_grad_(False)
    before = torch.random.get_rng_state()
    assert graph_of_class(net) is None
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("how", WITHOUT_EFFECT, ids=lambda how: how.__name__)
def test_what_a_forward_writes_and_does_not_read_is_no_part_of_its_graph(how):
    torch.manual_seed(0)
    assert graph_of_class(Net(how).requires_grad_(False)) is not None


@pytest.mark.parametrize("how", [overwrites_a_residual, overwrites_by_position, overwrites_and_goes_on])
def test_what_is_written_over_and_used_elsewhere_is_no_matter_of_inputs(how):
    """Where all that a relu takes is positive, no comparison shows that it wrote over it."""
    net = Net(how)
    with torch.no_grad():
        net.fc1.weight.zero_()
        net.fc1.bias.fill_(1.0)
    assert traced(net) is None


def changes():
    def hook(net):
        net.fc1.register_forward_hook(lambda *_: None)

    def backward_hook(net):
        net.body.register_full_backward_hook(lambda *_: None)

    def parametrized(net):
        nn.utils.parametrizations.weight_norm(net.fc1)

    def training(net):
        net.train()

    def forward(net):
        net.forward = lambda x: x

    return [hook, backward_hook, parametrized, training, forward]


@every_case("change", changes())
def test_what_was_done_to_a_module_counts(change):
    net = Net(FORWARDS["batch norm"])
    assert traced(net) is not None
    change(net)
    assert traced(net) is None


@pytest.mark.parametrize("find", [traced, layers_in_order])
def test_modules_run_in_other_threads_meanwhile(find):
    class Waits(Net):
        def forward(self, x):
            inside.set()
            done.wait(10)
            return super().forward(x)

    torch.manual_seed(0)
    inside, done = threading.Event(), threading.Event()
    net, other, x = Waits(FORWARDS["functions"]), Net(FORWARDS["residual"]), torch.randn(3, 4)
    expected, own, found = other(x), net.fc1(x), []

    def run():
        inside.wait(10)
        try:
            found.append((other(x), net.fc1(x)))
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert find(net) is not None
    thread.join()
    assert torch.equal(found[0][0], expected) and torch.equal(found[0][1], own)


def test_a_live_class_is_not_traced():
    net, box = Net(FORWARDS["residual"]), spaces.Box(-1, 1, (4,))
    assert from_module(net, box, spaces.Discrete(2), "logits").layer_graph() is not None
    assert from_module(net, box, spaces.Discrete(2), "logits", live=True).layer_graph() is None


def test_a_module_is_not_changed():
    net = Net(writes_to_itself)
    before = dict(vars(net))
    assert traced(net) is not None and vars(net) == before and all(p.requires_grad for p in net.parameters())


def test_weights_are_those_of_the_module():
    net = Net(FORWARDS["residual"])
    layers = [node.layer for node in traced(net)]
    assert layers[0] is net.fc1 and net.head in layers and net.norm in layers


def test_classes_are_rearranged():
    class Picture(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.out = nn.Conv2d(2, 6, 8, 4), nn.Conv2d(6, 5, 2), nn.Linear(10, 3)

        def forward(self, x):
            y = functional.relu(self.second(functional.relu(self.first(x / 255))))
            return self.out(y.reshape(y.shape[0], -1))

    torch.manual_seed(0)
    victim = from_module(Picture().double(), spaces.Box(0, 255, (2, 12, 16)), spaces.Discrete(3), "logits")
    x = torch.randint(0, 256, (3, 2, 12, 16)).double()
    gradient = victim.gradient(lambda params: params[:, 0])
    layout, rearranged = gradient.rearranged(x)
    torch.testing.assert_close(layout.inverse(rearranged(layout(x))), gradient(x), rtol=0, atol=1e-12)
    y = MinBest(victim, steps=3)(x, context(x, Linf(3.0), 0, 255))
    victim.graph = copy.deepcopy(victim.graph)
    assert torch.equal(MinBest(victim, steps=3)(x, context(x, Linf(3.0), 0, 255)), y)


def test_a_sequential_of_layers_and_classes():
    net = nn.Sequential(Normalize(torch.zeros(4), torch.full((4,), 2.0), 5.0), Net(FORWARDS["residual"]), nn.Tanh())
    assert graph_of_class(net.requires_grad_(False)) is not None


class Actor(nn.Module):
    """As CleanRL writes them."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.mu = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return torch.tanh(self.mu(functional.relu(self.fc2(self.fc1(x).relu()))))


class Picture(nn.Module):
    """Divides, flattens by its number of rows, and has a Sequential inside."""

    def __init__(self, flatten):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(2, 3, 3, 2), nn.ReLU(), nn.Identity())
        self.head, self.flatten = nn.Linear(27, 4), flatten

    def forward(self, x):
        return self.head(self.flatten(self.convs(x / 255.0)))


class Gaussian(nn.Module):
    def __init__(self, shape, pair):
        super().__init__()
        self.body, self.log_std, self.pair = nn.Linear(4, 2), nn.Parameter(torch.randn(shape)), pair

    def forward(self, x):
        mean = self.body(functional.elu(x, 0.5))
        log_std = self.log_std.expand_as(mean)
        return (mean, log_std) if self.pair else torch.cat([mean, log_std], dim=-1)


class Curves(nn.Module):
    def forward(self, x):
        x = functional.softplus(functional.leaky_relu(x, 0.2), beta=2.0)
        x = functional.gelu(functional.silu(x), approximate="tanh").sigmoid()
        return torch.clamp(x, 0.1, max=0.6).tanh().clip(0.2)


FLATTEN = {
    "view": lambda x: x.view(x.size(0), -1), "reshape": lambda x: x.reshape(x.shape[0], -1),
    "sizes": lambda x: x.reshape(x.size()[0], -1), "method": lambda x: x.flatten(1),
    "function": lambda x: torch.flatten(x, start_dim=1), "module": nn.Flatten(),
    "width": lambda x: x.view(-1, 27), "in place": lambda x: functional.relu(x.view(x.size(0), -1), inplace=True),
}  # fmt: skip
NETS = {
    "actor": (Actor, (3, 4)), "curves": (Curves, (3, 4)),
    "sequential": (lambda: nn.Sequential(Normalize(torch.zeros(1), torch.ones(1)), Actor(), nn.Linear(2, 2)), (3, 4)),
    "log std of one axis": (lambda: Gaussian((2,), False), (3, 4)),
    "log std of two": (lambda: Gaussian((1, 2), False), (3, 4)),
    **{name: (lambda flatten=flatten: Picture(flatten), (3, 2, 8, 7)) for name, flatten in FLATTEN.items()},
}  # fmt: skip


@every_case("name", NETS)
def test_layers_compute_what_the_module_does(name):
    torch.manual_seed(0)
    make, shape = NETS[name]
    net, x = make(), torch.randn(shape)
    assert torch.equal(nn.Sequential(*layers_in_order(net))(x), net(x))


def test_a_pair_is_a_mean_beside_its_log_std():
    net, x = Gaussian((2,), True), torch.randn(3, 4)
    layers = layers_in_order(net, pairs=True)
    assert isinstance(layers[-1], AppendLogStd)
    assert torch.equal(nn.Sequential(*layers)(x), torch.cat(net(x), -1))
    assert layers_in_order(net) is None


def test_a_cast_to_what_the_weights_are_does_nothing():
    class Cast(Actor):
        def forward(self, x):
            return super().forward(x.float())

    assert len(layers_in_order(Cast())) == 6 and layers_in_order(Cast().double()) is None


def test_weights_of_any_dtype_and_dropout_that_does_nothing():
    class Drops(Actor):
        def forward(self, x):
            return super().forward(functional.dropout(x, 0.5, self.training))

    net = Drops().half().eval()
    assert len(layers_in_order(net)) == 6 and layers_in_order(net.train()) is None


class Broken(Actor):
    """One method of this becomes the forward of a class below."""

    def forward(self, x):
        return getattr(self, type(self).how)(x)

    def residual(self, x):
        return self.fc2(y := self.fc1(x)) + y

    def two_heads(self, x):
        return self.mu(y := self.fc1(x)), self.mu(y)

    def used_twice(self, x):
        return torch.cat([self.mu(y := self.fc1(x)), self.mu(y.relu())], -1)

    def scaled(self, x):
        return 2 * self.fc1(x)

    def divided_by_a_weight(self, x):
        return self.fc1(x) / self.fc1.bias


@every_case("how", [name for name in vars(Broken) if not name.startswith("_") and name != "forward"])
def test_no_sequence_of_layers(how):
    assert layers_in_order(type("Broken", (Broken,), {"how": how})()) is None


def test_several_inputs_and_hooks():
    class Two(nn.Module):
        def forward(self, x, y):
            return x

    net = Actor()
    net.fc1.register_forward_hook(lambda *_: None)
    assert layers_in_order(Two()) is None and traced(Two()) is None and layers_in_order(net) is None
    whole = Actor()
    whole.register_forward_hook(lambda *_: None)
    assert layers_in_order(whole) is None
