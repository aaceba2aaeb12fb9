"""Figures of a measured resilience: the training curve, perturbations by time step, and regret by budget.

They draw what the figures of Behzadan and Hsu 2019 draw: Figures 1-3 and 7-12 the training, 4-6 the time steps.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.rendering.matplotlib_figures import bottom_spine_only, format_of, new_figure, save_figure
from adv_wrappers.rendering.observation_pixels import ATTACKED, CLEAN, GRID, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (ATTACKED, CLEAN, "#059669", "#d97706", "#7c3aed", "#0891b2")  # of several victims
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


def plot_training(curve: TrainingCurve, path: str | Path, title: str, window: int) -> None:
    """Write the training curve: regret above, perturbations below, every episode and the mean of ``window`` of them.

    Args:
        curve: the episodes.
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.
        title: of the figure.
        window: episodes of a mean.

    Raises:
        ValueRangeError: for a file of another format.
    """
    plot_trainings({"": curve}, path, title, window)


def plot_trainings(
    curves: Mapping[str, TrainingCurve], path: str | Path, title: str, window: int, together: int = 1
) -> None:
    """Write the training curves of several victims beside each other, on the same axes.

    Args:
        curves: the episodes by victim.
        path, title, window: as for :func:`plot_training`.
        together: how many episodes each element of the curves is the mean of.

    Raises:
        ValueRangeError: for a file of another format.
    """
    format_of(path)
    figure = new_figure(8.0, 5.2 if len(curves) == 1 else 4.2, 160, "constrained")
    panels = figure.subplots(2, len(curves), sharex=True, sharey="row", squeeze=False)
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
    dots = "episodes" if together == 1 else f"means of {together} episodes"
    figure.supxlabel(f"environment steps of the training (dots: {dots}, line: mean of {window})", color=MUTED, size=9)
    _headed(figure, title)
    save_figure(figure, path)


def plot_histogram(counts: NDArray[np.int64], episodes: int, path: str | Path, title: str) -> None:
    """Write at which time steps a test was attacked: one bar a step, as high as episodes were attacked at it.

    Args:
        counts: attacked episodes by time step, ``[T]``.
        episodes: the number of episodes of the test.
        path, title: as for :func:`plot_training`.

    Raises:
        ValueRangeError: for a file of another format.
    """
    plot_histograms({"": counts}, episodes, path, title)


def plot_histograms(counts: Mapping[str, NDArray[np.int64]], episodes: int, path: str | Path, title: str) -> None:
    """Write at which time steps tests of several victims were attacked, beside each other, on the same axes.

    Args:
        counts: by victim, attacked episodes by time step, ``[T]``.
        episodes: the number of episodes of each test.
        path, title: as for :func:`plot_training`.

    Raises:
        ValueRangeError: for a file of another format.
    """
    format_of(path)
    figure = new_figure(8.0, 3.2, 160, "constrained")
    longest = max(max(map(len, counts.values())), 1)
    for i, (name, values) in enumerate(counts.items()):
        axes = figure.add_subplot(1, len(counts), i + 1)
        axes.bar(np.arange(len(values)), values, width=0.8, color=ATTACKED)
        axes.set_xlim(-0.7, longest - 0.3)
        axes.set_ylim(0, max(episodes, 1))
        _whole_numbers(axes)
        if i == 0:
            axes.set_ylabel("attacked episodes", color=INK, fontsize=9)
        else:
            axes.tick_params(labelleft=False)
        axes.set_title(name, loc="left", fontsize=9, color=INK)
        _plain(axes)
    figure.supxlabel(f"time step of the episode ({episodes} episodes)", color=MUTED, size=9)
    _headed(figure, title)
    save_figure(figure, path)


def plot_profile(
    regrets: Mapping[str, Sequence[Sequence[float]]], budgets: Sequence[int], path: str | Path, title: str
) -> None:
    """Write the highest regret by the number of perturbations allowed: a line a victim, and the spread of its starts.

    Args:
        regrets: by victim, for every budget the regret of every start.
        budgets: the largest number of perturbations.
        path, title: as for :func:`plot_training`.

    Raises:
        ValueRangeError: for a file of another format.
    """
    format_of(path)
    figure = new_figure(8.0, 3.6, 160, "constrained")
    axes = figure.add_subplot()
    for i, (name, values) in enumerate(regrets.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        means = [float(np.mean(starts)) for starts in values]
        low, high = ([float(np.quantile(starts, share)) for starts in values] for share in (0.1, 0.9))
        axes.fill_between(budgets, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.plot(budgets, means, "o-", color=colour, markersize=4.5, linewidth=2, label=name)
    _whole_numbers(axes)
    axes.set_ylabel("highest regret", color=INK, fontsize=9)
    axes.set_xlabel("perturbations allowed (line: mean, band: 10% to 90% of the starts)", color=MUTED, fontsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    _plain(axes)
    _headed(figure, title)
    save_figure(figure, path)


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    bottom_spine_only(axes)


def _headed(figure: Figure, title: str) -> None:
    figure.suptitle(textwrap.fill(title, 80), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
