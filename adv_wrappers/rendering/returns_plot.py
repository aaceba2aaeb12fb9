"""The figure of a report: the returns of every run, one line a run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.rendering.matplotlib_figures import bottom_spine_only, format_of, new_figure, save_figure
from adv_wrappers.rendering.observation_pixels import ATTACKED, CLEAN, GRID, INK, MUTED


@dataclass(frozen=True)
class ReturnsRow:
    """The returns of one run.

    Attributes:
        label: what stands beside the line.
        mean: of the returns, with its interval ``low`` to ``high``.
        returns: of every episode; may be empty.
        clean: whether the run is without an attack.
    """

    label: str
    mean: float
    low: float
    high: float
    returns: Sequence[float]
    clean: bool


def plot_returns(rows: Sequence[ReturnsRow], path: str | Path, title: str, notes: Sequence[str]) -> None:
    """Write a figure: one line a run in the order given, the mean return with its interval, and every episode.

    Args:
        rows: the runs; a dashed line goes through the mean of the first.
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.
        title: of the figure.
        notes: lines below the axis, the first of which names it.

    Raises:
        ValueRangeError: for a file of another format.
    """
    format_of(path)
    figure = new_figure(8.0, 1.5 + 0.5 * len(rows), 160, "constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        colour = CLEAN if row.clean else ATTACKED
        axes.plot(row.returns, [place] * len(row.returns), "|", color=colour, alpha=0.25, markersize=11, zorder=2)
        axes.errorbar(
            row.mean,
            place,
            xerr=[[max(row.mean - row.low, 0.0)], [max(row.high - row.mean, 0.0)]],
            fmt="o",
            color=colour,
            markersize=7,
            elinewidth=2.2,
            capsize=4,
            capthick=2.2,
            zorder=3,
        )
    if rows:
        axes.axvline(rows[0].mean, color=CLEAN, linewidth=1, linestyle=(0, (4, 3)), alpha=0.7, zorder=1)
    labels = [textwrap.fill(row.label, 38, break_long_words=True) for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("\n".join(notes), color=MUTED, fontsize=9)
    figure.suptitle(textwrap.fill(title, 80), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(colors=INK, length=0)
    bottom_spine_only(axes)
    save_figure(figure, path)
