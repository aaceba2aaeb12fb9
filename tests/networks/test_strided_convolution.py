"""The layouts that convolutions prefer: the same gradients and the same attacks, laid out otherwise."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from adv_wrappers import Linf, MaxDiff, MinBest, from_module
from adv_wrappers.core.budgets.budget import L2
from adv_wrappers.networks.graph import Node, chain
from adv_wrappers.networks.input_gradient import InputGradient
from adv_wrappers.networks.operations.arithmetic import Join
from adv_wrappers.networks.operations.shapes import Permute
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.networks.strided_convolution import SpaceToDepth, picture_layout
from tests.core.helpers import context
from tests.every_case import every_case

SHAPE = (2, 12, 16)


def cnn(*before: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *before, nn.Conv2d(2, 6, 8, 4), nn.ReLU(), nn.Conv2d(6, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(10, 3)
    ).double()


def test_space_to_depth_has_an_inverse():
    x, layout = torch.arange(2.0 * 2 * 12 * 16).view(2, *SHAPE), SpaceToDepth(4)
    assert layout(x).shape == (2, 32, 3, 4) and layout(x)[1, 0, 0].tolist() == x[1, 0, 0, ::4].tolist()
    assert torch.equal(layout.inverse(layout(x)), x)


NORMAL = Normalize(torch.tensor([0.5]), torch.tensor([2.0]))


@every_case(
    ("layers", "shape", "pays"),
    [
        ([nn.Conv2d(2, 6, 8, 4)], SHAPE, True),
        ([NORMAL, nn.ReLU(), nn.Conv2d(2, 6, 8, 4)], SHAPE, True),
        ([Normalize(torch.zeros(16), torch.ones(16)), nn.Conv2d(2, 6, 8, 4)], SHAPE, False),
        ([nn.Conv2d(2, 6, 8, 4)], (2, 12, 18), False),
        ([nn.Conv2d(2, 6, 8, 3)], (2, 12, 15), False),
        ([nn.Conv2d(2, 6, 3, 1)], SHAPE, False),
        ([nn.Conv2d(2, 6, 8, 4, padding=2)], SHAPE, False),
        ([nn.Conv2d(2, 6, 8, (4, 2))], SHAPE, False),
        ([nn.Conv2d(2, 6, 2, 4, dilation=4)], SHAPE, False),
        ([nn.Conv2d(16, 6, 8, 4)], (16, 12, 16), False),
        ([nn.Flatten(), nn.Linear(384, 2)], SHAPE, False),
        ([nn.Tanh()], SHAPE, False),
    ],
)
def test_what_is_rearranged(layers, shape, pays):
    layout = picture_layout(chain(layers), shape)
    assert (layout is not None and layout.side > 1) is pays


CONV, STRIDED = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(2, 6, 8, 4, padding=2)


@every_case(
    ("nodes", "side"),
    [
        (chain([STRIDED]), 1),
        (chain([CONV, nn.MaxPool2d(2)]), 1),
        (chain([CONV]), None),
        (chain([Normalize(torch.zeros(2, 12, 16), torch.ones(1)), STRIDED]), 1),
        (chain([Permute((0, 3, 1, 2)), STRIDED]), None),
        ([Node(STRIDED, (0,)), Node(STRIDED, (0,)), Node(Join("sum"), (1, 2))], None),
        ([Node(nn.Conv2d(2, 6, 8, 4), (0,)), Node(nn.Flatten(), (0,))], None),
        ([Node(Join("sum"), (0, 0)), Node(STRIDED, (1,))], None),
    ],
)
def test_what_is_laid_out(nodes, side):
    layout = picture_layout(nodes, SHAPE)
    assert (layout and layout.side) == side


class Residual(nn.Module):
    """IMPALA's blocks."""

    def __init__(self):
        super().__init__()
        self.first, self.pool, self.second = (
            nn.Conv2d(2, 4, 3, padding=1),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(4, 4, 3, 1, 1),
        )
        self.head = nn.Linear(4 * 6 * 8, 3)

    def forward(self, x):
        y = self.pool(self.first(x))
        y = y + self.second(functional.relu(y))
        return self.head(functional.relu(y).flatten(1))


def residual():
    torch.manual_seed(0)
    return Residual().double()


def victim_of(net):
    return from_module(net, spaces.Box(-1, 1, SHAPE), spaces.Discrete(3), "logits")


@pytest.mark.parametrize("net", [cnn(), cnn(NORMAL), residual()], ids=["plain", "normalised", "residual"])
def test_rearranged_gradient(net):
    x, slope = torch.randn(3, *SHAPE, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    gradient = victim_of(net).layer_graph().input_gradient(lambda params: slope)
    layout, rearranged = gradient.rearranged(x)
    torch.testing.assert_close(layout.inverse(rearranged(layout(x))), gradient(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("attack", "budget", "low", "high"),
    [
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Linf(0.1), -1, 1),
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Linf(3), 0, 255),
        (lambda v: MaxDiff(v, steps=4, step=0.3, noise=1.0), Linf(0.1), -1, 1),
    ],
    ids=["pgd", "grid", "langevin"],
)
@pytest.mark.parametrize("net", [cnn])
def test_rearranged_attack(monkeypatch, attack, budget, low, high, net):
    victim = from_module(net(), spaces.Box(low, high, SHAPE), spaces.Discrete(3), "logits")
    grid = high == 255
    x = torch.randint(0, 256, (3, *SHAPE)).double() if grid else torch.rand(3, *SHAPE, dtype=torch.float64)
    made = [context(x, budget, low, high, grid=grid) for _ in range(2)]
    layouts = []
    plain = InputGradient.rearranged
    monkeypatch.setattr(
        InputGradient, "rearranged", lambda gradient, y: layouts.append(plain(gradient, y)) or layouts[-1]
    )
    rearranged = attack(victim)(x, made[0])
    monkeypatch.setattr(InputGradient, "rearranged", lambda gradient, y: None)
    straight = attack(victim)(x, made[1])
    assert layouts[0] is not None and not torch.equal(rearranged, x)
    torch.testing.assert_close(rearranged, straight, rtol=0, atol=1e-9)


def test_what_depends_on_places_is_not_rearranged(monkeypatch):
    victim = from_module(cnn(), spaces.Box(-1, 1, SHAPE), spaces.Discrete(3), "logits")
    monkeypatch.setattr(InputGradient, "rearranged", lambda gradient, y: pytest.fail("rearranged"))
    x = torch.rand(3, *SHAPE, dtype=torch.float64)
    for budget in (L2(0.5), Linf(0.1, scale=tuple([0.5] * 384))):
        assert MinBest(victim)(x, context(x, budget, -1, 1)).shape == x.shape
