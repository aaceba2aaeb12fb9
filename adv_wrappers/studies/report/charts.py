"""Charts of a page as SVG that stands inside its HTML: in the page's own font and colours, in light and in dark.

matplotlib draws with stand-in colours, which are replaced by variables of the page's style sheet. Text stays text.
Every chart is drawn twice, for wide and for narrow windows, of which the style sheet shows one, and has its numbers as
a table.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape

import numpy as np

from adv_wrappers.evaluation.report import number_text
from adv_wrappers.evaluation.statistics import MeanWithInterval
from adv_wrappers.rendering.plots import bottom_spine_only, new_figure
from adv_wrappers.studies.report.choices import CertifiedReturn, FeatureSpread
from adv_wrappers.studies.report.sections import AttackRow, Curve, Sweep, feature_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins for the variables of the style sheet, whose values are chosen to be told apart by the colour-blind (Okabe
# and Ito's vermillion and blue, and greys).
INK, MUTED, GRID = "#0a0a01", "#0a0a02", "#0a0a03"
ATTACK, CERTIFIED, SURFACE, PAPER = "#0a0a04", "#0a0a05", "#0a0a06", "#0a0a07"
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    ATTACK: "var(--attack)",
    CERTIFIED: "var(--certified)",
    SURFACE: "var(--surface)",
    PAPER: "var(--paper)",
}
_DPI = 72  # a point is a pixel
_WIDE, _NARROW = 760, 340  # pixels
_MOST_LINES = 24  # of a chart that has a line a row
_MARKERS = "osD^vP*X"
_HINT = "hint:"  # before the name of what is drawn, which becomes the title of its group
_BEHIND_TEXT = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
_ONE_ATTACK = (("attack", "mean and 95% interval"), ("clean", "no attack"))  # a legend
TableCell = str | float | MeanWithInterval | None
Paint = Callable[["Axes", bool], None]


@dataclass(frozen=True)
class Chart:
    """A chart, which is drawn where its page needs it.

    Attributes:
        about: what it shows, in a few words, and ``description``: what is seen, in a sentence; for those who do not see
            it.
        paint: draws it, for a wide window or not.
        heights: of the drawing in wide and in narrow windows, pixels.
        header, table: its numbers.
        legend: names of what it draws, by the class of their mark in the style sheet.
        title: what tells it from the other charts of its section; "" for the only one.
        note: what should be known of it, or "".
        name: an id within the page.
    """

    about: str
    description: str
    paint: Paint
    heights: tuple[int, int]
    header: tuple[str, ...]
    table: tuple[tuple[TableCell, ...], ...]
    legend: tuple[tuple[str, str], ...]
    title: str = ""
    note: str = ""
    name: str = ""

    @cached_property
    def wide(self) -> str:
        """The drawing for wide windows, SVG."""
        return self._drawn(True)

    @cached_property
    def narrow(self) -> str:
        """The drawing for narrow windows, SVG."""
        return self._drawn(False)

    def _drawn(self, wide: bool) -> str:
        import matplotlib

        with matplotlib.rc_context(), warnings.catch_warnings():
            # Of letters that matplotlib's font lacks: it only measures, and the reader's browser has others.
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            matplotlib.rcdefaults()
            id = f"{self.name}-{'wide' if wide else 'narrow'}"
            matplotlib.rcParams.update(
                {"svg.fonttype": "none", "svg.hashsalt": id, "text.parse_math": False, "axes.unicode_minus": True}
            )
            width, height = (_WIDE, self.heights[0]) if wide else (_NARROW, self.heights[1])
            figure = new_figure(width / _DPI, height / _DPI, _DPI, "constrained")
            figure.get_layout_engine().set(w_pad=0.02, h_pad=0.04)  # type: ignore[union-attr, call-arg]
            axes = figure.add_subplot()
            bottom_spine_only(axes)
            axes.spines["bottom"].set_color(GRID)
            axes.tick_params(colors=MUTED, length=0, labelsize=12, pad=6)
            figure.patch.set_visible(False)
            axes.patch.set_visible(False)
            self.paint(axes, wide)
            return _svg(figure, id, self.about, self.description)


def _svg(figure: Figure, id: str, title: str, description: str) -> str:
    """A figure as an SVG element with a title and a description, whose ids no other has."""
    data = io.BytesIO()
    figure.savefig(data, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = data.getvalue().decode()
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)  # would hold for the whole page
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))

    def cleaned(tag: re.Match[str]) -> str:
        if (hint := re.fullmatch(rf'<g id="{_HINT}([^"]*)">', tag[0])) is not None:
            return f"<g><title>{hint[1]}</title>"
        text = re.sub(r' id="([^"]+)"', lambda own: f' id="{id}-{own[1]}"' if own[1] in used else "", tag[0])
        text = re.sub(r'(href="|url\()#', rf"\g<1>#{id}-", text)
        for colour, variable in _VARIABLES.items():
            text = text.replace(colour, variable)
        text = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px", text)
        text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
        return re.sub(r"(\d\.\d\d)\d+", r"\1", text)

    body = re.sub(r"<[^>]+>", cleaned, body)  # names, which stand between tags, stay as they are
    body = re.sub(r">\s+<", "><", body)
    width, height = (round(side * _DPI) for side in figure.get_size_inches())
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{id}-title {id}-description">'
        f'<title id="{id}-title">{escape(title)}</title><desc id="{id}-description">{escape(description)}</desc>'
        f"{body.strip()}</svg>"
    )


def shortened(text: str, most: int) -> str:
    """A text on one line, of at most so many letters."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def eps_text(eps: float) -> str:
    """A radius, or a change of a feature, as it is written beside an axis and in sentences."""
    return f"{eps:.3g}".replace("-", "\N{MINUS SIGN}")


