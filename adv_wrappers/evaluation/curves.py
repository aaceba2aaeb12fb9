"""Curves over a column of many rows, such as the return over eps: what is drawn, and the same as a table.

Every point is a mean with its interval (:func:`~adv_wrappers.evaluation.statistics.mean_interval`). Where
several victims fall into one point, it is over their means, so that it allows for which agents were trained; of one
victim it is over all episodes of all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.evaluation.return_range import described_lowest_return, described_range
from adv_wrappers.evaluation.row import Row
from adv_wrappers.evaluation.statistics import (
    MARK,
    KnownRange,
    caveat,
    cut,
    footnotes,
    marked,
    mean_interval,
)
from adv_wrappers.evaluation.stored_rows import RowSource, StoredRow, read_rows
from adv_wrappers.registry import CURVES_BY, CurvesBy
from adv_wrappers.rendering.plots import BandedLine, LinesPanel, plot_lines
from adv_wrappers.rendering.text_table import Tabular, TextTable
from adv_wrappers.utils.checks import finite_float

_OF_EPISODES = {  # columns that a row has of every episode, by what they are asked for as
    "return": "returns", "length": "lengths", "attacked": "attacked_fractions", "loss": "losses",
}  # fmt: skip
ValueOfRow = Callable[[StoredRow], tuple[NDArray[np.float64] | None, float | None]]
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
class LabelledCurve:
    """The points of one curve.

    Attributes:
        panel: the value of the column that panels are by; empty where there is one panel.
        label: the value of the column that curves are by.
        points: from left to right.
    """

    panel: str
    label: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class Curves(Tabular):
    """What :func:`curves_of` found.

    Attributes:
        x, y, hue, col: the names of what is on the axes, what curves are by, and what panels are by, or None.
        curves: in the order of their rows.
        notes: what was left out.
    """

    x: str
    y: str
    hue: str
    col: str | None
    curves: tuple[LabelledCurve, ...]
    notes: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a point, as values that JSON knows: the columns' values, and those of :class:`CurvePoint`."""
        found = []
        for curve in self.curves:
            names = {**({self.col: curve.panel} if self.col else {}), self.hue: curve.label}
            for point in curve.points:
                figures = asdict(point)
                found.append({**names, self.x: figures.pop("x"), **figures})
        return found

    def table(self) -> TextTable:
        """The table, one row a point; below it are the notes, and what a mark means."""
        names = (self.col, self.hue) if self.col else (self.hue,)
        rows = [
            (*((curve.panel,) if self.col else ()), curve.label, *self._figures(point))
            for curve in self.curves
            for point in curve.points
        ]
        title, columns = f"{self.y} over {self.x}", (*names, self.x, self.y, "95% interval", "over")
        first = (self.hue, self.x, self.y, "95% interval", *(names if self.col else ()))
        notes = tuple(self.explanations())
        return TextTable(title, columns, tuple(rows), notes, texts=names, by_importance=first)

    def _figures(self, point: CurvePoint) -> tuple[str, ...]:
        """What a table says of a point."""
        interval = "-" if point.low is None else f"{number_text(point.low)} .. {number_text(point.high)}"
        over = point.of if point.count > 1 else point.of.removesuffix("s")
        return (
            f"{point.x:g}", number_text(point.mean), marked(interval, asdict(point)), f"{point.count} {over}"
        )  # fmt: skip

    def explanations(self) -> list[str]:
        """What a mark means, and the notes."""
        return [*footnotes([asdict(point) for curve in self.curves for point in curve.points]), *self.notes]

    def plot(self, path: str | Path) -> None:
        """Write a figure: a line with its band for every curve, and a panel for every value of ``col``.

        The file's name says what it is, ``.png``, ``.svg`` or ``.pdf``; :class:`ValueRangeError` for another.
        """
        panels: dict[str, list[BandedLine]] = {}
        for curve in self.curves:
            low, high = ([math.nan if end is None else end for end in ends] for ends in _ends(curve.points))
            x, y = [point.x for point in curve.points], [point.mean for point in curve.points]
            weak = [point.caveat is not None for point in curve.points]
            panels.setdefault(curve.panel, []).append(BandedLine(curve.label, x, y, low, high, weak))
        labels = self.x, f"{self.y} (mean and 95% interval)"
        notes = [text.replace(MARK, "open points:") for text in self.explanations()]
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
    for name, value in (("hue", hue), ("col", col)):
        if value not in CURVES_BY and not (name == "col" and value is None):
            known = ", ".join(CURVES_BY)
            raise ValueRangeError(f"no column {value!r:.80} for {name}=: there are {known}")
    rows = read_rows(source)
    attacks = [row for row in rows if x == "training_steps" or not row.is_clean]
    found = [(row, place) for row in attacks if (place := _place(row, x)) is not None]
    if not found:
        _no_rows_with(x, attacks)
    value_of = _values(y, [row for row, _ in found])
    cells: dict[tuple[str, str], dict[float, list[StoredRow]]] = {}
    for row, place in found:
        key = "" if col is None else _value(row, col, x), _value(row, hue, x)
        cells.setdefault(key, {}).setdefault(place, []).append(row)
    made = []
    for (panel, label), places in cells.items():
        _check_alike([row for own in places.values() for row in own], label, x, {hue, col})
        if x == "eps" and 0.0 not in places:
            places[0.0] = _clean_rows(rows, [row for own in places.values() for row in own])
        points = [_point(place, own, value_of, _known(y, own)) for place, own in sorted(places.items()) if own]
        made.append(LabelledCurve(panel, label, tuple(point for point in points if point is not None)))
    left = len(attacks) - len(found)
    notes = [f"{left} of {len(attacks)} attacked rows have no {x} and are left out"] if left else []
    return Curves(x, y, hue, col, tuple(made), tuple(notes))


