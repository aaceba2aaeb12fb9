"""Folding: the same convolution and the same attack, laid out otherwise."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from adv_wrappers import Linf, MaxDiff, MinBest, Momentum, Valid, from_module
from adv_wrappers.core.budgets import L2
from adv_wrappers.networks.input_gradient import Fold, Normalize, Walk, chain_of, fold_of
from tests.core.helpers import context

SHAPE = (2, 12, 16)


def cnn(*before: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *before, nn.Conv2d(2, 6, 8, 4), nn.ReLU(), nn.Conv2d(6, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(10, 3)
    ).double()  # fmt: skip


def test_folding_is_undone():
    x, fold = torch.arange(2.0 * 2 * 12 * 16).view(2, *SHAPE), Fold(4)
    assert fold(x).shape == (2, 32, 3, 4) and fold(x)[1, 0, 0].tolist() == x[1, 0, 0, ::4].tolist()
    assert torch.equal(fold.back(fold(x)), x)


def test_folded_convolution():
    conv = nn.Conv2d(2, 6, 8, 4).double()
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    fold = fold_of([conv], SHAPE)
    torch.testing.assert_close(functional.conv2d(fold(x), fold(conv.weight), conv.bias), conv(x), rtol=0, atol=1e-12)


NORMAL = Normalize(torch.tensor([0.5]), torch.tensor([2.0]))


@pytest.mark.parametrize(
    ("layers", "shape", "folds"),
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
def test_what_folds(layers, shape, folds):
    assert (fold_of(layers, shape) is not None) is folds


@pytest.mark.parametrize("net", [cnn(), cnn(NORMAL)], ids=["plain", "normalised"])
def test_folded_walk(net):
    x, slope = torch.randn(3, *SHAPE, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    walk = chain_of(net).walk(lambda params: slope)
    fold, folded = walk.fold(x)
    torch.testing.assert_close(fold.back(folded(fold(x))), walk(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("attack", "budget", "low", "high"),
    [
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Linf(0.1), -1, 1),
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Valid(), -1, 1),
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Linf(3), 0, 255),
        (lambda v: Momentum(v, steps=4, step=0.3), Linf(0.1, scale=2.0), -1, 1),
        (lambda v: MaxDiff(v, steps=4, step=0.3, noise=1.0), Linf(0.1), -1, 1),
    ],
    ids=["pgd", "valid", "grid", "momentum", "langevin"],
)
def test_folded_attack(monkeypatch, attack, budget, low, high):
    victim = from_module(cnn(), spaces.Box(low, high, SHAPE), spaces.Discrete(3), "logits")
    grid = high == 255
    x = torch.randint(0, 256, (3, *SHAPE)).double() if grid else torch.rand(3, *SHAPE, dtype=torch.float64)
    made = [context(x, budget, low, high, grid=grid) for _ in range(2)]
    folds = []
    plain = Walk.fold
    monkeypatch.setattr(Walk, "fold", lambda walk, y: folds.append(plain(walk, y)) or folds[-1])
    folded = attack(victim)(x, made[0])
    monkeypatch.setattr(Walk, "fold", lambda walk, y: None)
    straight = attack(victim)(x, made[1])
    assert folds[0] is not None and not torch.equal(folded, x)
    torch.testing.assert_close(folded, straight, rtol=0, atol=1e-9)


def test_what_depends_on_places_is_not_folded(monkeypatch):
    victim = from_module(cnn(), spaces.Box(-1, 1, SHAPE), spaces.Discrete(3), "logits")
    monkeypatch.setattr(Walk, "fold", lambda walk, y: pytest.fail("folded"))
    x = torch.rand(3, *SHAPE, dtype=torch.float64)
    for budget in (L2(0.5), Linf(0.1, scale=tuple([0.5] * 384))):
        assert MinBest(victim)(x, context(x, budget, -1, 1)).shape == x.shape