Limits = tuple[float, float]


def limits_of(values: Sequence[float]) -> Limits:
    """The ends of an axis that shows some values."""
    low, high = min(values), max(values)
    low = 0.0 if 0 < low < high / 2 else low  # an axis begins at 0 where that costs little room
    space = (high - low) * 0.06 or max(abs(high), 1.0) * 0.06
    return low - space, high + space


def episode_limits(rows: Sequence[AttackRow], more: Sequence[float] = ()) -> Limits:
    """The range of the returns of all episodes, and of further ones; a wide interval of few does not stretch it."""
    return limits_of([*(row.row[end] for row in rows for end in ("min", "max")), *more])


def mean_limits(rows: Sequence[AttackRow], clean: AttackRow, more: Sequence[float] = ()) -> Limits:
    """The range of the means of some rows and of their intervals, as far as episodes went, and of further returns.

    A single bad episode, or another chart's row, does not stretch it; a small loss does not fill it either.
    """
    without = clean.mean
    values = [*more, without - 0.25 * abs(without)]
    for row in (clean, *rows):
        mean = row.returned
        values += [mean.mean, max(mean.low, row.row.min), min(mean.high, row.row.max)]
    return limits_of(values)


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Places of labels near their values, and at least ``gap`` apart."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    blocks: list[tuple[list[int], float]] = []  # places of labels that touch, and the middle of them all
    for place in order:
        blocks.append(([place], values[place]))
        while len(blocks) > 1:
            (before, low), (after, high) = blocks[-2:]
            if high - low >= gap * (len(before) + len(after)) / 2:
                break
            joined = before + after
            blocks[-2:] = [(joined, sum(values[item] for item in joined) / len(joined))]
    found = list(values)
    for places, middle in blocks:
        for step, place in enumerate(places):
            found[place] = middle + gap * (step - (len(places) - 1) / 2)
    return found


