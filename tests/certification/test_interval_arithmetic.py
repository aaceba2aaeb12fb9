"""Interval arithmetic: nothing that the operands hold leads out of the result, and simple results are tight."""

from __future__ import annotations

import numpy as np
import pytest

from adv_wrappers.certification.interval_dynamics import Interval
from tests.every_case import every_case

OPERATIONS = {
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "subtract": (lambda x, y: x - y, lambda x, y: x - y),
    "multiply": (lambda x, y: x * y, lambda x, y: x * y),
    "divide": (lambda x, y: x / y, lambda x, y: x / y),
    "square": (lambda x, y: x.square(), lambda x, y: x * x),
    "cos": (lambda x, y: x.cos(), lambda x, y: np.cos(x)),
    "sin": (lambda x, y: x.sin(), lambda x, y: np.sin(x)),
}


@every_case("name", OPERATIONS)
def test_results_hold_every_number(name):
    bounded, exact = OPERATIONS[name]
    random = np.random.default_rng(0)
    width = 10.0 ** random.uniform(-9, 1, (2, 500))
    low = random.normal(size=(2, 500)) * 5
    x, y = (Interval(first, first + side) for first, side in zip(low, width, strict=True))
    found = bounded(x, y)
    share = np.concatenate(
        [random.uniform(size=(200, 2, 500)), np.indices((2, 2)).reshape(2, 4).T[:, :, None] * np.ones(500)]
    )
    points = np.minimum(low + share * width, low + width)
    values = exact(points[:, 0], points[:, 1])
    assert (found.low <= values).all() and (values <= found.high).all()
    assert (found.low < found.high).all()  # rounded outwards
    if name not in ("divide", "cos", "sin"):  # of two occurrences at most, both ends are reached
        assert (
            found.high - found.low <= np.ptp(values, axis=0) + 0.2 * (found.high - found.low) + 1e-12
        ).all() or name == "square"


def test_divisors_with_zero_give_no_bounds():
    found = Interval(np.array([1.0]), np.array([2.0])) / Interval(np.array([-1.0]), np.array([1.0]))
    assert found.low == -np.inf and found.high == np.inf


def test_squares_are_of_one_number():
    found = Interval(np.array([-2.0]), np.array([1.0])).square()
    assert found.low == 0 and found.high == pytest.approx(4)


def test_waves_reach_their_ends():
    wide = Interval(np.array([-0.1, 3.0, 0.5]), np.array([0.1, 3.3, 0.6]))
    cos = wide.cos()
    assert cos.high[0] == 1 and cos.low[1] == -1
    assert cos.low[2] == pytest.approx(np.cos(0.6)) and cos.high[2] == pytest.approx(np.cos(0.5))
    assert Interval(np.array([1.5]), np.array([1.6])).sin().high == 1


def test_radii_reach_both_ends():
    x = Interval(np.array([0.1, -3.0]), np.array([0.7, 5e9]))
    assert (x.middle - x.radius <= x.low).all() and (x.middle + x.radius >= x.high).all()
