"""Classes become the layers that they apply, and what is no sequence of layers becomes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from adv_wrappers.networks.layers import AppendLogStd, Normalize
from adv_wrappers.networks.tracing import layers_of


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
}  # fmt: skip
NETS = {
    "actor": (Actor, (3, 4)), "curves": (Curves, (3, 4)),
    "sequential": (lambda: nn.Sequential(Normalize(torch.zeros(1), torch.ones(1)), Actor(), nn.Linear(2, 2)), (3, 4)),
    "log std of one axis": (lambda: Gaussian((2,), False), (3, 4)),
    "log std of two": (lambda: Gaussian((1, 2), False), (3, 4)),
    **{name: (lambda flatten=flatten: Picture(flatten), (3, 2, 8, 7)) for name, flatten in FLATTEN.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_compute_what_the_module_does(name, dtype):
    torch.manual_seed(0)
    make, shape = NETS[name]
    net = make().to(dtype)
    x = torch.randn(shape, dtype=dtype)
    assert torch.equal(nn.Sequential(*layers_of(net))(x), net(x))


def test_the_layers_are_those_of_the_module():
    net = Actor()
    layers = layers_of(net)
    assert layers[0] is net.fc1 and layers[2] is net.fc2 and layers[4] is net.mu
    assert [type(layer) for layer in layers[1::2]] == [nn.ReLU, nn.ReLU, nn.Tanh]


def test_a_pair_is_a_mean_beside_its_log_std():
    net, x = Gaussian((2,), True), torch.randn(3, 4)
    layers = layers_of(net, pairs=True)
    assert isinstance(layers[-1], AppendLogStd)
    assert torch.equal(nn.Sequential(*layers)(x), torch.cat(net(x), -1))
    assert layers_of(net) is None


def test_a_cast_to_what_the_weights_are_does_nothing():
    class Cast(Actor):
        def forward(self, x):
            return super().forward(x.float())

    assert len(layers_of(Cast())) == 6 and layers_of(Cast().double()) is None


def test_a_module_that_writes_to_itself_is_not_changed():
    class Writes(Actor):
        def forward(self, x):
            self.last = super().forward(x)
            return self.last

    net = Writes()
    assert len(layers_of(net)) == 6 and not hasattr(net, "last")


class Broken(Actor):
    """One method of this becomes the forward of a class below."""

    def forward(self, x):
        return getattr(self, type(self).how)(x)

    def residual(self, x):
        return self.fc2(y := self.fc1(x)) + y

    def two_heads(self, x):
        return self.mu(y := self.fc1(x)), self.mu(y)

    def branch_on_values(self, x):
        return self.fc1(x) if x.sum() > 0 else self.fc1(-x)

    def used_twice(self, x):
        return torch.cat([self.mu(y := self.fc1(x)), self.mu(y.relu())], -1)

    def other_axis(self, x):
        return torch.cat([self.mu(self.fc1(x)), self.mu.bias.expand(2)], 0)

    def scaled(self, x):
        return 2 * self.fc1(x)

    def swapped(self, x):
        return torch.div(1.0, self.fc1(x))

    def divided_by_a_weight(self, x):
        return self.fc1(x) / self.fc1.bias

    def rows_of_another(self, x):
        return self.fc1(x).view(-1, 8)

    def flattened_whole(self, x):
        return torch.flatten(self.fc1(x))

    def rounded_down(self, x):
        return torch.div(self.fc1(x), 2.0, rounding_mode="floor")

    def given_something(self, x):
        return functional.elu(self.fc1(x), self.fc1.bias.sum())

    def dropped(self, x):
        return functional.dropout(self.fc1(x), 0.5)

    def fails(self, x):
        raise RuntimeError("a forward of one's own")


@pytest.mark.parametrize("how", [name for name in vars(Broken) if not name.startswith("_") and name != "forward"])
def test_no_sequence_of_layers(how):
    assert layers_of(type("Broken", (Broken,), {"how": how})()) is None


def test_several_inputs_and_hooks():
    class Two(nn.Module):
        def forward(self, x, y):
            return x

    net = Actor()
    net.fc1.register_forward_hook(lambda *_: None)
    assert layers_of(Two()) is None and layers_of(net) is None
    whole = Actor()
    whole.register_forward_hook(lambda *_: None)
    assert layers_of(whole) is None
