"""Plots with matplotlib: returns, lines with bands such as curves over eps, resilience."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.frames import ATTACKED, CLEAN, GRID, INK, MUTED
from adv_wrappers.utils.checks import either
from adv_wrappers.utils.files import write

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


# ----------------------------------------------------------------------------------------------------------------------
# Figures of matplotlib without pyplot: no state is shared, no display is needed, and files are the same every time.
# ----------------------------------------------------------------------------------------------------------------------


FORMATS = ("png", "svg", "pdf")
_UNDATED: dict[str, dict[str, str | None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def new_figure(width: float, height: float, dpi: int, layout: Literal["constrained"] | None = None) -> Figure:
    """A white figure with a canvas.

    Args:
        width, height: in inches.
        dpi: pixels an inch.
        layout: matplotlib's layout engine; None leaves axes where they are put.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure


def bottom_spine_only(axes: Axes) -> None:
    """Leave of the frame of axes its lower line, in the colour of the grid, and draw the grid below the data."""
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)


def format_of(path: str | Path) -> str:
    """The format of a picture by the name of its file; raises :class:`ValueRangeError` for one that is not written."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise ValueRangeError(f"a picture is written as {either(f'.{one}' for one in FORMATS)}, got {str(path)!r}")
    return suffix


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as ``.png``, ``.svg`` or ``.pdf``; the same figure gives the same bytes.

    Raises:
        ValueRangeError: for a file of another format.
    """
    import matplotlib

    kind, data = format_of(path), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "adv_wrappers"}):
        figure.savefig(data, format=kind, metadata=_UNDATED[kind])
    write(Path(path), data.getvalue())