class _EpsAxis:
    """Radii on a logarithmic axis, with a place of its own for 0 on the left."""

    def __init__(self, radii: Sequence[float]) -> None:
        self._radii = sorted({eps for eps in radii if eps > 0})
        least, most = (self._radii[0], self._radii[-1]) if self._radii else (1.0, 1.0)
        self._straight = most / least < 8
        self.last = most  # of all numbers
        self._zero = 0.0 if self._straight else math.log10(least) - max(0.28, 0.16 * math.log10(most / least))

    def place(self, eps: float) -> float:
        """Where a radius is."""
        if self._straight:
            return eps
        return math.log10(eps) if eps > 0 else self._zero

    def paint(self, axes: Axes, wide: bool, label: str, always: float = 0.0) -> None:
        """Draw ticks at the radii, as many as have room, that of ``always`` among them."""
        radii = [0.0, *self._radii]
        span = (self.place(radii[-1]) - self.place(0.0)) or 1.0
        letter = span / (620 if wide else 230) * 7.5  # about the width of one
        shown = sorted({radii[0], always})
        for eps in radii[1:]:
            if all(
                abs(self.place(eps) - self.place(other))
                >= ((len(eps_text(eps)) + len(eps_text(other))) / 2 + 1) * letter
                for other in shown
            ):
                shown.append(eps)
        axes.set_xticks([self.place(eps) for eps in shown], [eps_text(eps) for eps in shown])
        axes.set_xlim(self.place(0.0) - 0.03 * span, self.place(radii[-1]) + 0.03 * span)
        axes.set_xlabel(label, color=MUTED, fontsize=12, labelpad=8)


def _hint(name: str, mean: MeanWithInterval) -> str:
    return f"{name}: {mean.mean:.4g} ({mean.low:.4g} to {mean.high:.4g})"


def _points(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    hints: Sequence[str],
    colour: str,
    marker: str = "o",
    size: float = 7.0,
    fade: float = 1.0,
    level: float = 3.0,
) -> None:
    """Draw points, each of which says what it is where a pointer rests on it."""
    for place, value, hint in zip(x, y, hints, strict=True):
        axes.plot(
            [place],
            [value],
            marker,
            gid=_HINT + hint,
            color=colour,
            markersize=size,
            alpha=fade,
            zorder=level,
            markeredgecolor=SURFACE,
        )


def _band(axes: Axes, x: Sequence[float], values: Sequence[MeanWithInterval], colour: str) -> None:
    """The intervals of some means; nothing where none of them is one of 95%."""
    if all(value.caveat for value in values):
        return
    if len(x) > 1:
        axes.fill_between(x, [v.low for v in values], [v.high for v in values], color=colour, alpha=0.16, linewidth=0)
    else:
        axes.vlines(x, [v.low for v in values], [v.high for v in values], color=colour, alpha=0.4, linewidth=2)


