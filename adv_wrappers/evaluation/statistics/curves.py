"""Curves over a column of many rows, such as the return over eps: what is drawn, and the same as a table.

Every point is a mean with its interval
(:func:`~adv_wrappers.evaluation.statistics.confidence_intervals.mean_interval`). Where several victims fall into one
point, it is over their means, so that it allows for which agents were trained; of one victim it is over all episodes of
all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.stored_rows import RowSource, StoredRow, read_rows
from adv_wrappers.evaluation.statistics.confidence_intervals import (
    MARK,
    caveat,
    cut,
    footnotes,
    marked_interval,
    mean_interval,
)
from adv_wrappers.evaluation.statistics.return_range import described_range
from adv_wrappers.registry import CURVES_BY, CurvesBy
from adv_wrappers.rendering.plots import BandedLine, LinesPanel, plot_lines
from adv_wrappers.rendering.table import Tabular, TextTable
from adv_wrappers.utils.checks import check_choice, finite_float
from adv_wrappers.utils.number_text import number_text

_OF_EPISODES = {  # columns that a row has of every episode, by what they are asked for as
    "return": "returns", "length": "lengths", "attacked": "attacked_fractions", "loss": "losses",
}  # fmt: skip
_PAIRED = ("regret", "impact")  # which compare every episode with the clean one


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve.

    Attributes:
        x: where it is.
        mean: of its values.
        low, high: the 95% interval of the mean; None where there is but one value.
        count: how many values.
        of: what the values are of: ``"episodes"``, ``"victims"``, or ``"rows"`` of one victim, one figure each.
        episodes: how many were played.
        caveat: why the interval is none of 95%, or None.
    """

    x: float
    mean: float
    low: float | None
    high: float | None
    count: int
    of: str
    episodes: int
    caveat: str | None


@dataclass(frozen=True)
class Curves(Tabular):
    """What :func:`curves_of` found.

    Attributes:
        x, y, hue, col: the names of what is on the axes, what curves are by, and what panels are by, or None.
        curves: the points of every curve from left to right, by its panel and its label: the values of the columns
            ``col`` (empty where there is one panel) and ``hue``, in the order of their rows.
        notes: what was left out.
    """

    x: str
    y: str
    hue: str
    col: str | None
    curves: Mapping[tuple[str, str], tuple[CurvePoint, ...]]
    notes: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a point, as values that JSON knows: the columns' values, and those of :class:`CurvePoint`."""
        found = []
        for (panel, label), points in self.curves.items():
            names = {**({self.col: panel} if self.col else {}), self.hue: label}
            for point in points:
                figures = asdict(point)
                found.append({**names, self.x: figures.pop("x"), **figures})
        return found

    def table(self) -> TextTable:
        """The table, one row a point; below it are the notes, and what a mark means."""
        names = (self.col, self.hue) if self.col else (self.hue,)
        rows = []
        for row in self.rows():
            over = f"{row['count']} {row['of'] if row['count'] > 1 else row['of'].removesuffix('s')}"
            figures = (f"{row[self.x]:g}", number_text(row["mean"]), marked_interval(row), over)
            rows.append((*(row[name] for name in names), *figures))
        title, columns = f"{self.y} over {self.x}", (*names, self.x, self.y, "95% interval", "over")
        first = (self.hue, self.x, self.y, "95% interval", *(names if self.col else ()))
        return TextTable(title, columns, tuple(rows), tuple(self._notes()), texts=names, by_importance=first)

    def _notes(self) -> list[str]:
        """What a mark means, and the notes."""
        return [*footnotes(self.rows()), *self.notes]

    def plot(self, path: str | Path) -> None:
        """Write a figure: a line with its band for every curve, and a panel for every value of ``col``.

        The file's name says what it is, ``.png``, ``.svg`` or ``.pdf``; :class:`ValueRangeError` for another.
        """
        panels: dict[str, list[BandedLine]] = {}
        for (panel, label), points in self.curves.items():
            x, y = [point.x for point in points], [point.mean for point in points]
            low = [math.nan if point.low is None else point.low for point in points]
            high = [math.nan if point.high is None else point.high for point in points]
            weak = [point.caveat is not None for point in points]
            panels.setdefault(panel, []).append(BandedLine(label, x, y, low, high, weak))
        labels = self.x, f"{self.y} (mean and 95% interval)"
        notes = [text.replace(MARK, "open points:") for text in self._notes()]
        plot_lines([LinesPanel(*one) for one in panels.items()], path, f"{self.y} by {self.x}", labels, notes)