def _place(row: StoredRow, x: str) -> float | None:
    """Where a row is on the horizontal axis."""
    if x == "training_steps":
        return None if row.training_steps is None else float(row.training_steps)
    return row.eps if x == "eps" else float(row.seed) if x == "seed" else row.row.argument(x)


def _known(y: str, rows: Sequence[StoredRow]) -> KnownRange:
    """The range of returns, where it is returns of one environment that are asked for."""
    several = len({row.env for row in rows}) > 1
    return (None, None) if y not in ("return", "mean_return") or several else described_range(rows[0].described_env)


def _ends(points: Sequence[CurvePoint]) -> tuple[list[float | None], list[float | None]]:
    return [point.low for point in points], [point.high for point in points]


def _no_rows_with(x: str, attacks: Sequence[StoredRow]) -> None:
    """Raise, as no row has what curves should go over."""
    if not attacks:
        raise ValueRangeError("there are no attacked rows, only clean ones")
    some = f"threats are {', '.join(list(dict.fromkeys(row.threat for row in attacks))[:3])}"
    expected = "expected eps, seed, training_steps, or an argument of threats with numbers"
    raise ValueRangeError(f"no row has {x!r:.80} for x=: {expected}; {some}")


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


def _clean_rows(rows: Sequence[StoredRow], attacked: Sequence[StoredRow]) -> list[StoredRow]:
    """The clean rows of the episodes that attacks were played on."""
    wanted = {(row.victim, row.env, row.seed) for row in attacked}
    return [row for row in rows if row.is_clean and (row.victim, row.env, row.seed) in wanted]


def _values(y: str, rows: Sequence[StoredRow]) -> ValueOfRow:
    """The function that gives what is asked for of a row; :class:`ValueRangeError` for what no row has."""

    def of(row: StoredRow) -> tuple[NDArray[np.float64] | None, float | None]:
        return _value_of(row, y)

    if all(of(row)[1] is None for row in rows):
        names = dict.fromkeys([*_OF_EPISODES, *_PAIRED, *(name for row in rows for name in _figures(row.row))])
        known = [name for name in names if any(_value_of(row, name)[1] is not None for row in rows)]
        raise ValueRangeError(f"no row has {y!r:.80} for y=: there are {', '.join(known)}")
    return of


def _value_of(row: StoredRow, y: str) -> tuple[NDArray[np.float64] | None, float | None]:
    """The values of all episodes of a row, or None, and their mean, or None where there is none."""
    values: NDArray[np.float64] | None = None
    if y in _OF_EPISODES:
        listed = row.row.get(_OF_EPISODES[y])
        values = None if listed is None else np.array(listed, np.float64)
    elif y in _PAIRED:
        values = _lost(row, share=y == "impact")
    else:
        return None, finite_float(_figures(row.row).get(y))
    return values, None if values is None else float(values.mean())


def _figures(row: Row) -> Mapping[str, Any]:
    """The columns of a row, those of distances among them."""
    return {**row.distances, **row}


def _lost(row: StoredRow, share: bool) -> NDArray[np.float64] | None:
    """What every episode lost, or what share of what it could lose on average."""
    if row.clean is None or len(row.clean.returns) != len(row.row.returns):
        return None
    clean = np.array(row.clean.returns, np.float64)
    lost = clean - np.array(row.row.returns, np.float64)
    if not share:
        return lost
    lowest = described_lowest_return(row.described_env)
    return None if lowest is None or clean.mean() <= lowest else lost / (clean.mean() - lowest)


def _point(x: float, rows: Sequence[StoredRow], value_of: ValueOfRow, known: KnownRange) -> CurvePoint | None:
    """The point of some rows, with its interval cut at a range; None where none of them has a value."""
    by_victim: dict[str, list[tuple[NDArray[np.float64] | None, float]]] = {}
    episodes = 0
    for row in rows:
        values, mean = value_of(row)
        if mean is not None:
            by_victim.setdefault(row.victim, []).append((values, mean))
            episodes += len(row.row.returns)
    if not by_victim:
        return None
    every = _pooled([one for own in by_victim.values() for one in own])
    of_episodes = all(values is not None for own in by_victim.values() for values, _ in own)
    if len(by_victim) > 1:
        numbers, of = [float(np.mean(_pooled(own))) for own in by_victim.values()], "victims"
    else:
        numbers, of = every, "episodes" if of_episodes else "rows"
    low, high = None, None
    if len(numbers) > 1:
        low, high = cut(mean_interval(numbers), float(np.mean(numbers)), known)
    why = caveat(every) if of_episodes else None
    return CurvePoint(x, float(np.mean(numbers)), low, high, len(numbers), of, episodes, why)


def _pooled(rows: Sequence[tuple[NDArray[np.float64] | None, float]]) -> list[float]:
    """The values of all episodes of some rows, or the means of rows that have no others."""
    return [float(value) for values, mean in rows for value in ([mean] if values is None else values)]
