"""Rotation: quarter turns are exact, the direction and the middle are right, and values lie where geometry has them."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
import torch

from adv_wrappers.daylight import Rotation, rotate
from adv_wrappers.daylight.rotation import rotation_matrix
from adv_wrappers.daylight.warp import BORDERS, INTERPOLATIONS
from adv_wrappers.errors import ValueRangeError
from tests.daylight.helpers import pictures
from tests.every_case import every_case


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("border", "interpolation"), [*zip(BORDERS, 2 * INTERPOLATIONS, strict=True)])
def test_quarter_turns_of_square_pictures(border, interpolation):
    how = {"border": border, "interpolation": interpolation, "layout": "HWF"}
    for side in (1, 3, 7, 33, 85):
        x = pictures(2, side, side, 3)
        for degrees in (0, 90, 180, 270, -90, 360, 450):
            expected = np.rot90(x.numpy(), degrees // 90, (1, 2))
            np.testing.assert_array_equal(rotate(x, degrees, **how).numpy(), expected, f"{side} {degrees}")
        y = x
        for _ in range(4):
            y = rotate(y, 90, **how)
        assert torch.equal(y, x)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("size", [(6, 9), (84, 84), (210, 160)])
def test_half_turns_of_any_picture(size):
    x = pictures(1, *size, 3)
    assert torch.equal(rotate(x, 180), x.flip(1, 2))


def test_the_matrix_is_opencvs():
    rng = np.random.default_rng(3)
    for degrees, column, row in rng.normal(0, 100, (50, 3)):
        center = float(np.float32(column)), float(np.float32(row))  # OpenCV holds the middle in float32
        expected = cv2.getRotationMatrix2D(center, degrees, 1)
        np.testing.assert_allclose(np.reshape(rotation_matrix(degrees, center), (2, 3)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(21, 21), (40, 61)])
def test_values_lie_where_geometry_has_them(size):
    """A plane ``p + q * column + r * row`` stays a plane, turned about the middle: counter-clockwise as one looks."""
    height, width = size
    p, q, r = 0.5, 0.4 / width, -0.3 / height
    row, column = np.mgrid[:height, :width] - np.array([(height - 1) / 2, (width - 1) / 2]).reshape(2, 1, 1)
    for degrees in (-30, -3, 1.4, 10, 77):
        turn = math.radians(degrees)
        there = math.cos(turn) * column - math.sin(turn) * row, math.sin(turn) * column + math.cos(turn) * row
        inside = (np.abs(there[0]) <= (width - 1) / 2) & (np.abs(there[1]) <= (height - 1) / 2)
        y = rotate(torch.from_numpy(p + q * column + r * row)[None], degrees)[0].numpy()
        far = np.abs(y - (p + q * there[0] + r * there[1]))[inside]
        assert far.max() <= (abs(q) + abs(r)) / 32, degrees  # coordinates are multiples of 1/32


def test_counter_clockwise():
    x = torch.zeros(1, 5, 5, dtype=torch.uint8)
    x[0, 0, 2] = 200  # twelve o'clock goes to nine
    assert rotate(x, 90.0).nonzero().tolist() == [[0, 2, 0]]


def test_another_center_stays_in_place():
    x = pictures(1, 9, 11)
    y = rotate(x, 33.0, center=(2, 7))
    assert y[0, 7, 2] == x[0, 7, 2]
    assert torch.equal(rotate(x, 33.0, center=(5, 4)), rotate(x, 33.0))
    assert not torch.equal(y, rotate(x, 33.0))


def test_the_darkest_value_enters():
    x = torch.ones(1, 9, 9)
    assert rotate(x, 45.0, border="zero")[0, 0, 0] == 0
    assert rotate(x, 45.0, border="zero", limits=(-2, 1))[0, 0, 0] == -2
    assert (rotate(x, 45.0) == 1).all()


@every_case("wrong", [
    {"degrees": math.nan}, {"degrees": "3"}, {"degrees": True}, {"border": "edge"}, {"border": None},
    {"interpolation": "cubic"},
])  # fmt: skip
def test_wrong_parameters(wrong):
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        rotate(pictures(1, 4, 4), **{"degrees": 3, **wrong})
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        Rotation(**wrong)


def test_a_wrong_center():
    with pytest.raises(ValueRangeError, match="center must be"):
        rotate(pictures(1, 4, 4), 3, center=(0, math.inf))
