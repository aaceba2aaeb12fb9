"""What is particular to each ball."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.core.budgets.budget import L0, L2, Linf, Sparse
from adv_wrappers.errors import BudgetError
from tests.core.helpers import actor, context, linear, randn
from tests.every_case import every_case

FREE = (torch.tensor(-torch.inf), torch.tensor(torch.inf))


def check(budget, size=3, grid=False):
    budget.check(np.zeros(size), np.ones(size), grid)


@every_case("bad", [-0.1, float("nan"), float("inf"), True, "0.1", None])
def test_a_radius_is_a_finite_number(bad):
    for ball in (Linf, L2):
        with pytest.raises(BudgetError, match="eps"):
            ball(bad)
    with pytest.raises(BudgetError, match="k"):
        L0(bad)


def test_errors_of_a_scale():
    with pytest.raises(BudgetError, match="'victim'"):
        Linf(1, "agent")
    with pytest.raises(BudgetError, match="from 0 to"):
        Linf(1, (1.0, -1.0))
    with pytest.raises(BudgetError, match="2 numbers for a space of 3"):
        check(Linf(1, (1.0, 1.0)))
    with pytest.raises(BudgetError, match="needs a victim"):
        check(Linf(1, "victim"))
    with pytest.raises(BudgetError, match="k must be an integer"):
        L0(1.5)


@every_case("budget", [Linf(0.5), Linf(0.1, 9.0), Linf(0.1, (1.0, 9.0, 0.0)), L2(0.99)])
def test_less_than_a_grey_level_is_an_error_that_says_what_to_do(budget):
    with pytest.raises(BudgetError, match="quantize=False"):
        check(budget, grid=True)
    check(budget)


@every_case("budget", [Linf(0), Linf(1), Linf(0.5, 2.0), Linf(0.1, (0.0, 10.0, 1.0)), Linf(0.5, 0.0), L2(1)])
def test_a_grey_level_or_nothing_at_all_is_fine(budget):
    check(budget, grid=True)


def test_scales_become_plain_numbers():
    assert Linf(1, torch.tensor([1.0, 2.0])) == Linf(1, [1, 2]) == Linf(1, np.array([1, 2])) == Linf(1.0, (1.0, 2.0))
    assert Linf(1, 2).scale == 2.0 and hash(Linf(1, [1, 2])) == hash(Linf(1, (1, 2)))


def test_the_victims_own_unit():
    victim = actor(linear(randn(3, 4)), scale=torch.tensor([1.0, 2.0, 0.5, 0.0]))
    budget = Linf(0.5, "victim").resolve(victim)
    assert budget == Linf(0.5, (1.0, 2.0, 0.5, 0.0)) and budget.resolve(victim) is budget
    assert Linf(0.5, "victim").resolve(None) == Linf(0.5, "victim")
    with pytest.raises(BudgetError, match="none"):
        Linf(0.5, "victim").resolve(actor(linear(randn(3, 4))))


def test_linf_moves_every_feature_by_its_own_scale():
    x = torch.zeros(2, 3)
    low, high = Linf(0.5, (1.0, 2.0, 0.0)).box(x, *FREE)
    assert low.tolist() == [[-0.5, -1.0, 0.0]] * 2 and high.tolist() == [[0.5, 1.0, 0.0]] * 2
    made = context(x, Linf(0.5, (1.0, 2.0, 0.0)))
    assert made.ascend(x, torch.tensor([[1.0, -3.0, 9.0]] * 2), 0.5).tolist() == [[0.25, -0.5, 0.0]] * 2


def test_l2_projects_to_the_nearest_point():
    x, y = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])
    assert torch.allclose(L2(1).project(y, x, *FREE), torch.tensor([[0.6, 0.8]]))
    assert torch.equal(L2(5).project(y, x, *FREE), y)
    assert torch.equal(L2(4).project(y, x, *FREE, grid=True), torch.tensor([[2.0, 3.0]]))  # the nearest that fits


@pytest.mark.parametrize("grid", [False, True])
def test_the_sides_of_the_l2_box_do_not_bend_the_projection(grid):
    """The box is the smallest around the ball: clamping to it first would turn (100, 30) into the diagonal."""
    x = torch.full((1, 2), 128.0)
    made = context(x, L2(10.5), 0, 255, grid)
    delta = made.project(x + torch.tensor([[100.0, 30.0]])) - x
    if grid:
        assert delta.tolist() == [[10.0, 3.0]]
    else:
        assert torch.allclose(delta, 10.5 * torch.tensor([[100.0, 30.0]]) / 10900**0.5)
    bounded = context(torch.tensor([[253.0, 128.0]]), L2(10.5), 0, 255, grid)  # but what the space takes is not spent
    delta = bounded.project(bounded.x + torch.tensor([[100.0, 30.0]])) - bounded.x
    assert abs(delta.norm() - 10.5) < (1.5 if grid else 1e-4) and 0 < delta[0, 0] <= 2 and delta[0, 1] > 9


def test_l2_directions_of_tiny_gradients_do_not_underflow():
    g = torch.tensor([[3e-30, 4e-30], [3e30, 4e30], [0.0, 0.0]])
    assert torch.allclose(L2(1).direction(g), torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]))


def test_l2_on_a_grid_spends_its_budget_on_the_elements_that_matter():
    """Spread evenly over an image, every change would round to nothing."""
    x = torch.full((2, 28, 28), 100.0)
    g = randn(2, 28, 28, dtype=torch.float32)
    made = context(x, L2(5.0), 0, 255, grid=True)
    y = made.ascend(x, g, 1.0)
    delta = (y - x).flatten(1)
    assert delta.norm(dim=1).tolist() == [5.0, 5.0] and (delta.abs() <= 1).all()
    top = g.flatten(1).abs().topk(25).indices
    assert torch.equal(delta.gather(1, top), g.flatten(1).gather(1, top).sign())
    drawn = (made.draw() - x).flatten(1)
    assert (drawn.norm(dim=1) > 4.5).all() and not torch.equal(drawn[0], drawn[1])
    pushed = made.ascend(y, -g, 1.0)
    assert torch.equal(pushed, x), "the way back undoes the way there"


def test_l2_draws_fill_the_ball():
    x = torch.zeros(20000, 2, dtype=torch.float64)
    radius = context(x, L2(2.0)).draw().norm(dim=1)
    gap = ((radius / 2).square().sort().values - (torch.arange(20000) + 0.5) / 20000).abs().max()
    assert gap < 1.95 / 20000**0.5  # the area within r grows as r squared


def test_l0_keeps_the_largest_changes():
    x, y = torch.zeros(1, 4), torch.tensor([[1.0, -5.0, 0.5, 3.0]])
    assert L0(2).project(y, x, *FREE).tolist() == [[0.0, -5.0, 0.0, 3.0]]
    assert L0(4).project(y, x, *FREE).tolist() == y.tolist() and L0(0).project(y, x, *FREE).tolist() == x.tolist()


def test_l0_draws_choose_elements_evenly():
    x = torch.full((8000, 4), 0.5)
    changed = context(x, L0(1), 0, 1).draw() != x
    assert (changed.sum(1) <= 1).all()
    assert (changed.sum(0) - 2000).abs().max() < 5 * (8000 * 0.25 * 0.75) ** 0.5


@every_case("budget", [Linf(1), L2(1), L0(1), Sparse(1, Linf(1))])
def test_rows_without_features_dimensions(budget):
    """Discrete actions are ``[B]``."""
    x = torch.tensor([1.0, 2.0])
    y = budget.project(x + 3, x, x - 1, x + 1)
    assert y.tolist() == [2.0, 3.0] and budget.direction(torch.tensor([-4.0, 0.0])).tolist() == [-1.0, 0.0]
    assert context(x, budget, 0, 3, grid=True).draw().shape == (2,)


def test_spaces_bound_the_box_too():
    x = torch.tensor([[0.9], [1.5]])  # the second lies out of the space
    low, high = Linf(0.3).box(x, torch.minimum(torch.tensor(-1.0), x), torch.maximum(torch.tensor(1.0), x))
    assert torch.allclose(low, torch.tensor([[0.6], [1.2]])) and high.tolist() == [[1.0], [1.5]]


def test_box_spaces_of_integers_round_inwards():
    space = spaces.Box(0, 255, (2,), np.uint8)
    made = context(torch.tensor([[0.0, 254.0]]), Linf(1.7), float(space.low[0]), float(space.high[0]), grid=True)
    assert made.low.tolist() == [[0.0, 253.0]] and made.high.tolist() == [[1.0, 255.0]]
