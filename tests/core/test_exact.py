"""Law 1 without any tolerance: whatever comes in, in whatever dtype, what comes out lies in the ball and the space."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import adv_wrappers as adv
from adv_wrappers.core.arrays import around, at_least, at_most
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.errors import SpaceError
from tests.every_case import every_case

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("uint8", "int8", "uint16", "int32", "int64")


def engine(how, budget, space, rows=2, device=None, at=None):
    threat = adv.ThreatModel("observation", how, budget, None, at)
    made = Engine(threat, Wrapped(space, spaces.Discrete(2), rows, device=device))
    made.begin_episode(0)
    return made


def far(sign):
    return lambda x, context: x + sign * (context.budget.eps if hasattr(context.budget, "eps") else 1) * 3


def within(y, x, budget, space):
    """Assert, in exact arithmetic, that a row lies in the ball around another and in the space widened to hold it."""
    gaps = [abs(Fraction(b) - Fraction(a)) for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)]
    if isinstance(budget, (adv.L0, adv.Sparse)):
        assert sum(gap > 0 for gap in gaps) <= budget.k, (x, y, budget)
    if isinstance(budget, (adv.Linf, adv.Sparse)):
        scale = budget.scale if isinstance(budget.scale, tuple) else (1.0 if budget.scale is None else budget.scale,)
        radii = [budget.eps * s for s in scale] * (len(gaps) if len(scale) == 1 else 1)
        slack = 1 + (1e-15 if y.dtype.kind in "iu" and budget.scale is not None else 0)
        assert all(gap <= Fraction(r) * Fraction(slack) for gap, r in zip(gaps, radii, strict=True)), (x, y, budget)
    elif isinstance(budget, adv.L2):
        assert math.sqrt(math.fsum(float(gap) ** 2 for gap in gaps)) <= budget.eps * (1 + 2e-15), (x, y, budget)
    low, high = np.minimum(space.low, x).flat, np.maximum(space.high, x).flat
    assert all(Fraction(a) <= Fraction(b) <= Fraction(c) for a, b, c in _finite(low, y.flat, high)), (x, y, space)


def _finite(low, y, high):
    for a, b, c in zip(low, y, high, strict=True):
        yield (b if np.isinf(a) else a).item(), b.item(), (b if np.isinf(c) else c).item()


@st.composite
def cases(draw):
    """A space, a batch as an environment may hand it out, a budget, and a perturbation."""
    integer = draw(st.booleans())
    kind = np.dtype(draw(st.sampled_from(INTEGERS if integer else FLOATS)))
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if integer:
        info = np.iinfo(kind)
        narrow = draw(st.booleans())
        low, high = (max(info.min, -9), min(info.max, 40)) if narrow else (info.min, info.max)
        space = spaces.Box(low, high, shape, kind)
        reach = draw(st.sampled_from([9, 200, 2**20]))
        x = rng.integers(max(low, -reach), min(high, reach), (2, *shape), endpoint=True)
        eps = draw(st.one_of(st.floats(1, 300), st.sampled_from([1.9999999999, 2.0])))
        given_as = draw(st.sampled_from([kind.name, "int64", "int32"]))
        given_as = kind.name if kind.itemsize < 4 and draw(st.booleans()) else given_as
    else:
        top = draw(st.sampled_from([1.0, 1e3, np.inf]))
        space = spaces.Box(-draw(st.sampled_from([0.1, np.inf])), top, shape, kind)
        size = draw(st.sampled_from([1e-7, 1.0, 1e3]))
        x = rng.normal(size=(2, *shape)) * size
        x[rng.random(x.shape) < 0.2] = draw(st.sampled_from([0.0, -0.0, 1e-41, -1e-12, 0.1, 1 / 3]))
        eps = draw(st.one_of(st.floats(1e-9, 1e4), st.sampled_from([0.1, 5.0])))
        given_as = draw(st.sampled_from([kind.name, "float32", "float64", "int64"]))
        x = np.clip(x, -6e4, 6e4) if kind == np.float16 else x
    budgets = [adv.Linf(eps), adv.Linf(eps, 1.5), adv.L2(eps), adv.L0(1), adv.Sparse(1, adv.Linf(eps, 1.5))]
    if np.prod(shape) > 1:
        budgets.append(adv.Linf(eps, tuple(float(i % 3) for i in range(int(np.prod(shape))))))
    budget = draw(st.sampled_from(budgets))
    if integer and not budget.bounded and not narrow and kind.itemsize == 8:
        budget = adv.Linf(eps)
    x = x.astype(given_as)
    draws = budget.bounded or space.is_bounded()  # as noise asks for
    return (
        space,
        x,
        budget,
        draw(st.sampled_from([1, -1, 0] if draws else [1, -1])),
        draw(st.sampled_from(["host", "single", "device"])),
    )


def applied(space, x, budget, sign, kind):
    """What comes out, as rows."""
    how = far(sign) if sign else (lambda x, context: context.draw())
    if kind == "host":
        view = np.empty((2 * len(x), *x.shape[1:]), x.dtype)[::-2]  # negative strides, and read-only
        view[...] = x
        view.flags.writeable = False
        return engine(how, budget, space).apply(view, True)
    if kind == "device":
        return engine(how, budget, space, device=torch.device("cpu")).apply(torch.from_numpy(x), True).numpy()
    return np.stack([engine(how, budget, space, rows=None).apply(row, True) for row in x])


@settings(max_examples=50, deadline=None)
@given(cases())
def test_nothing_leaves_its_budget_by_a_bit(case):
    space, x, budget, sign, kind = case
    y = applied(space, x, budget, sign, kind)
    if x.dtype.kind in "iu" and space.dtype.kind == "f":
        x = x.astype(space.dtype)  # which is what it stands for
    assert y.dtype == x.dtype
    for before, after in zip(x, y, strict=True):
        within(np.asarray(after), np.asarray(before), budget, space)


@settings(max_examples=50, deadline=None)
@given(
    st.floats(-3e4, 3e4, width=32), st.floats(0, 3e4, width=32),
    st.sampled_from([torch.float16, torch.float32, torch.float64]),
)  # fmt: skip
def test_around_is_the_tightest_pair_of_floats_of_arrays_and_of_tensors(x, r, dtype):
    x, r = torch.tensor([x]).to(dtype), at_most(torch.tensor(r, dtype=torch.float64), dtype)
    for side, same, out in zip(around(x, r), around(x.numpy(), r.numpy()), (-torch.inf, torch.inf), strict=True):
        assert abs(Fraction(side.item()) - Fraction(x.item())) <= Fraction(r.item()) and side.item() == same.item()
        further = torch.nextafter(side, torch.full_like(side, out))
        assert abs(Fraction(further.item()) - Fraction(x.item())) > Fraction(r.item())


def test_numbers_of_a_narrower_dtype_are_rounded_the_way_that_is_asked_for():
    values = torch.tensor([0.1, -0.1, 0.5, 1e300, -1e300, 1e-60, torch.inf], dtype=torch.float64)
    below, above = at_most(values, torch.float32).double(), at_least(values, torch.float32).double()
    assert (below <= values).all() and (above >= values).all() and below[2] == above[2] == 0.5
    assert (torch.nextafter(below[:2].float(), above[:2].float()) == above[:2].float()).all()


@pytest.mark.parametrize("kind", ["single", "host", "device"])
def test_integers_in_a_space_of_floats_are_not_cut_back(kind):
    """An eps of 0.1 moved them by 1."""
    space, x = spaces.Box(-9, 9, (2,), np.float32), np.array([[1, 2], [3, 4]])
    y = applied(space, x, adv.Linf(0.1), -1, kind)
    assert y.dtype == np.float32 and np.allclose(y, x - 0.1) and (x - y.astype(float) <= 0.1).all()


def test_rows_of_integers_that_are_not_attacked_stand_beside_floats():
    space, x = spaces.Box(-9, 9, (2,), np.float64), np.array([[1, 2], [3, 4]], np.int32)
    y = engine(far(1), adv.Linf(0.25), space).apply(x, np.array([True, False]))
    assert y.tolist() == [[1.25, 2.25], [3, 4]]


def test_integers_at_a_key_and_as_plain_numbers():
    space = spaces.Dict({"a": spaces.Box(-9, 9, (2,), np.float32), "b": spaces.Box(-9, 9, (1,), np.float32)})
    x = {"a": np.array([1, 2]), "b": np.array([3.0], np.float32)}
    for at, keys in (("a", "a"), (("a", "b"), "ab")):
        y = engine(far(1), adv.Linf(0.25), space, rows=None, at=at).apply(x, True)
        assert all(np.allclose(y[key], x[key] + 0.25) for key in keys)
    for value in (1, np.int64(1), np.asarray(1)):
        y = engine(far(1), adv.Linf(0.25), spaces.Box(-9, 9, (), np.float32), rows=None).apply(value, True)
        assert float(y) == 1.25


def test_doubles_in_a_space_of_floats_keep_their_digits():
    """Rounded to the space's float32 the true value itself moved by 31."""
    space, x = spaces.Box(-np.inf, np.inf, (1,), np.float32), np.array([[1e9 + 31]])
    y = engine(far(1), adv.Linf(1.0), space, rows=1).apply(x, True)
    assert y.dtype == np.float64 and abs(y[0, 0] - x[0, 0]) <= 1


