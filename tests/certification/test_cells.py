"""Grids of cells: cutting and joining lose nothing."""

from __future__ import annotations

import numpy as np
import pytest

from adv_wrappers.certification import cells
from adv_wrappers.certification.cells import CellGrid
from adv_wrappers.errors import ValueRangeError


def boxes(count=200, size=3, seed=0):
    random = np.random.default_rng(seed)
    low = random.normal(size=(count, size))
    return low, low + random.exponential(0.3, (count, size)), random.normal(size=count)


@pytest.mark.parametrize("at_once", [2**18, 50])
def test_hulls_hold_every_point(monkeypatch, at_once):
    monkeypatch.setattr(cells, "CUT_AT_ONCE", at_once)
    low, high, values = boxes()
    grid = CellGrid(np.array([0.1, 0.0, -0.3]), np.array([0.2, 0.3, 0.5]), np.full(3, np.inf))
    numbers, first, last, least = grid.hulls(low, high, values)
    assert len(np.unique(numbers)) == len(numbers) < 3000 and (first <= last).all()
    random = np.random.default_rng(1)
    for row in range(len(low)):
        for point in low[row] + random.uniform(size=(20, 3)).round(1) * (high[row] - low[row]):
            held = ((first <= point) & (point <= last)).all(1)
            assert held.any() and least[held].min() <= values[row]
    corner, opposite = grid.cells(numbers)
    assert (corner <= first).all() and (last <= opposite).all() and (opposite - corner < grid.sides * 1.001).all()
    assert (first.min(0) == low.min(0)).all() and (last.max(0) == high.max(0)).all()


def test_axes_repeat():
    grid = CellGrid(np.array([-np.pi, 0.0]), np.array([2 * np.pi / 8, 1.0]), np.array([2 * np.pi, np.inf]))
    one, low, high, _ = grid.hulls(np.array([[3.0, 0.2]]), np.array([[3.3, 0.4]]), np.zeros(1))
    assert len(one) == 2 and low[:, 0].min() == pytest.approx(-np.pi) and high[:, 0].max() == pytest.approx(np.pi)
    assert sorted(high[:, 0])[0] == pytest.approx(3.3 - 2 * np.pi)
    far, *_ = grid.hulls(np.array([[3.0 - 6 * np.pi, 0.2]]), np.array([[3.3 - 6 * np.pi, 0.4]]), np.zeros(1))
    assert far.tolist() == one.tolist()


def test_cells_that_are_too_far_away_are_refused():
    grid = CellGrid(np.zeros(4), np.full(4, 1e-6), np.full(4, np.inf))
    with pytest.raises(ValueRangeError, match="within 16384 cells"):
        grid.hulls(np.ones((1, 4)), np.ones((1, 4)), np.zeros(1))
    assert grid.pieces(np.ones((1, 4)), np.ones((1, 4))) == np.inf


def test_pieces_are_counted_before_boxes_are_cut():
    grid = CellGrid(np.zeros(2), np.array([0.5, 2 * np.pi / 8]), np.array([np.inf, 2 * np.pi]))
    low, high = np.array([[0.1, 0.1], [10.2, 0.1]]), np.array([[1.1, 1.0], [10.3, 8 * np.pi + 0.1]])
    assert grid.pieces(low, high) == 3 * 2 + 1 * 33
    assert len(grid.hulls(low[:1], high[:1], np.zeros(1))[0]) == 6
