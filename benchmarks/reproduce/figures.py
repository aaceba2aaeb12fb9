"""Figures with their intervals, and tables of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval, t_quantile


@dataclass(frozen=True)
class Figure:
    """A mean return with a 95% interval; ``low`` and ``high`` are None where only the mean was reported."""

    mean: float
    std: float | None = None
    episodes: int | None = None
    low: float | None = None
    high: float | None = None

    def overlaps(self, other: Figure) -> bool | None:
        """Whether two intervals share a point; None where one of them is not known."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return None
        return self.low <= other.high and other.low <= self.high

    def __str__(self) -> str:
        text = number(self.mean)
        if self.std is not None:
            text += f" +- {number(self.std)}"
        if self.episodes is not None:
            text += f" (n={self.episodes})"
        if self.low is not None and self.high is not None:
            text += f" [{number(self.low)}, {number(self.high)}]"
        return text


def number(value: float) -> str:
    """One decimal below 1000, none above."""
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.1f}"


def measured(mean: float, std: float, episodes: int) -> Figure:
    """A mean and a standard deviation over ``episodes`` episodes, with the interval of Student's t."""
    if episodes < 2:
        return Figure(mean, None, episodes)
    half = t_quantile(episodes - 1) * std / episodes**0.5
    return Figure(mean, std, episodes, mean - half, mean + half)


def of_row(row: dict[str, Any]) -> Figure:
    """A row of a report, with the interval of its returns: rows of older releases come with one that covers less."""
    return Figure(row["mean_return"], row["std"], row["episodes"], *mean_interval(row["returns"]))


def brief(row: dict[str, Any]) -> str:
    """The mean of a row with its interval alone."""
    figure = of_row(row)
    return f"{number(figure.mean)} [{number(figure.low or 0.0)}, {number(figure.high or 0.0)}]"


def of_seeds(scores: Sequence[float]) -> Figure:
    """The mean over the seeds of a training, with its interval."""
    return Figure(statistics.fmean(scores), statistics.stdev(scores), len(scores), *mean_interval(scores))


def margin(row: dict[str, Any], other: dict[str, Any]) -> Figure:
    """What ``row`` leaves more than ``other`` over the same episodes: mean, and interval, of the paired difference."""
    more = [a - b for a, b in zip(row["returns"], other["returns"], strict=True)]
    low, high = mean_interval(more)
    return Figure(statistics.fmean(more), low=low, high=high)


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a report without what a page does not need."""
    return {key: value for key, value in row.items() if key not in ("layers", "lengths")}


def span(values: Iterable[float | None], digits: int = 0) -> str:
    """The mean of the values that are known, and their range where they differ; nothing where none is."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = (f"{value:.{digits}f}" for value in (min(known), max(known)))
    return low if low == high else f"{statistics.fmean(known):.{digits}f} ({low} to {high})"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; a cell that has nothing to say holds a dash."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) or "-" for cell in row) + " |" for row in rows])


def pivot(
    rows: Iterable[dict[str, Any]], down: str, across: Sequence[str], cell: Callable[[dict[str, Any]], str]
) -> str:
    """A Markdown table of rows: a line for every value of ``down``, a column for all values of ``across`` together."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(f"{row[down]}", {})[", ".join(f"{row[key]}" for key in across) or "share"] = cell(row)
    columns = list(dict.fromkeys(column for cells in found.values() for column in cells))
    lines = [[name, *(cells.get(column, "") for column in columns)] for name, cells in found.items()]
    return table([down, *columns], lines)


def filled(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table without the columns that say nothing in any row: empty, or a dash."""
    kept = [i for i, _ in enumerate(header) if any(str(row[i]) not in ("", "-") for row in rows)]
    return table([header[i] for i in kept], [[row[i] for i in kept] for row in rows])
