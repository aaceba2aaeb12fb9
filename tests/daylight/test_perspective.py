"""Perspective: corners land where they are asked to, and patterns and norms are what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.core.budgets.budget import Valid
from adv_wrappers.core.spaces import Field
from adv_wrappers.daylight import Perspective, perspective
from adv_wrappers.daylight.perspective import PATTERNS, inverse_of
from adv_wrappers.daylight.warp import INTERPOLATIONS
from adv_wrappers.errors import ValueRangeError
from tests.daylight.helpers import at_step, pictures
from tests.every_case import every_case


def ends(height: int, width: int) -> np.ndarray:
    return np.array([(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)], np.float64)


def moves(count: int, size: tuple[int, int], most: float = 0.2) -> list[tuple[tuple[float, float], ...]]:
    """Random corners that stay convex, float32."""
    rng = np.random.default_rng(4)
    drawn = (rng.uniform(-most, most, (count, 4, 2)) * size[::-1]).astype("f4")
    return [tuple((float(x), float(y)) for x, y in one) for one in drawn]


@pytest.mark.parametrize("size", [(5, 7), (84, 84), (210, 160)])
def test_corners_land_where_they_are_asked_to(size):
    for corners in moves(30, size):
        inverse = np.reshape(inverse_of(corners, *size), (3, 3))
        target = ends(*size) + np.array(corners)
        at = np.column_stack([target, np.ones(4)]) @ inverse.T
        np.testing.assert_allclose(at[:, :2] / at[:, 2:], ends(*size), atol=1e-4)  # float32 corners


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_values_of_the_corners_land_there_too(interpolation):
    x = pictures(3, 40, 30, 4)
    for corners in (((2, 3), (-4, 1), (-1, -5), (6, 0)), ((0, 9), (0, 0), (-3, -3), (0, -8))):
        y = perspective(x, corners=corners, interpolation=interpolation)
        for (column, row), (right, down) in zip(ends(40, 30).astype(int), corners, strict=True):
            assert torch.equal(y[:, row + down, column + right], x[:, row, column])


@pytest.mark.usefixtures("backend")
def test_a_norm_of_zero_changes_nothing():
    for pattern in PATTERNS:
        for size in ((2, 2), (5, 7), (84, 84), (210, 160)):
            x = pictures(1, *size, 3)
            assert torch.equal(perspective(x, 0.0, pattern=pattern), x)


def test_a_pattern_shortens_the_side_that_it_names():
    x = pictures(1, 21, 31)
    sides = {"top": (0, 0), "bottom": (0, -1), "left": (1, 0), "right": (1, -1)}
    for pattern, (axis, at) in sides.items():
        y = perspective(x, 3, pattern=pattern, border="zero")[0]
        opposite = -1 if at == 0 else 0
        side = y.select(axis, at)
        assert (side[:3] == 0).all() and (side[-3:] == 0).all()
        assert (side[3:-3] != 0).float().mean() > 0.9
        assert torch.equal(y.select(axis, opposite), x[0].select(axis, opposite)), pattern


def test_patterns_are_corners():
    x = pictures(2, 19, 23)
    for pattern, corners in PATTERNS.items():
        assert max(math.hypot(*move) for move in corners) == 1
        given = tuple((1.5 * right, 1.5 * down) for right, down in corners)
        assert torch.equal(perspective(x, 1.5, pattern=pattern), perspective(x, corners=given))


@every_case("corners", [
    ((42, 0), (-42, 0), (0, 0), (0, 0)), ((0, 0), (0, 0), (0, 0), (100, -100)), ((50, 50), (0, 0), (0, 0), (0, 0)),
    ((83, 0), (0, 0), (0, 0), (0, 0)),
])  # fmt: skip
def test_corners_without_a_convex_quadrangle(corners):
    with pytest.raises(ValueRangeError, match="no convex quadrangle in a picture of 84 x 84"):
        perspective(pictures(1, 84, 84), corners=corners)


def test_a_norm_too_large_for_the_picture():
    with pytest.raises(ValueRangeError, match="convex"):
        perspective(pictures(1, 5, 7), 3)
    with pytest.raises(ValueRangeError, match="convex"):
        perspective(pictures(1, 1, 7), 0.5)
    assert torch.equal(perspective(pictures(1, 1, 7), 0.0), pictures(1, 1, 7))


@every_case(("how", "fits"), [
    (Perspective(5.9), True), (Perspective(6), False), (Perspective((1, 7)), False), (Perspective(0), True),
    (Perspective(corners=((12, 0), (-12, 0), (0, 0), (0, 0))), False),
])  # fmt: skip
def test_moves_too_wide_are_refused_at_wrapping(how, fits):
    field = Field(spaces.Box(0, 255, (13, 13), np.uint8), None, "observation")
    if fits:
        how.check(field, Valid())
    else:
        with pytest.raises(ValueRangeError, match="convex quadrangle in a picture of 13 x 13"):
            how.check(field, Valid())


@every_case("wrong", [
    {"norm": -1}, {"norm": math.nan}, {"norm": "1"}, {"pattern": "up"}, {"pattern": None}, {"border": "edge"},
    {"interpolation": "cubic"}, {"corners": ((0, 0),) * 3}, {"corners": ((0, 0, 0),) * 4}, {"corners": 3},
    {"corners": ((0, math.inf),) * 4}, {"corners": (("1", 0),) * 4},
])  # fmt: skip
def test_wrong_parameters(wrong):
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        perspective(pictures(1, 9, 9), **wrong)
    wrong = {"distance" if name == "norm" else name: value for name, value in wrong.items()}
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        Perspective(**wrong)


def test_given_corners_go_before_the_pattern():
    corners = ((1, 2), (-3, 0.5), (-2.25, -1), (0, -3))
    x = pictures(3, 30, 40)
    y = Perspective(9.0, "top", [list(move) for move in corners], "wrap", "nearest")(x, at_step(3, 0, 0))
    assert torch.equal(y, perspective(x, corners=corners, border="wrap", interpolation="nearest"))
