"""Ascents against straightforward versions of themselves."""

from __future__ import annotations

import math

import pytest
import torch

from adv_wrappers.attacks.gradient_attack import check_steps, langevin, momentum, pgd
from adv_wrappers.core import rng
from adv_wrappers.core.budgets import L2, Linf
from adv_wrappers.errors import ValueRangeError
from tests.core.helpers import context, mlp, randn

NET = mlp(4, 1)
LOW, HIGH, EPS = -1.5, 1.5, 0.4


def gradient(y):
    with torch.enable_grad():
        leaf = y.detach().requires_grad_()
        return torch.autograd.grad(NET(leaf).sum(), leaf)[0]


def clip(y, x, eps=EPS):
    return y.clamp(x - eps, x + eps).clamp(LOW, HIGH)


def start(rows=6, budget=None):
    x = randn(rows, 4).clamp(LOW, HIGH)
    return x, context(x, budget or Linf(EPS), LOW, HIGH)


@pytest.mark.parametrize("random_start", [False, True])
def test_pgd(random_start):
    x, made = start()
    y = x
    if random_start:
        y = clip(x + EPS * (2 * rng.uniform(rng.fold(made.key, 1), (4,), x.dtype) - 1), x)
    for _ in range(7):
        y = clip(y + 0.3 * EPS * gradient(y).sign(), x)
    torch.testing.assert_close(pgd(made, gradient, 7, 0.3, random_start), y, rtol=0, atol=1e-14)


def test_pgd_in_l2():
    x, made = start(budget=L2(EPS))
    y = x
    for _ in range(7):
        g = gradient(y)
        delta = y + 0.3 * EPS * g / g.norm(dim=1, keepdim=True)
        delta = delta.clamp(LOW, HIGH) - x
        y = x + delta * (EPS / delta.norm(dim=1, keepdim=True)).clamp(max=1)
    torch.testing.assert_close(pgd(made, gradient, 7, 0.3), y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov):
    x, made = start()
    y, total = x, torch.zeros_like(x)
    for _ in range(6):
        look = clip(y + 0.2 * 0.5 * EPS * total.sign(), x) if nesterov else y
        g = gradient(look)
        total = 0.5 * total + g / g.abs().sum(1, keepdim=True)
        y = clip(y + 0.2 * EPS * total.sign(), x)
    torch.testing.assert_close(momentum(made, gradient, 6, 0.2, 0.5, nesterov), y, rtol=0, atol=1e-14)


def test_without_decay_momentum_is_pgd():
    x, made = start()
    assert torch.equal(momentum(made, gradient, 6, 0.2, 0.0), pgd(start()[1], gradient, 6, 0.2)) and len(x) == 6


def test_momentum_survives_a_zero_gradient():
    x, made = start()
    assert torch.equal(momentum(made, torch.zeros_like, 3, 0.2, 0.5), x)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_langevin(noise):
    x, made = start()
    y = clip(x + 0.2 * EPS * rng.signs(rng.fold(made.key, 1), (4,), x.dtype), x)
    jitters = rng.normal(rng.fold(made.key, 2), (5, 4), x.dtype)
    for i in range(5):
        y = clip(y + 0.2 * EPS * (gradient(y) + noise * math.sqrt(2 * 0.2 * EPS) / (i + 2) * jitters[:, i]).sign(), x)
    torch.testing.assert_close(langevin(made, gradient, 5, 0.2, noise), y, rtol=0, atol=1e-14)


ASCENTS = {
    "pgd": lambda c: pgd(c, gradient, 5, 0.3, True),
    "momentum": lambda c: momentum(c, gradient, 5, 0.3, 0.5, True),
    "langevin": lambda c: langevin(c, gradient, 5, 0.3, 1.0),
}


@pytest.mark.parametrize("name", ASCENTS)
@pytest.mark.parametrize("budget", [Linf(EPS), L2(EPS)], ids=repr)
def test_rows_do_not_depend_on_their_batch(name, budget):
    whole = ASCENTS[name](start(6, budget)[1])
    for rows in (1, 3):
        x = start(6, budget)[0][:rows]
        torch.testing.assert_close(ASCENTS[name](context(x, budget, LOW, HIGH)), whole[:rows], rtol=0, atol=1e-12)


@pytest.mark.parametrize("budget", [Linf(1.0), Linf(3.0), L2(3.0)], ids=repr)
def test_on_a_grid_every_iterate_is_a_point_of_it(budget):
    """At eps of one level a tenth of a step would be rounded away."""
    x = torch.randint(0, 256, (5, 4), generator=torch.Generator().manual_seed(0)).double()
    visited = []

    def steep(y):
        visited.append(y.clone())
        return gradient(y / 100)

    made = context(x, budget, 0, 255, grid=True)
    y = pgd(made, steep, 10, 0.1)
    assert len(visited) == 10 and all(torch.equal(v, v.round()) for v in [*visited, y])
    assert ((y != x).any(1)).all() and torch.equal(visited[0], x)
    expected = 1.0 if budget == Linf(1.0) else 3.0
    assert (y - x).abs().max() <= expected
    assert (NET(y / 100) > NET(x / 100)).all()


@pytest.mark.parametrize(
    ("steps", "step"), [(0, 0.1), (1.0, 0.1), (True, 0.1), (1, 0), (1, -1.0), (1, math.inf), (1, math.nan), (1, "a")]
)
def test_bad_steps(steps, step):
    with pytest.raises(ValueRangeError, match="step"):
        check_steps(steps, step)
