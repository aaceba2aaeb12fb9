"""HopSkipJump: what it finds by decisions alone, inside of budgets and from outside of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import HopSkipJump
from adv_wrappers.attacks.hop_skip_jump import BoundarySearch, plan
from adv_wrappers.core.budgets.budget import L2, Linf, Sparse
from adv_wrappers.victims import from_module
from tests.attacks.helpers import anywhere, flips
from tests.core.helpers import box, chooser, context, linear, mlp, randn

X = randn(64, 2)


def test_it_finds_what_an_exhaustive_grid_finds():
    eps = 0.3
    victim = chooser(mlp(2, 3), "q", size=2)
    there = anywhere(victim, X, eps)
    y = HopSkipJump(victim, queries=200)(X, context(X, Linf(eps)))
    assert ((y - X).abs() <= eps + 1e-12).all()
    assert 0.1 < there.double().mean() < 1 and flips(victim, X, y)[there].double().mean() > 0.9


def test_it_walks_to_a_plane_that_random_points_never_reach():
    """A linear victim of 40 features: the nearest change of action is known, and 0.6 of the budget away."""
    budget, norm = L2(0.3), 2
    weight = randn(40, seed=3)
    rows = randn(32, 40, seed=4)
    offset = -rows @ weight - 0.6 * budget.eps * torch.linalg.vector_norm(weight, norm)

    class Plane(nn.Module):
        def forward(self, y):
            lead = y @ weight + offset
            return torch.stack([torch.zeros_like(lead), lead], 1)

    made, victim = context(rows, budget), _probed(Plane(), 40, 32)
    assert not any(flips(victim, rows, made.noise(kind)).any() for kind in ("uniform", "sign") for _ in range(20))
    y = HopSkipJump(victim)(rows, context(rows, budget))
    assert flips(victim, rows, y).double().mean() > 0.9
    torch.testing.assert_close(y, budget.project(y, rows, *made.box))


def _probed(net, size, rows):
    """A victim around a net that knows how many rows it will be asked for, and is probed with two."""

    class Told(nn.Module):
        def forward(self, y):
            return net(y) if len(y) == rows else y[:, :2]

    return from_module(Told(), box(size), spaces.Discrete(2), "q", dtype=torch.float64)


def test_nothing_but_the_action_is_looked_at():
    """Scores that say nothing more than the action, and those that say more, are attacked alike."""
    net = mlp(4, 3)
    scores = chooser(net, "q")
    actions = chooser(lambda y: nn.functional.one_hot(net(y).argmax(-1), 3).double(), "q", dtype=torch.float64)
    assert scores.differentiable and not actions.differentiable
    x, how = randn(16, 4), {"queries": 80}
    y = HopSkipJump(scores, **how)(x, context(x, Linf(0.3)))
    assert torch.equal(HopSkipJump(actions, **how)(x, context(x, Linf(0.3))), y)


def test_functions_on_arrays():
    weight = randn(4, 3).numpy()
    victim = from_module(lambda o: o.astype(np.float64) @ weight, box(4), spaces.Discrete(3), "q", dtype=torch.float64)
    x = randn(32, 4)
    assert flips(victim, x, HopSkipJump(victim, queries=80)(x, context(x, Linf(1.0)))).double().mean() > 0.8


def test_answers_lie_behind_the_boundary():
    """Of a linear victim within reach, the last step goes on where the boundary would be lost to rounding."""
    victim = chooser(linear(randn(2, 4)), "q", actions=2)
    x = randn(64, 4)
    made = context(x, Linf(1.0))
    y = HopSkipJump(victim, queries=200)(x, made)
    changed = flips(victim, x, y)
    assert changed.double().mean() > 0.7
    lead = victim.params(y).diff(dim=1).abs()[changed, 0]
    reach = randn(2, 4).diff(dim=0).abs().sum()
    assert lead.median() > 0.2 * reach


@pytest.mark.parametrize("budget", [Linf(3.0, (0.0, 1.0, 2.0, 1.0)), L2(6.0), Sparse(2, Linf(3.0))])
def test_whole_numbers(budget):
    net = mlp(4, 3)
    victim = chooser(lambda y: net(y / 20), "q", dtype=torch.float64)
    x = (20 * randn(48, 4)).round()
    made = context(x, budget, -100, 100, True)
    y = HopSkipJump(victim, queries=100)(x, made)
    assert torch.equal(y, y.round()) and torch.equal(y, budget.project(y, x, *made.box, True))
    adversary = flips(victim, x, context(x, budget, -100, 100, True).draw())
    assert flips(victim, x, y).sum() > adversary.sum() or adversary.all()


def test_what_cannot_be_turned_stays_in_the_budget():
    stubborn = chooser(lambda y: torch.stack([y[:, 0] * 0 + 1, y[:, 0] * 0], 1), "q", actions=2, dtype=torch.float64)
    far = chooser(lambda y: torch.stack([y[:, 0] * 0, y[:, 0] - 8.0], 1), "q", actions=2, dtype=torch.float64)
    x = randn(16, 4)
    for victim in (stubborn, far):
        for budget in (Linf(1.0), L2(1.0)):
            made = context(x, budget)
            y = HopSkipJump(victim, queries=120)(x, made)
            assert y.isfinite().all() and not flips(victim, x, y).any()
            torch.testing.assert_close(y, budget.project(y, x, *made.box))
            if victim is far:  # the nearest point that was found, drawn back: up to the edge that looks there
                assert (y - x)[:, 0].mean() > 0.3


def test_distances():
    x = torch.zeros(3, 2)
    made = context(x, Linf(0.5, (1.0, 2.0)), -9, 0.25)
    walk = BoundarySearch(chooser(linear(randn(2, 2)), size=2, actions=2), made)
    y = torch.tensor([[-0.25, -1.0], [0.25, -4.0], [0.0, 0.0]])
    torch.testing.assert_close(walk.far(y), torch.tensor([1.0, 4.0, 0.0]))
    walk.started = torch.ones(3, dtype=torch.bool)
    half = walk.toward(y, walk.far(y), torch.tensor([0.5, 0.25, 0.5]))
    torch.testing.assert_close(half, torch.tensor([[-0.25, -0.5], [0.25, -1.0], [0.0, 0.0]]))


def test_queries_are_counted():
    asked = []

    def counted(y):
        asked.append(len(y))
        return y[:, :3]

    victim = chooser(counted, "q", dtype=torch.float64)
    for queries in (16, 61, 200):
        asked.clear()
        HopSkipJump(victim, queries=queries)(randn(5, 4), context(randn(5, 4), Linf(0.1)))
        assert asked == [5] * queries
    tries, probes = plan(500)
    assert tries == 100 and probes == [round(25 * t**0.5) for t in range(1, 8)]
