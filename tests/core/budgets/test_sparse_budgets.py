"""Budgets of few features: what is particular to them, and that searches spend all that they allow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.attacks.gradient_attack import pgd
from adv_wrappers.core.arrays import largest
from adv_wrappers.core.budgets.budget import L0, L2, Feasible, Linf, Sparse, Valid
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import BudgetError
from adv_wrappers.threats.presets import as_threat
from tests.core.helpers import actor, context, linear, mlp, randn
from tests.every_case import every_case

SCALED = Linf(0.5, (1.0, 2.0, 0.0, 0.5))


def moved(x, y):
    return (y != x).flatten(1).sum(1)


def best_linear(budget, x, g, low, high):
    """The largest ``g (y - x)`` within the budget, ``[B]``: the top k of what each feature alone may gain."""
    gain = torch.where(g > 0, (high - x) * g, (low - x) * g)
    return gain.flatten(1).topk(min(budget.k, gain[0].numel())).values.sum(1)


def test_bad_arguments_are_refused():
    for k in (-1, 1.5, "2", None, True):
        with pytest.raises(BudgetError, match="k must be an integer from 0 to"):
            Sparse(k, Linf(1))
    for within in (L2(1), Valid(), L0(1), 0.1, None):
        with pytest.raises(BudgetError, match=r"such as Sparse\(2, Linf\(0.1\)\), got"):
            Sparse(1, within)
    with pytest.raises(BudgetError, match="2 numbers for a space of 3"):
        Sparse(1, Linf(1, (1.0, 1.0))).check(np.zeros(3), np.ones(3), False)
    with pytest.raises(BudgetError, match="quantize=False"):
        Sparse(1, Linf(0.5)).check(np.zeros(3), np.ones(3), True)
    with pytest.raises(BudgetError, match="needs a victim"):
        Sparse(1, Linf(0.5, "victim")).check(np.zeros(3), np.ones(3), False)
    with pytest.raises(BudgetError, match="discrete actions have no distance"):
        ThreatModel("action", adv.ActionNoise(), Sparse(1, Linf(1))).check(
            spaces.Box(0, 1, (2,)), spaces.MultiDiscrete([2, 2])
        )


def test_the_victims_own_unit():
    victim = actor(linear(randn(3, 4)), scale=torch.tensor([1.0, 2.0, 0.5, 0.0]))
    budget = Sparse(2, Linf(0.5, "victim")).resolve(victim)
    assert budget == Sparse(2, Linf(0.5, (1.0, 2.0, 0.5, 0.0))) and budget.resolve(victim) is budget
    assert (budget.eps, budget.scale, budget.bounded, budget.elementwise) == (0.5, budget.within.scale, True, False)


def test_the_changes_that_are_largest_in_their_own_units_stay():
    x, y = torch.zeros(1, 4), torch.tensor([[0.4, -0.6, 9.0, 0.25]])
    made = context(x, Sparse(2, SCALED))
    assert torch.equal(made.project(y), torch.tensor([[0.4, 0.0, 0.0, 0.25]]))  # of their radii 0.8, 0.6, none and 1
    assert torch.equal(context(x, Sparse(9, SCALED)).project(y), torch.tensor([[0.4, -0.6, 0.0, 0.25]]))
    assert context(x, Sparse(0, SCALED)).project(y).tolist() == x.tolist()
    plain = context(x, Sparse(1, Linf(0.5))).project(torch.tensor([[0.4, -0.6, 0.1, 0.25]]))
    assert plain.tolist() == [[0.0, -0.5, 0.0, 0.0]]


def test_the_box_and_the_spread_are_those_of_linf():
    x = torch.tensor([[10.0, 254.0]])
    space = torch.zeros(1, 2), torch.full((1, 2), 255.0)
    for own, inner in zip(Sparse(1, Linf(1.7)).grid_box(x, *space), Linf(1.7).grid_box(x, *space), strict=True):
        assert torch.equal(own, inner)
    x = torch.zeros(1, 4)
    assert (
        torch.equal(Sparse(1, SCALED).spread(x, x, x), SCALED.spread(x, x, x)) and Sparse(1, SCALED).unit(x, x) == 0.5
    )


def test_the_direction_is_that_of_the_features_that_gain_most():
    g = torch.tensor([[1.0, -0.8, 9.0, 1.5], [0.0, 0.0, 0.0, 0.0]])
    assert Sparse(2, SCALED).direction(g).tolist() == [[1.0, -2.0, 0.0, 0.0], [0.0] * 4]  # gains 1, 1.6, 0, 0.75


@pytest.mark.parametrize("budget", [L0(1), Sparse(1, Linf(0.25))], ids=repr)
def test_draws_choose_evenly_among_the_elements_that_can_change(budget):
    x = torch.full((6000, 4), 0.5)
    made = context(x, budget, 0, 1)
    made.box[0][:, 0] = made.box[1][:, 0] = 0.5  # as an old frame under Newest
    for y in (made.draw(), made.noise("sign")):
        assert (moved(x, y) <= 1).all()
        changed = (y != x).sum(0)
        assert changed[0] == 0 and (changed[1:] - 2000).abs().max() < 5 * (6000 * 2 / 9) ** 0.5
    assert (made.noise("sign") - x).abs().amax() == (0.5 if isinstance(budget, L0) else 0.25)


def test_draws_are_uniform_in_their_range():
    x = torch.zeros(4000, 2, dtype=torch.float64)
    y = context(x, Sparse(1, Linf(2.0))).draw()
    drawn = y[y != 0].sort().values
    assert (drawn / 4 + 0.5 - (torch.arange(len(drawn)) + 0.5) / len(drawn)).abs().max() < 1.95 / len(drawn) ** 0.5


CASES = list(
    itertools.product(
        (Sparse(1, Linf(0.3)), Sparse(2, Linf(0.3)), Sparse(3, Linf(0.3, (1.0, 0.2, 3.0, 0.0, 1.0, 2.0)))), (1, 4, 10)
    )
)


@every_case(("budget", "steps"), CASES)
def test_an_ascent_reaches_the_best_point_of_a_linear_objective(budget, steps):
    """Exactly, by one step and by as many as cover the radius, also where the space leaves a feature little room."""
    x, g = torch.rand(64, 6, generator=torch.Generator().manual_seed(0)), randn(64, 6, dtype=torch.float32)
    made = context(x, budget, 0.0, 1.0)
    y = made.project(pgd(made, lambda at: g, steps, 1.01 / steps))
    assert (moved(x, y) <= budget.k).all()
    torch.testing.assert_close(((y - x) * g).sum(1), best_linear(budget, x, g, *made.box), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 10])
def test_an_ascent_on_a_grid_does_too(steps):
    x, g = torch.randint(0, 256, (64, 6)).float(), randn(64, 6, dtype=torch.float32)
    made = context(x, Sparse(2, Linf(5.0)), 0, 255, grid=True)
    y = pgd(made, lambda at: g, steps, 1.0 / steps)
    torch.testing.assert_close(((y - x) * g).sum(1), best_linear(made.budget, x, g, *made.box))


@pytest.mark.parametrize("steps", [2, 10])
def test_l0_reaches_the_best_point_of_a_linear_objective(steps):
    x, g = torch.rand(64, 6), randn(64, 6, dtype=torch.float32)
    made = context(x, L0(2), 0.0, 1.0)
    y = pgd(made, lambda at: g, steps, 2.1 / steps)  # the unit of the space is half its width
    torch.testing.assert_close(((y - x) * g).sum(1), best_linear(made.budget, x, g, *made.box))


def test_a_feature_that_was_chosen_first_makes_way():
    """The objective rises along the first feature for a third of its radius; then the second one gains more."""
    x = torch.zeros(1, 3)

    def gradient(y):
        return torch.where(y[:, :1] < 0.3, torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.1, 1.0, 0.0]]))

    made = context(x, Sparse(1, Linf(1.0)))
    y = pgd(made, gradient, 4, 0.3)
    assert y.tolist()[0] == [0.0, 1.0, 0.0] or float(y[0, 0]) >= 0.3
    second = made.ascend(torch.tensor([[0.3, 0.0, 0.0]]), gradient(torch.tensor([[0.3, 0.0, 0.0]])), 0.3)
    torch.testing.assert_close(second, torch.tensor([[0.0, 0.6, 0.0]]))  # and goes on from where the row was


def test_where_nothing_is_to_be_gained_nothing_is_undone():
    x, y = torch.zeros(2, 3), torch.tensor([[0.0, 0.2, 0.0], [0.0, 0.0, -0.1]])
    made = context(x, Sparse(1, Linf(0.5)))
    assert torch.equal(made.ascend(y, torch.zeros(2, 3), 0.1), y)
    tiny = made.ascend(x, torch.tensor([[0.0, 1e-38, 2e-38], [0.0, 0.0, 1e30]]), 1.0)
    assert tiny.tolist() == [[0.0, 0.0, 0.5], [0.0, 0.0, 0.5]]
    lost = made.ascend(x, torch.tensor([[1.0, torch.nan, 2.0], [3.0, 0.0, 0.0]]), 1.0)
    assert lost[0].isnan().any() or lost[0, 1] == 0  # a sign of NaN is NaN: it is never traded for a number
    free = context(x, L0(1))
    endless = Feasible(x, *free.box, False)  # a space without bounds
    assert torch.equal(free.budget.ascend(y, torch.zeros(2, 3), 0.1, endless), y)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("select", ["last", "best"])
def test_attacks_come_close_to_the_best_choice_of_features(k, select):
    """The same attack within every choice of k features, whose best is found by trying all."""
    net = mlp(5, 3, seed=2)
    victim = adv.from_module(net, spaces.Box(-9, 9, (5,), np.float64), spaces.Discrete(3), "logits")
    how = adv.MinBest(victim, steps=10, keep=select)
    x = randn(40, 5, seed=3)

    def loss(y):
        return -torch.log_softmax(net(y), 1).gather(1, net(x).argmax(1, keepdim=True))[:, 0].detach()

    def attacked(budget):
        made = context(x, budget, -9, 9)
        return loss(made.project(how(x, made)))

    masks = [tuple(float(i in kept) for i in range(5)) for kept in itertools.combinations(range(5), k)]
    best = torch.stack([attacked(Linf(0.3, mask)) for mask in masks]).amax(0)
    noise = torch.stack([loss(context(x, Sparse(k, Linf(0.3)), seed=seed).draw()) for seed in range(10)]).mean(0)
    found = attacked(Sparse(k, Linf(0.3)))
    assert (found - loss(x)).sum() > 0.9 * (best - loss(x)).sum()
    assert (found > noise).double().mean() > 0.9


def test_restarts_begin_at_other_features():
    made = context(torch.zeros(8, 6), Sparse(1, Linf(1.0)))
    from adv_wrappers.attacks.restarts import RestartPoints

    starts = RestartPoints(made)
    assert starts(0) is None
    changed = torch.stack([(starts(number) != 0).any(0) for number in range(1, 7)])
    assert changed.any(0).all() and (torch.stack([moved(made.x, starts(n)) for n in (1, 2)]) <= 1).all()


def test_old_frames_stay_under_newest():
    budget = Newest(Sparse(2, Linf(3.0)))
    threat = ThreatModel("observation", adv.Noise(), budget)
    assert ThreatModel.from_dict(threat.to_dict()) == threat
    field = threat.check(spaces.Box(0, 255, (4, 6, 6), np.uint8), spaces.Discrete(2))
    assert field.shape == (4, 6, 6)


def test_texts_and_words():
    threat = adv.threat("noise", eps=0.1, norm="sparse(2)", scale=(1, 2))
    assert threat.within == Sparse(2, Linf(0.1, (1, 2)))
    assert as_threat(threat, eps=0.3).within == Sparse(2, Linf(0.3, (1, 2)))
    assert as_threat(threat, eps=0.3, norm="sparse( 1 )", scale=None).within == Sparse(1, Linf(0.3))
    assert as_threat("noise:eps=0.1,norm=sparse(3)").within == Sparse(3, Linf(0.1))
    for norm in ("sparse", "sparse()", "sparse(-1)", "sparse(2"):
        with pytest.raises(BudgetError, match=r"norm must be linf, l2, l0, sparse\(2\) for two features or valid"):
            adv.threat("noise", eps=0.1, norm=norm)
    with pytest.raises(BudgetError, match=r"scale belongs to norm=linf and sparse, got norm=l2"):
        adv.threat("noise", eps=0.1, norm="l2", scale=2.0)
    with pytest.raises(BudgetError, match="needs a budget"):
        adv.threat("noise", norm="sparse(2)")


def test_of_equal_changes_the_first_stay():
    """Whichever ``topk`` would take: that differs between devices."""
    x = torch.zeros(3, 40)
    y = torch.where(torch.arange(40) % 3 > 0, 1.0, 0.0) * torch.tensor([[1.0], [-1.0], [0.0]])
    got = L0(4).project(y, x, torch.full_like(x, -2.0), torch.full_like(x, 2.0))
    assert got.nonzero().tolist() == [[row, i] for row in (0, 1) for i in (1, 2, 4, 5)]


def test_nan_counts_as_the_largest():
    assert largest(torch.tensor([[1.0, torch.nan, 3.0, 3.0]]), 2).tolist() == [[False, True, True, False]]
