"""Figures with their intervals, and tables of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adv_wrappers.evaluation.statistics import mean_interval, t_quantile


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


def of_seeds(scores: Sequence[float]) -> Figure:
    """The mean over the seeds of a training, with its interval."""
    return Figure(statistics.fmean(scores), statistics.stdev(scores), len(scores), *mean_interval(scores))


def margin(row: dict[str, Any], other: dict[str, Any]) -> Figure:
    """What ``row`` leaves more than ``other`` over the same episodes: mean, and interval, of the paired difference."""
    more = [a - b for a, b in zip(row["returns"], other["returns"], strict=True)]
    low, high = mean_interval(more)
    return Figure(statistics.fmean(more), low=low, high=high)


def said(margins: dict[str, tuple[Figure, Figure]]) -> str:
    """What became of margins, each before and now, as a list: which shrank, are gone, turned round, or stay."""
    found: dict[str, list[str]] = {"shrinks": [], "is gone": [], "was not there in the first run": [], "stays": []}
    for name, (before, now) in margins.items():
        less = 1 - now.mean / before.mean if before.mean else 0.0
        if before.low is not None and before.low <= 0:
            found["was not there in the first run"].append(name)
        elif now.low is not None and now.low <= 0:
            found["is gone"].append(name)
        elif less > 0.005:
            found["shrinks"].append(f"{name} by {less:.0%}")
        else:
            found["stays"].append(name)
    return "\n".join(f"- The margin **{word}**: {'; '.join(names)}." for word, names in found.items() if names)


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


def filled(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table without the columns that say nothing in any row: empty, or a dash."""
    kept = [i for i, _ in enumerate(header) if any(str(row[i]) not in ("", "-") for row in rows)]
    return table([header[i] for i in kept], [[row[i] for i in kept] for row in rows])