def show_image(axes: Axes, image: NDArray[Any], **style: Any) -> AxesImage:
    """Show an image ``[H, W, 3]``, or values ``[H, W]`` by a colour map, and nothing around it but the axes' labels."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes.imshow(image, interpolation="nearest", **style)


# ----------------------------------------------------------------------------------------------------------------------
# The figure of a report: the returns of every run, one line a run.
# ----------------------------------------------------------------------------------------------------------------------


def plot_returns(rows: Mapping[str, Mapping[str, Any]], path: str | Path, title: str, notes: Sequence[str]) -> None:
    """Write a figure: one line a run in the order given, the mean return with its interval, and every episode.

    Args:
        rows: by name, rows of a report; the first is without an attack, and a dashed line goes through its mean.
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.
        title: of the figure.
        notes: lines below the axis, the first of which names it.

    Raises:
        ValueRangeError: for a file of another format.
    """
    format_of(path)
    figure = new_figure(8.0, 1.5 + 0.5 * len(rows), 160, "constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows.values()):
        colour = ATTACKED if place else CLEAN
        mean = row["mean_return"]
        returns = row.get("returns") or []
        # every episode as a stroke, the mean with its interval on top
        axes.plot(returns, [place] * len(returns), "|", color=colour, alpha=0.25, markersize=11, zorder=2)
        axes.errorbar(
            mean,
            place,
            xerr=[[max(mean - row["low"], 0.0)], [max(row["high"] - mean, 0.0)]],
            fmt="o",
            color=colour,
            markersize=7,
            elinewidth=2.2,
            capsize=4,
            capthick=2.2,
            zorder=3,
        )
        # where the others would be without an attack
        if place == 0:
            axes.axvline(mean, color=CLEAN, linewidth=1, linestyle=(0, (4, 3)), alpha=0.7, zorder=1)
    # names at the left, in the order of the rows from the top
    labels = [textwrap.fill(name, 38, break_long_words=True) for name in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("\n".join(notes), color=MUTED, fontsize=9)
    _headed(figure, title)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(colors=INK, length=0)
    bottom_spine_only(axes)
    save_figure(figure, path)


# ----------------------------------------------------------------------------------------------------------------------
# Figures of lines with bands, in panels: returns over a budget, shares of runs over a score.
# ----------------------------------------------------------------------------------------------------------------------


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
    # lines of one name have one colour in all panels, and stand in the legend once
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    whole = all(float(x).is_integer() for panel in panels for line in panel.lines for x in line.x)
    columns = min(len(panels), _IN_A_ROW)
    rows = -(-len(panels) // columns)
    # as high as the panels, the legend and the notes need
    wrapped = {label: _wrapped(label, _WIDEST) for label in labels}
    below = [axes_labels[0], *(_wrapped(note, 110) for note in notes)]
    legend = sum(0.25 + 0.17 * label.count("\n") for label in wrapped.values())  # inches
    height = 1.0 + max(2.6 * rows, legend) + 0.17 * sum(1 + line.count("\n") for line in below)
    # the panels; places that are left in the last row stay empty
    figure = new_figure(5.6 + 2.2 * columns, height, 160, "constrained")
    grid = [*figure.subplots(rows, columns, squeeze=False).flat]
    handles = {}
    for panel, axes in zip(panels, grid, strict=False):
        for line in panel.lines:
            handles[line.label] = _draw(axes, line, labels.index(line.label), steps)
        axes.set_title(_wrapped(panel.title, 40), loc="left", fontsize=9, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole))
        _plain(axes)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    # what all panels share
    figure.supxlabel("\n".join(below), color=MUTED, size=9)
    figure.supylabel(axes_labels[1], color=INK, size=9)
    names = [wrapped[label] for label in handles]
    figure.legend([*handles.values()], names, loc="outside right upper", frameon=False, fontsize=9, labelcolor=INK)
    _headed(figure, title)
    save_figure(figure, path)


def _wrapped(text: str, width: int) -> str:
    """A text in lines of a width, in which dollars are no marks of formulas."""
    lines = (textwrap.fill(line, width, break_long_words=True) for line in text.splitlines())
    return "\n".join(lines).replace("$", r"\$")


def _draw(axes: Axes, line: BandedLine, place: int, steps: bool) -> Artist:
    """Draw the line that is ``place`` in the legend."""
    colour = _COLOURS[place % len(_COLOURS)]
    style: Any = _DASHES[place // len(_COLOURS) % len(_DASHES)]
    # the band, of a single point a stroke, and the line on top
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
    # points that are open are drawn hollow
    for x, y, is_open in zip(line.x, line.y, line.open_points, strict=False):
        if is_open:
            axes.plot(x, y, marker=drawn.get_marker(), markersize=5, color=colour, markerfacecolor="white", zorder=3)
    return drawn


# ----------------------------------------------------------------------------------------------------------------------
# Figures of a measured resilience: the training curve, and perturbations by time step.
#
# They draw what the figures of Behzadan and Hsu 2019 draw: Figures 1-3 and 7-12 the training, 4-6 the time steps.
# ----------------------------------------------------------------------------------------------------------------------


_DOTS = 4000  # episodes that are drawn one by one


class TrainingCurve(NamedTuple):
    """The episodes of a training.

    Attributes:
        steps: environment steps at the end of every episode, ``[n]``.
        regrets: adversarial regret of every episode, ``[n]``.
        perturbations: attacked steps of every episode, ``[n]``.

    An element may also stand for several episodes in a row: their means, and the steps at the end of the last.
    """

    steps: NDArray[np.int64]
    regrets: NDArray[np.float64]
    perturbations: NDArray[np.int64] | NDArray[np.float64]


def moving_mean(values: NDArray[np.float64] | NDArray[np.int64], window: int) -> NDArray[np.float64]:
    """The mean of every value and the ``window - 1`` before it, or all before it where they are fewer; ``[n]``.

    >>> moving_mean(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [1.0, 2.0, 4.0]
    """
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: NDArray[np.float64] = (total[ends] - total[starts]) / (ends - starts)
    return means


def plot_trainings(
    curves: Mapping[str, TrainingCurve], path: str | Path, title: str, window: int, together: int = 1
) -> None:
    """Write training curves: regret above, perturbations below, every episode and the mean of ``window`` of them.

    Those of several victims stand beside each other, on the same axes.

    Args:
        curves: the episodes by victim; the name of one alone may be "".
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.
        title: of the figure.
        window: episodes of a mean.
        together: how many episodes each element of the curves is the mean of.

    Raises:
        ValueRangeError: for a file of another format.
    """
    format_of(path)
    figure = new_figure(8.0, 5.2 if len(curves) == 1 else 4.2, 160, "constrained")
    panels = figure.subplots(2, len(curves), sharex=True, sharey="row", squeeze=False)
    # a column for each victim: a dot for some of the episodes, and a line of their moving mean
    for (name, curve), above, below in zip(curves.items(), *panels, strict=True):
        every = slice(None, None, max(1, -(-len(curve.steps) // _DOTS)))
        for axes, values in ((above, curve.regrets), (below, curve.perturbations)):
            axes.plot(curve.steps[every], values[every], ".", color=MUTED, alpha=0.2, markersize=3, rasterized=True)
            line = moving_mean(values, max(window // together, 1))
            axes.plot(curve.steps, line, color=ATTACKED, linewidth=2)
            _plain(axes)
        above.set_title(name, loc="left", fontsize=9, color=INK)
    for axes, name in zip(panels[:, 0], ("regret", "perturbations"), strict=True):
        axes.set_ylabel(name, color=INK, fontsize=9)
    panels[1, 0].set_ylim(bottom=0)
    # what the axes and the dots mean
    dots = "episodes" if together == 1 else f"means of {together} episodes"
    figure.supxlabel(f"environment steps of the training (dots: {dots}, line: mean of {window})", color=MUTED, size=9)
    _headed(figure, title)
    save_figure(figure, path)


def plot_histograms(counts: Mapping[str, NDArray[np.int64]], episodes: int, path: str | Path, title: str) -> None:
    """Write at which time steps tests were attacked: one bar a step, as high as episodes were attacked at it.

    Those of several victims stand beside each other, on the same axes.

    Args:
        counts: by victim, attacked episodes by time step, ``[T]``; the name of one alone may be "".
        episodes: the number of episodes of each test.
        path, title: as for :func:`plot_trainings`.

    Raises:
        ValueRangeError: for a file of another format.
    """
    from matplotlib.ticker import MaxNLocator

    format_of(path)
    figure = new_figure(8.0, 3.2, 160, "constrained")
    # the panels share their axes: the longest episode, and all episodes
    longest = max(max(map(len, counts.values())), 1)
    for i, (name, values) in enumerate(counts.items()):
        axes = figure.add_subplot(1, len(counts), i + 1)
        axes.bar(np.arange(len(values)), values, width=0.8, color=ATTACKED)
        axes.set_xlim(-0.7, longest - 0.3)
        axes.set_ylim(0, max(episodes, 1))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if i == 0:
            axes.set_ylabel("attacked episodes", color=INK, fontsize=9)
        else:
            axes.tick_params(labelleft=False)
        axes.set_title(name, loc="left", fontsize=9, color=INK)
        _plain(axes)
    figure.supxlabel(f"time step of the episode ({episodes} episodes)", color=MUTED, size=9)
    _headed(figure, title)
    save_figure(figure, path)


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    bottom_spine_only(axes)


def _headed(figure: Figure, title: str) -> None:
    figure.suptitle(_wrapped(title, 80), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