def curves_of(
    source: RowSource, x: str = "eps", y: str = "return", hue: CurvesBy = "threat", col: CurvesBy | None = None
) -> Curves:
    """Curves from the rows of a store, a folder or reports.

    Args:
        source: as for :func:`adv_wrappers.aggregate`.
        x: ``"eps"``, ``"seed"``, ``"training_steps"`` of a RobustnessCallback, or an argument of threats such as
            ``"steps"``. Curves go over it, so it has numbers. Over eps every curve begins at 0 with the clean run, and
            over a training's steps the clean runs are a curve of their own.
        y: ``"return"``, ``"regret"``, ``"impact"``, ``"length"``, ``"loss"``, ``"attacked"``, or a column of rows such
            as ``"action_change"``. A column, or a distance, has one number a row; attacked is the attacked share of an
            episode.
        hue: what curves are by. A threat is without what ``x`` goes over.
        col: what panels are by; None takes one panel.

    Raises:
        ValueRangeError: for a source without rows, a column that is not there, and rows of several threats or
            environments that would fall into one curve.
        StoreError: for a file that is damaged, no store, or of another release.
    """
    check_choice("hue", hue, CURVES_BY)
    check_choice("col", col, (*CURVES_BY, None))
    # the rows that have a place on the axis, and something to be drawn there
    rows = read_rows(source)
    attacks = [row for row in rows if x == "training_steps" or not row.is_clean]
    if not attacks:
        raise ValueRangeError("there are no attacked rows, only clean ones")
    found = [(row, place) for row in attacks if (place := _place(row, x)) is not None]
    if not found:
        some = f"threats are {', '.join(list(dict.fromkeys(row.threat for row in attacks))[:3])}"
        expected = "expected eps, seed, training_steps, or an argument of threats with numbers"
        raise ValueRangeError(f"no row has {x!r:.80} for x=: {expected}; {some}")
    if all(_values(row, y) is None for row, _ in found):
        columns = [*_OF_EPISODES, *_PAIRED, *(name for row, _ in found for name in {**row.row, **row.row.distances})]
        known = [name for name in dict.fromkeys(columns) if any(_values(row, name) is not None for row, _ in found)]
        raise ValueRangeError(f"no row has {y!r:.80} for y=: there are {', '.join(known)}")
    # rows by panel, curve and place
    cells: dict[tuple[str, str], dict[float, list[StoredRow]]] = {}
    for row, place in found:
        key = "" if col is None else _value(row, col, x), _value(row, hue, x)
        cells.setdefault(key, {}).setdefault(place, []).append(row)
    curves = {}
    for key, places in cells.items():
        own = [row for part in places.values() for row in part]
        _check_alike(own, key[1], x, {hue, col})
        if x == "eps" and 0.0 not in places:  # the clean rows of the episodes that attacks were played on
            played = {(row.victim, row.env, row.seed) for row in own}
            places[0.0] = [row for row in rows if row.is_clean and (row.victim, row.env, row.seed) in played]
        # a mean with its interval at every place
        points = [_point(place, part, y) for place, part in sorted(places.items())]
        curves[key] = tuple(point for point in points if point is not None)
    left = len(attacks) - len(found)
    notes = [f"{left} of {len(attacks)} attacked rows have no {x} and are left out"] if left else []
    return Curves(x, y, hue, col, curves, tuple(notes))


def _place(row: StoredRow, x: str) -> float | None:
    """Where a row is on the horizontal axis."""
    if x in ("eps", "seed", "training_steps"):
        return None if getattr(row, x) is None else float(getattr(row, x))
    return row.row.argument(x)


def _value(row: StoredRow, column: str, x: str) -> str:
    return row.row.attack(x) + row.row.marks if column == "threat" else str(getattr(row, column))


def _check_alike(rows: Sequence[StoredRow], label: str, x: str, by: set[str | None]) -> None:
    """Raise for rows of one curve that differ in what no mean may be taken over."""
    for column in ("threat", "env"):
        values = list(dict.fromkeys(_value(row, column, x) for row in rows))
        if len(values) > 1 and column not in by:
            raise ValueRangeError(
                f"rows of {values[0]} and {values[1]} fall together in the curve {label!r:.80}: give hue={column!r} or "
                f"col={column!r}"
            )


def _values(row: StoredRow, y: str) -> NDArray[np.float64] | None:
    """What is asked for of a row, of every episode or the one number that it has; None where it has none."""
    listed: Any
    if y in _OF_EPISODES:
        listed = row.row[_OF_EPISODES[y]]
    elif y in _PAIRED:
        if row.clean is None or len(row.clean.returns) != len(row.row.returns):
            return None
        # regret of every episode, and impact as its share of what could be lost
        clean = np.array(row.clean.returns, np.float64)
        listed = clean - np.array(row.row.returns, np.float64)
        if y == "impact":
            lowest = described_range(row.described_env)[0]
            listed = None if lowest is None or clean.mean() <= lowest else listed / (clean.mean() - lowest)
    else:
        figure = finite_float({**row.row.distances, **row.row}.get(y))
        listed = None if figure is None else [figure]
    return None if listed is None else np.array(listed, np.float64)


def _point(x: float, rows: Sequence[StoredRow], y: str) -> CurvePoint | None:
    """The point of some rows, its interval cut at the range of returns; None where none of them has a value."""
    by_victim: dict[str, list[NDArray[np.float64]]] = {}
    episodes = 0
    for row in rows:
        if (values := _values(row, y)) is not None:
            by_victim.setdefault(row.victim, []).append(values)
            episodes += len(row.row.returns)
    if not by_victim:
        return None
    # of one victim every episode counts, of several the mean of each
    every = np.concatenate([values for own in by_victim.values() for values in own])
    numbers, of = every, "episodes" if y in _OF_EPISODES or y in _PAIRED else "rows"
    why = caveat(every) if of == "episodes" else None
    if len(by_victim) > 1:
        numbers, of = np.array([np.concatenate(own).mean() for own in by_victim.values()]), "victims"
    # no interval goes beyond what returns can be
    mean = float(numbers.mean())
    low, high = None, None
    if len(numbers) > 1:
        returns_of_one = y in ("return", "mean_return") and len({row.env for row in rows}) == 1
        known = described_range(rows[0].described_env) if returns_of_one else (None, None)
        low, high = cut(mean_interval(numbers), mean, known)
    return CurvePoint(x, mean, low, high, len(numbers), of, episodes, why)