def _value_axis(axes: Axes, which: Literal["x", "y"], limits: Limits, label: str, zero: float | None = None) -> None:
    """Make ``"x"`` or ``"y"`` the axis of values, with a dashed line at that which the others are compared with."""
    from matplotlib.ticker import MaxNLocator

    axes.set(**{f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.grid(axis=which, color=GRID, linewidth=1)
    if which == "x":
        axes.set_xlabel(label, color=MUTED, fontsize=12, labelpad=8)
    else:
        axes.set_title(label, loc="left", color=MUTED, fontsize=12, pad=10)
    if zero is not None:
        line = axes.axvline if which == "x" else axes.axhline
        line(zero, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)


def _names_beside(axes: Axes, points: Sequence[tuple[str, float, float]], wide: bool) -> None:
    """Write names beside points, at heights at which none covers another; none where there are too many."""
    if not points or len(points) > (10 if wide else 6):
        return
    low, high = axes.get_ylim()
    names = [textwrap.wrap(shortened(name, 24 if wide else 30), 24 if wide else 11) for name, _, _ in points]
    gap = (high - low) * (0.055 if wide else 0.065) * max(map(len, names))
    heights = _apart([min(max(y, low), high) for _, _, y in points], gap)
    for lines, (_, x, _), height in zip(names, points, heights, strict=True):
        axes.annotate(
            "\n".join(lines), (x, height), xytext=(8, 0), textcoords="offset points", color=MUTED, fontsize=12,
            va="center", annotation_clip=False,
        )  # fmt: skip


def _mark(axes: Axes, x: float, row: AttackRow, eps: float) -> None:
    """Draw a ring around the point of a row, and write what it is below it, on the side that has more room."""
    y = row.mean
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    before, under = x - left > 0.22 * (right - left), y - low > 0.2 * (high - low)
    axes.plot(
        [x], [y], "o", markersize=15, markerfacecolor="none", markeredgecolor=ATTACK, markeredgewidth=1.6, zorder=7
    )
    axes.annotate(
        f"{number_text(y)} at eps {eps_text(eps)}".replace("-", "\N{MINUS SIGN}"),
        (x, y),
        xytext=(-12 if before else 12, -10 if under else 12),
        textcoords="offset points",
        color=ATTACK,
        fontsize=12,
        ha="right" if before else "left",
        va="top" if under else "bottom",
        bbox=_BEHIND_TEXT,
        zorder=8,
    )


# Charts of means over a number: the radius of a budget, or of how many steps.


@dataclass(frozen=True)
class _Line:
    """Rows that a chart joins by a line.

    Attributes:
        name: what stands behind its end; "" for nothing.
        points: numbers and rows.
        colour, marker: of the line and of its points.
        bold: whether it is what the chart is about, and has its intervals.
        says: what stands before the name of a row where a pointer rests on it.
    """

    name: str
    points: Sequence[tuple[float, AttackRow]]
    colour: str = MUTED
    marker: str = "o"
    bold: bool = False
    says: str = ""


def _draw_lines(axes: Axes, wide: bool, axis: _EpsAxis, lines: Sequence[_Line], label: str, always: float = 0) -> None:
    """Draw lines over an axis whose ticks are numbers of them, that of ``always`` among them, and their names."""
    ends = list[tuple[str, float, float]]()
    for line in lines:
        x = [axis.place(number) for number, _ in line.points]
        means = [row.returned for _, row in line.points]
        y = [mean.mean for mean in means]
        if line.bold:
            _band(axes, x, means, line.colour)
        level, fade, size = (5, 1.0, 7.0) if line.bold else (2, 0.75, 5.0)
        axes.plot(x, y, color=line.colour, linewidth=2.6 if line.bold else 1.3, alpha=fade, zorder=level)
        hints = [line.says + _hint(row.label, row.returned) for _, row in line.points]
        _points(axes, x, y, hints, line.colour, line.marker, size, fade, level + 1)
        if line.name and line.points[-1][0] == axis.last:  # the others end where no name has room
            ends.append((line.name, x[-1], y[-1]))
    axis.paint(axes, wide, label, always)
    _names_beside(axes, [(name, axes.get_xlim()[1], y) for name, _, y in ends], wide)


def sweep_chart(
    sweep: Sweep,
    certificates: Sequence[CertifiedReturn],
    unit: str,
    alone: bool = True,
    headline: float | None = None,
) -> Chart:
    """Return over the radius: every attack, the strongest of them with its interval, and the certified return.

    The point at the radius ``headline`` is marked, and says what it is.
    """
    strongest, clean = sweep.strongest, sweep.clean
    marked = dict(strongest).get(headline) if headline else None
    certified = sorted(certificates, key=lambda one: one.eps)
    axis = _EpsAxis([*(eps for eps, _ in strongest), *(one.eps for one in certified)])
    limits = mean_limits([row for curve in sweep.curves for row in curve.rows], clean, [one.lower for one in certified])
    lines = [
        _Line(curve.attack, [(row.eps or 0.0, row) for row in curve.rows], marker=marker)
        for curve, marker in zip(sweep.curves, itertools.cycle(_MARKERS))
    ]
    lines.append(_Line("", strongest, ATTACK, bold=True, says="strongest so far, "))

    def paint(axes: Axes, wide: bool) -> None:
        _value_axis(axes, "y", limits, "mean return of an episode", clean.mean)
        if certified:  # what holds at an eps holds below it: between two certified eps the bound is that of the larger
            places = [axis.place(eps) for eps in (0.0, *(one.eps for one in certified))]
            lower = [certified[0].lower, *(one.lower for one in certified)]
            axes.fill_between(places, limits[0], lower, step="pre", color=CERTIFIED, alpha=0.13, linewidth=0)
            axes.plot(places, lower, color=CERTIFIED, linewidth=2, drawstyle="steps-pre", zorder=4)
            hints = [f"eps {eps_text(one.eps)}: certified, at least {one.lower:.4g}" for one in certified]
            _points(axes, places[1:], lower[1:], hints, CERTIFIED, "^", level=4)
        _draw_lines(axes, wide, axis, lines, f"eps ({unit})" if unit else "eps", headline if marked and headline else 0)
        if marked and headline:
            _mark(axes, axis.place(headline), marked, headline)

    last_eps, last = strongest[-1]
    description = (
        f"Mean return over eps. Without an attack {clean.mean:.4g}; under the strongest of "
        f"{len(sweep.curves)} attacks at eps {eps_text(last_eps)} {last.mean:.4g}."
    )
    header: tuple[str, ...] = ("eps", "strongest attack so far", "mean return")
    legend = [("attack", "strongest attack with its 95% interval"), ("other", "each attack"), ("clean", "no attack")]
    by_eps, proved = dict(strongest), {one.eps: one.lower for one in certified}
    table = list[tuple[TableCell, ...]]()
    for eps in sorted({*by_eps, *proved}):
        row = by_eps.get(eps)
        name = None if row is None else "no attack" if row.kind == "clean" else row.attack
        line = (eps_text(eps), name, None if row is None else row.returned)
        table.append((*line, proved.get(eps)) if certified else line)
    notes = []
    if certified:
        description += f" Certified up to eps {eps_text(certified[-1].eps)}."
        header += ("certified at least",)
        legend.insert(1, ("certified", "certified: no attack goes below"))
        counts = sorted({one.episodes for one in certified if one.episodes is not None})
        if counts and counts != [clean.row.episodes]:
            notes.append(
                f"The certified return is the mean over {' or '.join(map(str, counts))} episodes, the attacked one "
                f"over {clean.row.episodes}."
            )
        if certified[-1].eps < last_eps:
            notes.append(f"Nothing is certified beyond eps {eps_text(certified[-1].eps)}.")
    return Chart(
        "Return over eps", description, paint, (360, 320), header, tuple(table), tuple(legend),
        "" if alone else f"Budget: {sweep.budget}", " ".join(notes),
    )  # fmt: skip


def few_chart(curves: Sequence[Curve], clean: AttackRow) -> Chart:
    """Return over the number of steps that may be attacked."""
    rows = [row for curve in curves for row in curve.rows]
    worst = min(rows, key=lambda row: (row.mean, row.count or 0))
    axis, limits = _EpsAxis([float(row.count or 0) for row in rows]), mean_limits(rows, clean)
    lines = []
    for curve, marker in zip(curves, itertools.cycle(_MARKERS)):
        points = [(float(row.count or 0), row) for row in (clean, *curve.rows)]  # no attacked step at all is no attack
        lowest = worst in curve.rows
        name = curve.attack if len(curves) > 1 else ""
        lines.append(_Line(name, points, ATTACK if lowest else MUTED, marker, bold=lowest))

    def paint(axes: Axes, wide: bool) -> None:
        _value_axis(axes, "y", limits, "mean return of an episode", clean.mean)
        _draw_lines(axes, wide, axis, lines, "attacked steps of an episode, at most")

    description = (
        f"Mean return over the number of attacked steps. {worst.attack} in at most {worst.count} steps leaves "
        f"{worst.mean:.4g}; without an attack {clean.mean:.4g}."
    )
    legend = (("attack", "lowest curve with its 95% interval"), ("other", "other attacks"), ("clean", "no attack"))
    return Chart(
        "Return by number of attacked steps", description, paint, (300, 280),
        ("attack", "attacked steps, at most", "mean return"),
        tuple((row.attack, float(row.count or 0), row.returned) for row in rows),
        legend if len(curves) > 1 else _ONE_ATTACK,
        f"Some steps alone: {curves[0].attack}" if len(curves) == 1 else "",
    )  # fmt: skip


def two_agents_chart(sweeps: tuple[Sweep, Sweep], labels: tuple[str, str]) -> Chart:
    """Return over the radius of two agents under the strongest of the same attacks, with intervals."""
    first, second = (dict(sweep.strongest) for sweep in sweeps)
    axis, limits = _EpsAxis([*first]), episode_limits([*first.values(), *second.values()])
    lines = [
        _Line("", sweep.strongest, colour, marker, True, f"{label}, ")
        for label, sweep, colour, marker in zip(labels, sweeps, (MUTED, CERTIFIED), "so", strict=True)
    ]

    def paint(axes: Axes, wide: bool) -> None:
        _value_axis(axes, "y", limits, "mean return under the strongest attack")
        _draw_lines(axes, wide, axis, lines, "eps")

    both = [(eps_text(eps), first[eps].returned, second[eps].returned) for eps in first if eps in second]
    description = "Mean return over eps of two agents under the same attacks. " + "; ".join(
        f"eps {eps}: {one.mean:.4g} and {other.mean:.4g}" for eps, one, other in both
    )
    return Chart(
        "Return of two agents over eps", description, paint, (340, 310), ("eps", *labels), tuple(both),
        (("other", labels[0]), ("certified", labels[1])),
    )  # fmt: skip


# Charts of a line for each attack, feature or run.


@dataclass(frozen=True)
class _Dot:
    """A mean with its interval on a line.

    Attributes:
        name: of what it is.
        mean: the mean.
        colour, fade: how it is drawn.
        up: how far above its line, as a share of the distance of two lines.
        episodes: single values that it is the mean of; empty where they are not drawn.
    """

    name: str
    mean: MeanWithInterval
    colour: str = ATTACK
    fade: float = 1.0
    up: float = 0.0
    episodes: Sequence[float] = ()


def _line_chart(
    about: str,
    description: str,
    lines: Sequence[tuple[str, Sequence[_Dot]]],
    limits: Limits,
    label: str,
    zero: float,
    header: tuple[str, ...],
    table: Sequence[tuple[TableCell, ...]],
    legend: tuple[tuple[str, str], ...],
    title: str = "",
    what: str = "",
) -> Chart:
    """A chart of dots on named lines, the first ones of many; ``what`` are those that are left out."""
    shown, left_out = lines[:_MOST_LINES], len(lines) - _MOST_LINES

    def paint(axes: Axes, wide: bool) -> None:
        _value_axis(axes, "x", limits, label, zero)
        for place, (_, dots) in enumerate(shown):
            for dot in dots:
                y, mean, alpha = place - dot.up, dot.mean, min(1.0, max(0.12, 6 / (len(dot.episodes) or 6)))
                axes.plot(dot.episodes, [y] * len(dot.episodes), "|", color=dot.colour, markersize=15, alpha=alpha)
                axes.hlines(y, mean.low, mean.high, color=dot.colour, linewidth=2, alpha=0.45 * dot.fade)
                _points(axes, [mean.mean], [y], [_hint(dot.name, mean)], dot.colour, size=7.5, fade=dot.fade)
        axes.set_ylim(len(shown) - 0.5, -0.5 if wide else -0.75)
        axes.set_yticks(range(len(shown)) if wide else [], [shortened(name, 38) for name, _ in shown if wide])
        axes.tick_params(axis="y", colors=INK)
        for place, (name, _) in enumerate(shown if not wide else ()):  # above its line where the window is narrow
            axes.annotate(
                shortened(name, 44), (0, place), xycoords=("axes fraction", "data"), xytext=(0, 10),
                textcoords="offset points", color=INK, fontsize=12, bbox=_BEHIND_TEXT,
            )  # fmt: skip

    height = 84 + 36 * len(shown)
    note = f"The {left_out} {what} are in the table alone." if left_out > 0 else ""
    return Chart(
        about, description, paint, (height, height + 8 * len(shown)), header, tuple(table), legend, title, note
    )  # fmt: skip


def rows_chart(title: str, rows: Sequence[AttackRow], clean: AttackRow, titled: bool = True) -> Chart:
    """Return under each of some attacks, the strongest first: a line an attack."""
    order = sorted(rows, key=lambda row: row.mean)
    description = (
        f"{title}. Lowest mean return {order[0].mean:.4g} under {order[0].label}; without an attack {clean.mean:.4g}."
    )
    return _line_chart(
        title, description, [(row.label, [_Dot(row.label, row.returned)]) for row in order], mean_limits(rows, clean),
        "mean return of an episode", clean.mean, ("attack", "mean return", "against no attack"),
        [(row.label, row.returned, row.change) for row in order], _ONE_ATTACK, title if titled else "",
        "that hurt least",
    )  # fmt: skip


def feature_chart(curve: Curve, clean: AttackRow, known: Sequence[FeatureSpread] | None) -> Chart:
    """Return when a few features alone are attacked: a line a set of features, a dot a radius."""
    radii = sorted({row.eps or 0.0 for row in curve.rows})
    alone = len(radii) == 1
    by_features = dict[tuple[int, ...], list[AttackRow]]()  # the largest radius last
    for row in sorted(curve.rows, key=lambda row: row.eps or 0.0):
        by_features.setdefault(row.features, []).append(row)
    order = sorted(by_features.values(), key=lambda rows: rows[-1].mean)
    lines = list[tuple[str, list[_Dot]]]()
    for rows in order:
        # paler and lower on its line for smaller radii
        sizes = [(radii.index(row.eps or 0.0) + 1) / len(radii) for row in rows]
        dots = [
            _Dot(row.label, row.returned, fade=0.35 + 0.65 * size, up=0.0 if alone else 0.36 * (1 - size) - 0.1)
            for row, size in zip(rows, sizes, strict=True)
        ]
        lines.append((feature_names(rows[0], known), dots))
    description = (
        f"Mean return when {curve.attack} may change one set of features alone. Lowest for {lines[0][0]}: "
        f"{order[0][-1].mean:.4g} at the largest eps; without an attack {clean.mean:.4g}."
    )
    table = [
        (name, eps_text(row.eps or 0.0), row.returned)
        for (name, _), rows in zip(lines, order, strict=True)
        for row in rows
    ]
    legend = (("attack", f"eps {eps_text(radii[0])}" if alone else "paler for smaller eps"), ("clean", "no attack"))
    return _line_chart(
        "Return by attacked feature", description, lines, mean_limits(curve.rows, clean), "mean return of an episode",
        clean.mean, ("features", "eps", "mean return"), table, legend,
        f"One feature at a time: {curve.attack}", "features that hurt least",
    )  # fmt: skip


def episode_chart(rows: Sequence[AttackRow]) -> Chart:
    """The return of every episode, a line a run, with the mean and its interval; the first run is without an attack."""
    lines = [
        (
            row.label,
            [_Dot(row.label, row.returned, INK if row.kind == "clean" else ATTACK, episodes=row.row.returns)],
        )
        for row in rows
    ]
    description = "The return of every episode: " + "; ".join(
        f"{row.label} from {row.row.min:.4g} to {row.row.max:.4g}" for row in rows[:8]
    )
    table: list[tuple[TableCell, ...]] = [
        (row.label, row.returned, row.row.median, row.row.min, row.row.max) for row in rows
    ]
    return _line_chart(
        "Each episode's return", description, lines, episode_limits(rows), "return of an episode",
        rows[0].mean, ("attack", "mean return", "median", "lowest", "highest"), table,
        (("tick", "an episode"), ("attack", "mean and 95% interval")),
    )  # fmt: skip


def difference_chart(labels: tuple[str, str], differences: Sequence[tuple[str, MeanWithInterval]]) -> Chart:
    """Paired differences of the second of two agents to the first, with their intervals, a line an attack."""
    title = f"Mean return of {labels[1]} minus that of {labels[0]}"
    colours = {1: CERTIFIED, -1: ATTACK, 0: MUTED}
    description = f"{title}: " + "; ".join(
        f"{name} {mean.mean:+.4g} ({mean.low:+.4g} to {mean.high:+.4g})" for name, mean in differences[:8]
    )
    ends = [end for _, mean in differences for end in (mean.mean, mean.low, mean.high)]
    return _line_chart(
        title, description, [(name, [_Dot(name, mean, colours[mean.side])]) for name, mean in differences],
        limits_of([*ends, 0.0]), "difference of mean returns", 0.0, ("attack", "difference"), differences,
        (("certified", f"{labels[1]} is better"), ("attack", f"{labels[0]} is better"), ("other", "not told apart")),
        what="that differ least",
    )  # fmt: skip


# Others.


def moment_chart(curve: Curve, clean: AttackRow) -> Chart:
    """Return when the attack may act in a window of steps alone: a bar a window."""
    windows = sorted((row.window or (0, 1), row) for row in curve.rows)
    named = [(f"{start} to {end - 1}", start, end, row) for (start, end), row in windows]
    limits = mean_limits(curve.rows, clean)

    def paint(axes: Axes, wide: bool) -> None:
        from matplotlib.ticker import MaxNLocator

        _value_axis(axes, "y", limits, "mean return of an episode", clean.mean)
        for steps, start, end, row in named:
            mean = row.returned
            axes.fill_between([start, end], mean.low, mean.high, color=ATTACK, alpha=0.2, linewidth=0)
            hint = _HINT + _hint(f"steps {steps}", mean)
            axes.plot([start, end], [mean.mean] * 2, color=ATTACK, linewidth=3, solid_capstyle="butt", gid=hint)
        axes.xaxis.set_major_locator(MaxNLocator(6 if wide else 4, integer=True))
        label = "step of the episode; every bar is a run attacked in these steps alone" if wide else "attacked steps"
        axes.set_xlabel(label, color=MUTED, fontsize=12, labelpad=8)

    steps, _, _, worst = min(named, key=lambda one: one[3].mean)
    description = (
        f"Mean return when {curve.attack} acts in a window of steps alone. Lowest for steps {steps}: "
        f"{worst.mean:.4g}; without an attack {clean.mean:.4g}."
    )
    return Chart(
        "Return by attacked steps", description, paint, (300, 270),
        ("attacked steps", "mean return", "against no attack"),
        tuple((steps, row.returned, row.change) for steps, _, _, row in named), _ONE_ATTACK,
        f"One window of steps at a time: {curve.attack}",
        "A window takes nothing of what was earned before it: a late one may cost less even where it ends the episode.",
    )  # fmt: skip


def distance_chart(distance: str, rows: Sequence[AttackRow], clean: AttackRow, lowest: float | None) -> Chart:
    """What an attack takes, over how far the changed observations are from the true ones.

    Args:
        distance: the name of the distance.
        rows: rows that have it.
        clean: the row without an attack.
        lowest: the return that impact counts from, or None for differences of returns.
    """
    above = clean.mean - lowest if lowest is not None else 0.0
    unit = 1 / above if above > 0 else 1.0
    label = "impact (1: the lowest return possible)" if above > 0 else "return lost"
    points = list[tuple[str, float, MeanWithInterval]]()
    for row in rows:
        change = row.change
        taken = MeanWithInterval(-unit * change.mean, -unit * change.high, -unit * change.low, change.caveat)
        points.append((row.label, row.row["distances"][distance], taken))
    limits = limits_of([0.0, *(taken.mean for _, _, taken in points)])

    def paint(axes: Axes, wide: bool) -> None:
        _value_axis(axes, "y", limits, label, 0.0)
        for name, x, taken in points:
            axes.vlines(x, taken.low, taken.high, color=ATTACK, linewidth=2, alpha=0.35)
            _points(axes, [x], [taken.mean], [f"{_hint(name, taken)}, {distance} {x:.4g}"], ATTACK, size=7.5)
        axes.margins(x=0.1)
        _names_beside(axes, [(name, x, taken.mean) for name, x, taken in points], wide)
        axes.set_xlabel(distance, color=MUTED, fontsize=12, labelpad=8)

    description = f"{label} over {distance} of the attacked observations to the true ones, for {len(points)} attacks."
    return Chart(
        label, description, paint, (320, 290), ("attack", distance, label),
        tuple((name, f"{x:.4g}", taken) for name, x, taken in points),
        (("attack", "an attack, with the 95% interval of what it takes"),), f"Impact against {distance}",
    )  # fmt: skip


def bar_place(value: float, limits: tuple[float, float]) -> float:
    """Where a value is between limits, 0 to 100."""
    low, high = limits
    return float(np.clip(100 * (value - low) / ((high - low) or 1.0), 0, 100))
