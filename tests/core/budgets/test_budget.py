"""Properties that every budget has, on random shapes, dtypes, radii, and true values in and out of the space."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import L0, L2, Budget, Linf, Sparse, Valid
from adv_wrappers.core.serialization import decode
from adv_wrappers.errors import BudgetError
from tests.core.helpers import context
from tests.every_case import every_case


@dataclass
class Case:
    """A budget, true values, proposals, and the box as the engine makes it."""

    budget: Budget
    x: Tensor
    y: Tensor
    space: tuple[Tensor, Tensor]
    grid: bool
    seed: int

    @property
    def widened(self) -> tuple[Tensor, Tensor]:
        return torch.minimum(self.space[0], self.x), torch.maximum(self.space[1], self.x)

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        low, high = self.budget.box(self.x, *self.widened)
        return (low.ceil(), high.floor()) if self.grid else (low, high)

    def project(self, y: Tensor) -> Tensor:
        return self.budget.project(y.clone(), self.x, *self.box, self.grid)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows, shape = draw(st.integers(1, 3)), tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    grid = draw(st.booleans())
    dtype = torch.float32 if grid else draw(st.sampled_from([torch.float32, torch.float64]))
    size = int(np.prod(shape))
    radius = st.floats(1, 300) if grid else st.one_of(st.just(0.0), st.floats(1e-3, 100))
    scales = st.one_of(
        st.none(), st.floats(1, 3), st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=size, max_size=size)
    )
    kinds = {
        "linf": lambda: Linf(draw(radius), tuple(s) if isinstance(s := draw(scales), list) else s),
        "l2": lambda: L2(draw(radius)),
        "l0": lambda: L0(draw(st.integers(0, size + 1))),
        "sparse": lambda: Sparse(draw(st.integers(0, size + 1)), kinds["linf"]()),
        "valid": Valid,
    }
    budget = kinds[draw(st.sampled_from(sorted(kinds)))]()
    seed = draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    reach = 255.0 if grid else draw(st.sampled_from([1.0, 1000.0]))
    x = (torch.rand(rows, *shape, generator=generator, dtype=dtype) * 1.6 - 0.3) * reach  # also out of the space
    y = x + torch.randn(rows, *shape, generator=generator, dtype=dtype) * draw(st.sampled_from([0.1, 10.0, 1000.0]))
    space = torch.zeros(shape, dtype=dtype), torch.full(shape, reach, dtype=dtype)
    return Case(budget, x.round() if grid else x, y, space, grid, seed)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_projection(case):
    y = case.project(case.y)
    assert y.shape == case.x.shape and y.dtype == case.x.dtype
    low, high = case.box
    assert ((y >= low) & (y <= high)).all(), "the box holds every feasible point"
    again = case.project(y)
    if case.grid or not isinstance(case.budget, L2):
        assert torch.equal(again, y), "idempotent to the bit"
    else:
        rounding = 8 * torch.finfo(y.dtype).eps * float(case.x.abs().max() + case.y.abs().max())
        torch.testing.assert_close(again, y, rtol=0, atol=rounding)
    assert torch.equal(case.project(case.x), case.x), "the true value is feasible"


@settings(max_examples=60, deadline=None)
@given(cases())
def test_draws_do_not_depend_on_the_batch(case):
    draws = context(case.x, case.budget, seed=case.seed)
    y = case.project(case.budget.draw(case.x, *case.box, draws, case.grid))
    if not isinstance(case.budget, L0):  # whose draw the projection has to cut to k again
        raw = case.budget.draw(case.x, *case.box, context(case.x, case.budget, seed=case.seed), case.grid)
        torch.testing.assert_close(raw, y)
    low, high = (b[:1] for b in case.box)
    one = case.budget.draw(case.x[:1], low, high, context(case.x[:1], case.budget, seed=case.seed), case.grid)
    torch.testing.assert_close(case.budget.project(one, case.x[:1], low, high, case.grid), y[:1])


@settings(max_examples=50, deadline=None)
@given(cases())
def test_direction_is_of_length_one_and_climbs(case):
    g = case.y - case.x
    kept = g.clone()
    d = case.budget.direction(g)
    assert torch.equal(g, kept), "the gradient is the caller's"
    rows, d_rows = g.reshape(len(g), -1), d.reshape(len(g), -1)
    assert ((rows * d_rows).sum(1) >= 0).all()
    ones = torch.ones(len(g), dtype=g.dtype)
    if isinstance(case.budget, L2):
        torch.testing.assert_close(d_rows.norm(dim=1), ones)
    elif isinstance(case.budget, L0):
        torch.testing.assert_close(d_rows.abs().amax(1), ones * min(case.budget.k, 1))
        assert ((d_rows != 0).sum(1) <= case.budget.k).all()
    elif isinstance(case.budget, Sparse):
        unit = case.budget.in_units(torch.ones_like(g)).reshape(len(g), -1)
        assert ((d_rows.abs() == unit) | (d_rows == 0)).all() and ((d_rows != 0).sum(1) <= case.budget.k).all()
    else:
        scale = getattr(case.budget, "scale", None)
        unit = torch.tensor(scale if isinstance(scale, tuple) else [1.0 if scale is None else scale], dtype=g.dtype)
        torch.testing.assert_close(d_rows.abs(), (unit * torch.ones_like(d_rows)).where(rows != 0, 0))


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from([Linf(0), L2(0), L0(0), Linf(0, 3.0), Sparse(1, Linf(0)), Sparse(0, Linf(1))]))
def test_nothing_to_spend_changes_nothing_to_the_bit(case, budget):
    case.budget = budget
    case.x = torch.where(case.x > case.x.mean(), -0.0, case.x)
    y = case.project(case.y)
    assert y.numpy().tobytes() == case.x.numpy().tobytes()


@every_case("budget", [Linf(2.5), Linf(1, 2.0), Linf(1, (2.0,)), Valid()])
def test_grid_draws_cover_all_integers_evenly(budget):
    x = torch.full((20000, 1), 2.0 if budget == Valid() else 9.0)
    low, high = budget.box(x, torch.zeros(1), torch.full((1,), 4.0 if budget == Valid() else 20.0))
    y = budget.draw(x, low.ceil(), high.floor(), context(x, budget), grid=True)
    values, counts = y.unique(return_counts=True)
    assert values.tolist() == [float(x[0]) + d for d in range(-2, 3)]
    assert (counts - 4000).abs().max() < 5 * (20000 * 0.2 * 0.8) ** 0.5


@pytest.mark.parametrize("budget", [Linf(2.0), Valid()], ids=repr)
def test_uniform_draws_are_uniform_in_the_box(budget):
    x = torch.zeros(20000, 1, dtype=torch.float64)
    low, high = budget.box(x, torch.full((1,), -2.0), torch.full((1,), 2.0))
    y = budget.draw(x, low, high, context(x, budget)).flatten()
    gap = (y.sort().values / 4 + 0.5 - (torch.arange(20000) + 0.5) / 20000).abs().max()
    assert gap < 1.95 / 20000**0.5


def test_a_value_that_is_no_number_is_refused():
    for value in (-1, float("nan"), float("inf"), True, "1", None, [1]):
        with pytest.raises(BudgetError, match=r"eps must be a finite number .* got " + re.escape(repr(value))):
            Linf(value)
    assert Linf(np.float32(0.5)).eps == 0.5 and Linf(np.int64(2)).eps == 2.0


@every_case("budget", [Linf(0.5), Linf(1, (0.0, 2.0)), Linf(1, "victim"), L2(3), L0(4), Sparse(2, Linf(1)), Valid()])
def test_budgets_are_values(budget):
    assert decode(budget.to_dict()) == budget and hash(decode(budget.to_dict())) == hash(budget)


def test_keys_are_left_as_they_are():
    x = torch.zeros(3, 2)
    made = context(x, Linf(1))
    before = made.key.clone()
    made.draw(), made.normal(), made.signs()
    assert torch.equal(made.key, before) and not torch.equal(made.uniform(), rng.uniform(before, (2,), x.dtype))
