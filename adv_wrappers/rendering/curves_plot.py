"""Figures of lines with bands, in panels: returns over a budget, shares of runs over a score."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.rendering.matplotlib_figures import bottom_spine_only, format_of, new_figure, save_figure
from adv_wrappers.rendering.observation_pixels import GRID, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

FloatValues = Sequence[float] | NDArray[np.float64]
# The palette of Okabe and Ito, which readers who are colour-blind tell apart, without its yellow, which is too light.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_IN_A_ROW = 3  # panels
_WIDEST = 34  # letters of a line of the legend


@dataclass(frozen=True)
class BandedLine:
    """A line with its band.

    Attributes:
        label: its name in the legend; lines of one name look the same in all panels.
        x, y: its points.
        low, high: of its band, of which NaN has none.
        open_points: which markers are not filled; empty for none.
    """

    label: str
    x: FloatValues
    y: FloatValues
    low: FloatValues
    high: FloatValues
    open_points: Sequence[bool] = ()


@dataclass(frozen=True)
class LinesPanel:
    """Some lines on common axes, and their title."""

    title: str
    lines: Sequence[BandedLine]


def plot_lines(
    panels: Sequence[LinesPanel],
    path: str | Path,
    title: str,
    axes_labels: tuple[str, str],
    notes: Sequence[str] = (),
    steps: bool = False,
) -> None:
    """Write a figure of panels, with one legend beside them.

    Args:
        panels: at least one.
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.
        title: of the figure.
        axes_labels: of the horizontal and of the vertical axis.
        notes: lines below the horizontal one.
        steps: whether a value holds up to the next point, rather than to change steadily; then no point has a marker.

    Raises:
        ValueRangeError: for a file of another format.
    """
    from matplotlib.ticker import MaxNLocator

    format_of(path)
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    columns = min(len(panels), _IN_A_ROW)
    rows = -(-len(panels) // columns)
    wrapped = {label: _wrapped(label, _WIDEST) for label in labels}
    below = [axes_labels[0], *(_wrapped(note, 110) for note in notes)]
    legend = sum(0.25 + 0.17 * label.count("\n") for label in wrapped.values())  # inches
    height = 1.0 + max(2.6 * rows, legend) + 0.17 * sum(1 + line.count("\n") for line in below)
    figure = new_figure(5.6 + 2.2 * columns, height, 160, "constrained")
    grid = [*figure.subplots(rows, columns, squeeze=False).flat]
    handles = {}
    for panel, axes in zip(panels, grid, strict=False):
        for line in panel.lines:
            handles[line.label] = _draw(axes, line, labels.index(line.label), steps)
        axes.set_title(_wrapped(panel.title, 40), loc="left", fontsize=9, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.tick_params(colors=INK, length=0, labelsize=9)
        bottom_spine_only(axes)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel("\n".join(below), color=MUTED, size=9)
    figure.supylabel(axes_labels[1], color=INK, size=9)
    names = [wrapped[label] for label in handles]
    figure.legend([*handles.values()], names, loc="outside right upper", frameon=False, fontsize=9, labelcolor=INK)
    figure.suptitle(_wrapped(title, 80), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    save_figure(figure, path)


def _wrapped(text: str, width: int) -> str:
    """A text in lines of a width, in which dollars are no marks of formulas."""
    lines = (textwrap.fill(line, width, break_long_words=True) for line in text.splitlines())
    return "\n".join(lines).replace("$", r"\$")


def _draw(axes: Axes, line: BandedLine, place: int, steps: bool) -> Artist:
    """Draw the line that is ``place`` in the legend."""
    colour = _COLOURS[place % len(_COLOURS)]
    style: Any = _DASHES[place // len(_COLOURS) % len(_DASHES)]
    axes.fill_between(
        line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0, step="post" if steps else None
    )
    if len(line.x) == 1:
        axes.vlines(line.x, line.low, line.high, color=colour, linewidth=2)
    [drawn] = axes.plot(
        line.x,
        line.y,
        color=colour,
        linestyle=style,
        linewidth=2,
        drawstyle="steps-post" if steps else "default",
        marker=None if steps else _MARKERS[place % len(_MARKERS)],
        markersize=5,
    )
    for x, y, is_open in zip(line.x, line.y, line.open_points, strict=False):
        if is_open:
            axes.plot(x, y, marker=drawn.get_marker(), markersize=5, color=colour, markerfacecolor="white", zorder=3)
    return drawn
