"""A grid of cells: boxes are cut along it, joined within its cells, and a victim is asked once about each cell."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.certification.shown_boxes import ShownBoxes
from adv_wrappers.core.types import Floats, Integers
from adv_wrappers.errors import ValueRangeError

SPLITS = 1  # how often a cell is halved at most
SHARE = 0.5  # of the budget's effect on the victim's choice, below which that of a cell's size is small enough
CUT_AT_ONCE = 2**18  # pieces of boxes


class CellGrid:
    """A grid of cells, by which boxes are cut and joined.

    Args:
        origin: a corner of the grid, ``[D]``.
        sides: the sides of a cell, ``[D]``.
        periods: after how much an axis repeats, a whole number of cells; infinity for those that do not. ``[D]``.
    """

    def __init__(self, origin: Floats, sides: Floats, periods: Floats) -> None:
        self.origin, self.sides, self.periods = origin, sides, periods
        self._bits = 62 // len(sides)

    def hulls(self, low: Floats, high: Floats, values: Floats) -> tuple[Integers, Floats, Floats, Floats]:
        """Boxes ``[N, D]`` cut along the grid, and the hull of what falls within each cell.

        Returns:
            Numbers of cells ``[M]``, hulls ``[M, D]`` twice, and the least of the ``values`` in each, ``[M]``.
        """
        first, last = self._places(low, high)
        found = np.empty(0, np.int64), low[:0], high[:0], values[:0]
        ends = np.cumsum((last - first + 1).prod(1))
        row = 0
        while row < len(low):
            before = ends[row - 1] if row else 0
            until = max(int(np.searchsorted(ends, before + CUT_AT_ONCE)), row + 1)
            part = slice(row, until)
            cut = self._cut(first[part], last[part], low[part], high[part], values[part])
            found = joined(*(np.concatenate(pair) for pair in zip(found, cut, strict=True)))
            row = until
        return found

    def pieces(self, low: Floats, high: Floats) -> float:
        """Into how many pieces :meth:`hulls` cuts boxes ``[N, D]``, all together; infinity where it would raise."""
        first, last = self._places(low, high)
        once = np.isinf(self.periods)
        if not (self._numbered(first) & self._numbered(last))[:, once].all():
            return math.inf
        return float((last - first + 1.0).prod(1).sum())

    def _places(self, low: Floats, high: Floats) -> tuple[Integers, Integers]:
        """The indices of the first and the last cell of boxes along every axis, ``[N, D]`` twice."""
        first = np.floor((low - self.origin) / self.sides).astype(np.int64)
        return first, np.maximum(np.ceil((high - self.origin) / self.sides).astype(np.int64) - 1, first)

    def _cut(
        self, first: Integers, last: Integers, low: Floats, high: Floats, values: Floats
    ) -> tuple[Integers, Floats, Floats, Floats]:
        """The pieces of boxes that lie in the cells from ``first`` to ``last``."""
        for axis, (origin, side) in enumerate(zip(self.origin, self.sides, strict=True)):
            counts = last[:, axis] - first[:, axis] + 1
            if counts.max() == 1:
                continue
            rows = np.repeat(np.arange(len(counts)), counts)
            place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
            first, last, low, high, values = first[rows], last[rows], low[rows], high[rows], values[rows]
            index = first[:, axis] + place
            # the outermost pieces keep the ends of their boxes, whatever dividing has rounded
            low[:, axis] = np.where(place == 0, low[:, axis], origin + index * side)
            high[:, axis] = np.where(index == last[:, axis], high[:, axis], origin + (index + 1) * side)
            first[:, axis] = index
            last[:, axis] = index
        for axis, period in enumerate(self.periods):
            if np.isfinite(period):
                count = round(period / self.sides[axis])
                turns = first[:, axis] // count
                first[:, axis] -= turns * count
                room = np.where(turns == 0, 0.0, 1e-12 * (1 + np.abs(turns)))
                low[:, axis] -= turns * period + room
                high[:, axis] -= turns * period - room
        return self._number(first), low, high, values

    def _numbered(self, index: Integers) -> NDArray[np.bool_]:
        """Where indices are within those that a cell's number has room for."""
        half = 1 << (self._bits - 1)
        return (index >= -half) & (index < half)

    def _number(self, index: Integers) -> Integers:
        half = 1 << (self._bits - 1)
        if not self._numbered(index).all():
            raise ValueRangeError(f"expected states within {half} cells of sides {self.sides} around {self.origin}")
        number = np.zeros(len(index), np.int64)
        for axis in range(index.shape[1]):
            number = (number << self._bits) | (index[:, axis] + half)
        return number

    def cells(self, numbers: Integers) -> tuple[Floats, Floats]:
        """The cells of these numbers, as boxes ``[N, D]`` that hold whatever is cut to lie in them."""
        size, half = len(self.sides), 1 << (self._bits - 1)
        shifts = self._bits * np.arange(size - 1, -1, -1)
        index = (numbers[:, None] >> shifts & (1 << self._bits) - 1) - half
        room = 1e-9 * (self.sides + np.abs(self.origin) + np.abs(index * self.sides))
        return self.origin + index * self.sides - room, self.origin + (index + 1) * self.sides + room


