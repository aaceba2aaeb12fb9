"""The figure of a report, drawn without pyplot: no state is shared and no display is needed."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics import marked
from adv_wrappers.utils.files import write

if TYPE_CHECKING:
    from adv_wrappers.evaluation.report import Report

_UNDATED: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_INK, _MUTED, _GRID, _CLEAN, _HIT = "#1f2430", "#6b7280", "#e5e7eb", "#2563eb", "#dc2626"


def draw(report: Report, path: str | Path) -> None:
    """Write a figure: one line a threat in the order given, the mean return with its interval, and every episode.

    Args:
        report: with at least the clean run.
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.

    Raises:
        ValueRangeError: for a file of another kind.
    """
    kind = kind_of(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = report.threats
    figure = Figure(figsize=(8.0, 1.5 + 0.5 * len(rows)), dpi=160, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        colour = _CLEAN if row["threat"] == "none" else _HIT
        mean = row["mean_return"]
        returns = row.get("returns") or []
        axes.plot(returns, [place] * len(returns), "|", color=colour, alpha=0.25, markersize=11, zorder=2)
        axes.errorbar(
            mean, place, xerr=[[max(mean - row["low"], 0.0)], [max(row["high"] - mean, 0.0)]], fmt="o", color=colour,
            markersize=7, elinewidth=2.2, capsize=4, capthick=2.2, zorder=3,
        )  # fmt: skip
    if rows:
        axes.axvline(rows[0]["mean_return"], color=_CLEAN, linewidth=1, linestyle=(0, (4, 3)), alpha=0.7, zorder=1)
    names = ["no attack" if row["threat"] == "none" else str(row["threat"]) for row in rows]
    labels = [marked(name, row) for name, row in zip(names, rows, strict=True)]
    axes.set_yticks(range(len(rows)), [textwrap.fill(label, 38, break_long_words=True) for label in labels], fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    unit = f"return of an episode (mean and 95% interval, {report.episodes} episodes)"
    axes.set_xlabel("\n".join([unit, *report.footnotes()]), color=_MUTED, fontsize=9)
    title = f"{report.victim.get('ref') or 'victim'} on {report.env['id']}"
    figure.suptitle(textwrap.fill(title, 80), x=0.01, ha="left", fontsize=11, fontweight="bold", color=_INK)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    data = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "adv_wrappers"}):  # the same report, the same bytes
        figure.savefig(data, format=kind, metadata=_UNDATED[kind])
    write(Path(path), data.getvalue())


def kind_of(path: str | Path, kinds: Sequence[str] = tuple(_UNDATED)) -> str:
    """What a picture's file is to hold, by its name; raises :class:`ValueRangeError` for what is not written here."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in kinds:
        *most, last = (f".{one}" for one in kinds)
        known = f"{', '.join(most)} or {last}" if most else last
        raise ValueRangeError(f"a picture is written as {known}, got {str(path)!r}")
    return kind