def test_floats_in_a_space_of_integers_are_refused_as_arrays_and_as_tensors():
    space, x = spaces.Box(0, 255, (2,), np.uint8), np.zeros((1, 2), np.float32)
    for made, value in (
        (engine(far(1), adv.Linf(1), space, rows=1), x),
        (engine(far(1), adv.Linf(1), space, 1, torch.device("cpu")), torch.from_numpy(x)),
    ):
        with pytest.raises(SpaceError, match="expected integers"):
            made.apply(value, True)


@every_case("budget", [adv.Linf(1), adv.L2(1), adv.L0(1), adv.Sparse(1, adv.Linf(1))])
def test_a_space_without_elements_is_refused(budget):
    with pytest.raises(SpaceError, match="no elements"):
        engine(far(1), budget, spaces.Box(-1, 1, (0,), np.float32))


def test_a_length_on_the_grid_is_not_rounded_up():
    space, x = spaces.Box(0, 255, (2,), np.uint8), np.full((1, 2), 100, np.uint8)
    for budget in (adv.L2(1.99999999), adv.Linf(1.99999999)):
        assert np.abs(engine(far(9), budget, space, rows=1).apply(x, True).astype(int) - 100).max() == 1
    assert engine(far(9), adv.L2(2.0), space, rows=1).apply(x, True).sum() > 201