def joined(numbers: Integers, low: Floats, high: Floats, values: Floats) -> tuple[Integers, Floats, Floats, Floats]:
    """Hulls of the boxes of one number, and the least of their values."""
    found, place = np.unique(numbers, return_inverse=True)
    return (
        found,
        least_of(place, len(found), low),
        -least_of(place, len(found), -high),
        least_of(place, len(found), values),
    )


def least_of(place: Integers, count: int, rows: Floats) -> Floats:
    """The least of the rows ``[N, ...]`` of every place, elementwise; infinity where there are none."""
    index = torch.from_numpy(place).view(-1, *[1] * (rows.ndim - 1)).expand(rows.shape)
    out = torch.full((count, *rows.shape[1:]), math.inf, dtype=torch.float64)
    return out.scatter_reduce_(0, index, torch.from_numpy(np.ascontiguousarray(rows)), "amin").numpy()


class CellActions:
    """What a victim may do in the cells of a grid; computed once for each cell, when it is first asked for.

    Args:
        shown: the victim under its budget.
        grid: the grid.
    """

    def __init__(self, shown: ShownBoxes, grid: CellGrid) -> None:
        self._shown, self._grid = shown, grid
        size = len(grid.sides)
        self._numbers = np.empty(0, np.int64)
        # of a discrete action the hull of the parts of a cell in which it is possible; of others their bounds
        shape = (0, shown.count, size) if shown.count else (0, 1)
        self._low, self._high = np.empty(shape), np.empty(shape)

    def of(self, numbers: Integers, low: Floats, high: Floats) -> Iterator[tuple[Integers, Floats, Floats, Floats]]:
        """For every action the rows in which it is possible, the boxes in which it is, and the action.

        Args:
            numbers: cells, ``[N]``.
            low, high: boxes in these cells, ``[N, D]``.

        Yields:
            Rows ``[M]``, boxes ``[M, D]`` twice, and what :meth:`IntervalDynamics.step` takes as actions.
        """
        place = np.searchsorted(self._numbers, numbers)
        place[place == len(self._numbers)] = 0
        known = self._numbers[place] == numbers if len(self._numbers) else np.zeros(len(numbers), bool)
        if not known.all():
            self._add(numbers[~known])
        place = np.searchsorted(self._numbers, numbers)
        if not self._shown.count:
            yield np.arange(len(numbers)), low, high, np.stack([self._low[place], self._high[place]], 1)
            return
        for action in range(self._shown.count):
            first, last = np.maximum(low, self._low[place, action]), np.minimum(high, self._high[place, action])
            rows = np.flatnonzero((first <= last).all(1))
            yield rows, first[rows], last[rows], np.full(len(rows), self._shown.start + action, np.float64)

    def _add(self, numbers: Integers) -> None:
        low, high = self._grid.cells(numbers)
        found = self._split(low, high) if self._shown.count else self._shown.bounds(low, high)
        numbers = np.concatenate([self._numbers, numbers])
        order = np.argsort(numbers)
        self._numbers = numbers[order]
        self._low, self._high = (
            np.concatenate([known, new])[order] for known, new in zip((self._low, self._high), found, strict=True)
        )

    def _split(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """For every box and action the hull of the parts in which it is possible, ``[N, A, D]``."""
        count, actions, size = len(low), self._shown.count, low.shape[1]
        least, most = np.full((count * actions, size), np.inf), np.full((count * actions, size), -np.inf)
        cell = np.arange(count)
        effect, budget = np.zeros((count, size)), np.zeros(count)
        for splits in range(SPLITS + 1):
            possible = self._shown.possible(low, high)
            open_ = possible.sum(1) > 1
            if splits == 0 and open_.any():  # a part is taken to have the slopes of its cell
                effect[open_], budget[open_] = self._shown.effects(low[open_], high[open_])
            done = ~open_ | (effect.sum(1) <= SHARE * budget) | (splits == SPLITS)
            rows, action = np.nonzero(possible & done[:, None])
            place = cell[rows] * actions + action
            np.minimum(least, least_of(place, len(least), low[rows]), out=least)
            np.maximum(most, -least_of(place, len(least), -high[rows]), out=most)
            low, high, cell, effect, budget = low[~done], high[~done], cell[~done], effect[~done], budget[~done]
            if not len(low):
                break
            row, axis, first, last = np.arange(len(low)), effect.argmax(1), low.copy(), high.copy()
            first[row, axis] = last[row, axis] = (low[row, axis] + high[row, axis]) / 2
            effect[row, axis] /= 2
            low, high = np.concatenate([low, first]), np.concatenate([last, high])
            cell, effect, budget = np.tile(cell, 2), np.tile(effect, (2, 1)), np.tile(budget, 2)
        return least.reshape(count, actions, size), most.reshape(count, actions, size)
