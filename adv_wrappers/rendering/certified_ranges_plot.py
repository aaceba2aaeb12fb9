"""The figure of certified ranges: what no attack takes and what some attack leaves, over the radius of the budget."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.rendering.matplotlib_figures import bottom_spine_only, format_of, new_figure, save_figure
from adv_wrappers.rendering.observation_pixels import ATTACKED, CLEAN, GRID, INK, MUTED

_CERTIFIED = "#059669"
_ESTIMATE = "#d97706"


@dataclass(frozen=True)
class RangePoint:
    """The mean returns at one radius; NaN where there is none.

    Attributes:
        eps: the radius.
        clean: without an attack.
        lower: the certified return.
        upper: what the strongest of the attacks leaves of every episode.
        gwc: the greedy worst-case reward, an estimate.
    """

    eps: float
    clean: float
    lower: float
    upper: float
    gwc: float


def plot_certified_ranges(points: Sequence[RangePoint], path: str | Path, title: str, unit: str = "eps") -> None:
    """Write a figure: a band from the certified return to the attacked one, and the estimate as a line apart.

    Args:
        points: the radii, in their order.
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.
        title: of the figure.
        unit: what the radius is counted in, below the axis.

    Raises:
        ValueRangeError: for a file of another format.
    """
    format_of(path)
    figure = new_figure(8.0, 4.0, 160, "constrained")
    axes = figure.add_subplot()
    eps = [point.eps for point in points]
    lower, upper = [point.lower for point in points], [point.upper for point in points]
    clean, gwc = [point.clean for point in points], [point.gwc for point in points]
    axes.fill_between(eps, lower, upper, color=MUTED, alpha=0.18, linewidth=0, label="the worst case lies here")
    axes.plot(eps, clean, color=CLEAN, linewidth=1, linestyle=(0, (4, 3)), label="clean")
    axes.plot(
        eps, upper, "v-", color=ATTACKED, markersize=6, linewidth=2, label="strongest of the attacks in every episode"
    )
    axes.plot(eps, lower, "^-", color=_CERTIFIED, markersize=6, linewidth=2, label="certified: no attack is below")
    axes.plot(
        eps,
        gwc,
        "x",
        color=_ESTIMATE,
        markersize=7,
        linewidth=1.5,
        linestyle=(0, (1, 2)),
        label="GWC, an estimate: no bound",
    )
    axes.set_xlabel(unit, color=MUTED, fontsize=9)
    axes.set_ylabel("mean return", color=INK, fontsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    bottom_spine_only(axes)
    figure.suptitle(textwrap.fill(title, 80), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    save_figure(figure, path)
