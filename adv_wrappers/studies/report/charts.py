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
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

from adv_wrappers.evaluation.report import number_text
from adv_wrappers.rendering.plots import bottom_spine_only, new_figure
from adv_wrappers.studies.report.choices import CertifiedReturn, FeatureSpread
from adv_wrappers.studies.report.sections import AttackRow, Curve, MeanWithInterval, Sweep, feature_names

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
Cell = str | float | MeanWithInterval | None


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        name: an id within the page.
        title: what tells it from the other charts of its section; "" for the only one.
        description: what is seen, in a sentence, for those who do not see it.
        wide, narrow: the drawing for both kinds of windows, SVG.
        header: of its table.
        table: its numbers.
        legend: names of what it draws, by the class of their mark in the style sheet.
        note: what should be known of it, or "".
    """

    name: str
    title: str
    description: str
    wide: str
    narrow: str
    header: tuple[str, ...]
    table: tuple[tuple[Cell, ...], ...]
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""


Paint = Callable[["Axes", bool], None]


def _draw(name: str, title: str, description: str, paint: Paint, height: int, narrow_height: int) -> tuple[str, str]:
    """The SVG for wide and for narrow windows."""
    import matplotlib

    found = []
    for wide in (True, False):
        with matplotlib.rc_context(), warnings.catch_warnings():
            # Of letters that matplotlib's font lacks: it only measures, and the reader's browser has others.
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            matplotlib.rcdefaults()
            id = f"{name}-{'wide' if wide else 'narrow'}"
            matplotlib.rcParams.update(
                {"svg.fonttype": "none", "svg.hashsalt": id, "text.parse_math": False, "axes.unicode_minus": True}
            )
            size = (_WIDE, height) if wide else (_NARROW, narrow_height)
            figure = new_figure(size[0] / _DPI, size[1] / _DPI, _DPI, "constrained")
            figure.get_layout_engine().set(w_pad=0.02, h_pad=0.04)  # type: ignore[union-attr, call-arg]
            axes = figure.add_subplot()
            bottom_spine_only(axes)
            axes.spines["bottom"].set_color(GRID)
            axes.tick_params(colors=MUTED, length=0, labelsize=12, pad=6)
            figure.patch.set_visible(False)
            axes.patch.set_visible(False)
            paint(axes, wide)
            found.append(_svg(figure, id, title, description))
    return found[0], found[1]


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


def chart_limits(rows: Sequence[AttackRow], more: Sequence[float] = ()) -> Limits:
    """The range of returns that charts show: of the episodes; a wide interval of few episodes does not stretch it.

    Args:
        rows: the rows of a report, so that all its charts have one scale.
        more: further returns.
    """
    values = [value for row in rows for value in (row.row["min"], row.row["max"])] + list(more)
    low, high = min(values), max(values)
    low = 0.0 if 0 < low < high / 2 else low  # an axis begins at 0 where that costs little room
    space = (high - low) * 0.06 or max(abs(high), 1.0) * 0.06
    return low - space, high + space


def mean_limits(rows: Sequence[AttackRow], clean: AttackRow, more: Sequence[float] = ()) -> Limits:
    """The range of returns that a chart of means shows: its own means and intervals, as far as episodes went.

    A single bad episode, or another chart's row, does not stretch it; a small loss does not fill it either.

    Args:
        rows: the rows of the chart.
        clean: the run without an attack, which every chart shows.
        more: further returns.
    """
    values = [*more]
    for row in (clean, *rows):
        mean, worst, best = row.returned, row.row["min"], row.row["max"]
        values += [mean.mean, max(mean.low, worst), min(mean.high, best)]
    low, high = min(values), max(values)
    without = clean.returned.mean
    low = min(low, without - 0.25 * abs(without))
    low = 0.0 if 0 < low < high / 2 else low  # an axis begins at 0 where that costs little room
    space = (high - low) * 0.06 or max(abs(high), 1.0) * 0.06
    return low - space, high + space


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


Box = tuple[float, float, float, float]  # left, right, low, high


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def _label_box(point: tuple[float, float], shift: tuple[float, float], length: float) -> Box:
    """Where a text of a length stands that begins, or ends, so far from a point."""
    x, y = point[0] + shift[0], point[1] + shift[1]
    return (x, x + length, y - 6, y + 6) if shift[0] > 0 else (x - length, x, y - 6, y + 6)


def _free_places(axes: Axes, named: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """How far beside its point each name may stand, in pixels, so that it covers no other as far as that can be."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    width, height = 0.86 * _WIDE, 230.0  # about what the axes will have
    points = [((x - left) / (right - left) * width, (y - low) / (high - low) * height) for x, y, _ in named]
    taken: list[Box] = [(x - 6, x + 6, y - 6, y + 6) for x, y in points]
    shifts = [(side, up) for up in (0.0, 13.0, -13.0, 26.0, -26.0, 39.0) for side in (10.0, -10.0)]
    found = []
    for point, (_, _, text) in zip(points, named, strict=True):
        boxes = {shift: _label_box(point, shift, 6.4 * len(text)) for shift in shifts}
        free = [
            shift
            for shift, box in boxes.items()
            if box[0] > 0 and box[1] < width + 60 and not any(_overlap(box, other) for other in taken)
        ]
        found.append(free[0] if free else shifts[0])
        taken.append(boxes[found[-1]])
    return found


class _EpsAxis:
    """Radii on a logarithmic axis, with a place of its own for 0 on the left."""

    def __init__(self, radii: Sequence[float]) -> None:
        self._radii = sorted({eps for eps in radii if eps > 0})
        least, most = (self._radii[0], self._radii[-1]) if self._radii else (1.0, 1.0)
        self._straight = most / least < 8
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


def _clean_line(axes: Axes, clean: AttackRow, upright: bool = False) -> None:
    draw = axes.axvline if upright else axes.axhline
    draw(clean.row["mean_return"], color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)


def _return_axis(axes: Axes, limits: Limits, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(*limits)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.grid(axis="y", color=GRID, linewidth=1)
    axes.set_title(label, loc="left", color=MUTED, fontsize=12, pad=10)


def _end_labels(axes: Axes, x: float, ends: Sequence[tuple[str, float, str]], wide: bool) -> None:
    """Write the names of lines behind their ends."""
    low, high = axes.get_ylim()
    names = [textwrap.wrap(shortened(name, 24 if wide else 30), 24 if wide else 11) for name, _, _ in ends]
    gap = (high - low) * (0.055 if wide else 0.065) * max(map(len, names))
    places = _apart([min(max(y, low), high) for _, y, _ in ends], gap)
    for lines, (_, _, colour), y in zip(names, ends, places, strict=True):
        axes.annotate(
            "\n".join(lines),
            (x, y),
            xytext=(8, 0),
            textcoords="offset points",
            color=colour,
            fontsize=12,
            va="center",
            annotation_clip=False,
        )


def _mark(axes: Axes, x: float, row: AttackRow, eps: float) -> None:
    """Draw a ring around the point of a row, and write what it is below it, on the side that has more room."""
    y = row.row["mean_return"]
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


def sweep_chart(
    name: str,
    sweep: Sweep,
    certificates: Sequence[CertifiedReturn],
    unit: str,
    limits: Limits,
    alone: bool = True,
    headline: float | None = None,
) -> Chart:
    """Return over the radius: every attack, the strongest of them with its interval, and the certified return.

    The point at the radius ``headline`` is marked, and says what it is.
    """
    strongest = sweep.strongest
    marked = dict(strongest).get(headline) if headline else None
    certified = sorted(certificates, key=lambda one: one.eps)
    axis = _EpsAxis([*(eps for eps, _ in strongest), *(one.eps for one in certified)])
    label = f"eps ({unit})" if unit else "eps"
    last_eps, last = strongest[-1]

    def paint(axes: Axes, wide: bool) -> None:
        _return_axis(axes, limits, "mean return of an episode")
        x = [axis.place(eps) for eps, _ in strongest]
        y = [row.row["mean_return"] for _, row in strongest]
        if certified:  # what holds at an eps holds below it: between two certified eps the bound is that of the larger
            places = [axis.place(eps) for eps in (0.0, *(one.eps for one in certified))]
            lower = [certified[0].lower, *(one.lower for one in certified)]
            axes.fill_between(places, limits[0], lower, step="pre", color=CERTIFIED, alpha=0.13, linewidth=0)
            axes.plot(places, lower, color=CERTIFIED, linewidth=2, drawstyle="steps-pre", zorder=4)
            hints = [f"eps {eps_text(one.eps)}: certified, at least {one.lower:.4g}" for one in certified]
            _points(axes, places[1:], lower[1:], hints, CERTIFIED, "^", level=4)
        _clean_line(axes, sweep.clean)
        ends = []
        for curve, marker in zip(sweep.curves, itertools.cycle(_MARKERS)):
            own = [axis.place(row.eps or 0.0) for row in curve.rows]
            means = [row.row["mean_return"] for row in curve.rows]
            axes.plot(own, means, color=MUTED, linewidth=1.2, alpha=0.75, zorder=2)
            hints = [_hint(row.label, row.returned) for row in curve.rows]
            _points(axes, own, means, hints, MUTED, marker, size=5, fade=0.75, level=2)
            if curve.rows[-1].eps == last_eps:  # the others end where no name has room
                ends.append((curve.attack, means[-1], MUTED))
        _band(axes, x, [row.returned for _, row in strongest], ATTACK)
        axes.plot(x, y, color=ATTACK, linewidth=2.6, zorder=5)
        hints = [f"eps {eps_text(eps)}, strongest is {_hint(row.label, row.returned)}" for eps, row in strongest]
        _points(axes, x, y, hints, ATTACK, level=6)
        axis.paint(axes, wide, label, headline if marked and headline else 0.0)
        if marked and headline:
            _mark(axes, axis.place(headline), marked, headline)
        if len(ends) <= (10 if wide else 6):
            _end_labels(axes, axes.get_xlim()[1], ends, wide)

    description = (
        f"Mean return over eps. Without an attack {sweep.clean.row['mean_return']:.4g}; under the strongest of "
        f"{len(sweep.curves)} attacks at eps {eps_text(last_eps)} {last.row['mean_return']:.4g}."
    )
    if certified:
        description += f" Certified up to eps {eps_text(certified[-1].eps)}."
    by_eps = {one.eps: one for one in certified}
    table: list[tuple[Cell, ...]] = []
    strength = dict(strongest)
    for eps in sorted({*strength, *by_eps}):
        row = strength.get(eps)
        table.append(
            (
                eps_text(eps),
                None if row is None else ("no attack" if row.kind == "clean" else row.attack),
                None if row is None else row.returned,
                by_eps[eps].lower if eps in by_eps else None,
            )
        )
    header = ("eps", "strongest attack so far", "mean return", "certified at least")
    if not certified:
        table = [line[:3] for line in table]
    legend = [("attack", "strongest attack with its 95% interval"), ("other", "each attack"), ("clean", "no attack")]
    notes = []
    if certified:
        legend.insert(1, ("certified", "certified: no attack goes below"))
        counts = sorted({one.episodes for one in certified if one.episodes is not None})
        if counts and counts != [int(sweep.clean.row["episodes"])]:
            notes.append(
                f"The certified return is the mean over {' or '.join(map(str, counts))} episodes, the attacked one "
                f"over {sweep.clean.row['episodes']}."
            )
        if certified[-1].eps < last_eps:
            notes.append(f"Nothing is certified beyond eps {eps_text(certified[-1].eps)}.")
    return Chart(
        name,
        "" if alone else f"Budget: {sweep.budget}",
        description,
        *_draw(name, "Return over eps", description, paint, 360, 320),
        header if certified else header[:3],
        tuple(table),
        tuple(legend),
        " ".join(notes),
    )


def feature_chart(
    name: str, curve: Curve, clean: AttackRow, known: Sequence[FeatureSpread] | None, limits: Limits
) -> Chart:
    """Return when a few features alone are attacked: a line a set of features, a dot a radius."""
    radii = sorted({row.eps or 0.0 for row in curve.rows})
    largest = {row.features: row.row["mean_return"] for row in sorted(curve.rows, key=lambda row: row.eps or 0.0)}
    order = sorted(largest, key=lambda features: largest[features])
    shown, left_out = order[:_MOST_LINES], len(order) - _MOST_LINES
    labels = {row.features: feature_names(row, known) for row in curve.rows}
    place = {features: number for number, features in enumerate(shown)}

    def paint(axes: Axes, wide: bool) -> None:
        _upright_returns(axes, limits, clean)
        for row in curve.rows:
            if row.features in place:
                fade = 0.35 + 0.65 * (radii.index(row.eps or 0.0) + 1) / len(radii) if len(radii) > 1 else 1.0
                shift = 0.0 if len(radii) == 1 else 0.18 * (1 - 2 * radii.index(row.eps or 0.0) / (len(radii) - 1))
                _dot(axes, row, place[row.features] - shift, fade)
        _line_names(axes, [labels[features] for features in shown], wide)

    weakest = labels[order[0]]
    description = (
        f"Mean return when {curve.attack} may change one set of features alone. Lowest for {weakest}: "
        f"{largest[order[0]]:.4g} at the largest eps; without an attack {clean.row['mean_return']:.4g}."
    )
    table = tuple(
        (labels[row.features], eps_text(row.eps or 0.0), row.returned)
        for features in order
        for row in curve.rows
        if row.features == features
    )
    note = f"The {left_out} features that hurt least are in the table alone." if left_out > 0 else ""
    height = 84 + 40 * len(shown)
    return Chart(
        name,
        f"One feature at a time: {curve.attack}",
        description,
        *_draw(name, "Return by attacked feature", description, paint, height, height + 6 * len(shown)),
        ("features", "eps", "mean return"),
        table,
        (
            ("attack", "paler for smaller eps" if len(radii) > 1 else f"eps {eps_text(radii[0])}"),
            ("clean", "no attack"),
        ),
        note,
    )


def _upright_returns(axes: Axes, limits: Limits, clean: AttackRow) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(*limits)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.grid(axis="x", color=GRID, linewidth=1)
    axes.set_xlabel("mean return of an episode", color=MUTED, fontsize=12, labelpad=8)
    _clean_line(axes, clean, upright=True)


def _dot(axes: Axes, row: AttackRow, y: float, fade: float = 1.0) -> None:
    mean = row.returned
    axes.hlines(y, mean.low, mean.high, color=ATTACK, linewidth=2, alpha=0.45 * fade)
    _points(axes, [mean.mean], [y], [_hint(row.label, mean)], ATTACK, size=7.5, fade=fade)


def _line_names(axes: Axes, names: Sequence[str], wide: bool) -> None:
    """Write what every line is: on the left of it, or above it where the window is narrow."""
    axes.set_ylim(len(names) - 0.5, -0.5 if wide else -0.75)
    if wide:
        axes.set_yticks(range(len(names)), [shortened(name, 38) for name in names])
        axes.tick_params(axis="y", colors=INK)
        return
    axes.set_yticks([])
    for place, name in enumerate(names):
        axes.annotate(
            shortened(name, 44),
            (0, place),
            xycoords=("axes fraction", "data"),
            xytext=(0, 10),
            textcoords="offset points",
            color=INK,
            fontsize=12,
            bbox=_BEHIND_TEXT,
        )


def rows_chart(
    name: str, title: str, rows: Sequence[AttackRow], clean: AttackRow, limits: Limits, titled: bool = True
) -> Chart:
    """Return under each of some attacks, the strongest first: a line an attack."""
    order = sorted(rows, key=lambda row: row.row["mean_return"])
    shown, left_out = order[:_MOST_LINES], len(order) - _MOST_LINES

    def paint(axes: Axes, wide: bool) -> None:
        _upright_returns(axes, limits, clean)
        for place, row in enumerate(shown):
            _dot(axes, row, place)
        _line_names(axes, [row.label for row in shown], wide)

    description = (
        f"{title}. Lowest mean return {order[0].row['mean_return']:.4g} under {order[0].label}; without an attack "
        f"{clean.row['mean_return']:.4g}."
    )
    note = f"The {left_out} that hurt least are in the table alone." if left_out > 0 else ""
    height = 84 + 34 * len(shown)
    return Chart(
        name,
        title if titled else "",
        description,
        *_draw(name, title, description, paint, height, height + 10 * len(shown)),
        ("attack", "mean return", "against no attack"),
        tuple((row.label, row.returned, row.change) for row in order),
        (("attack", "mean and 95% interval"), ("clean", "no attack")),
        note,
    )


def moment_chart(name: str, curve: Curve, clean: AttackRow, limits: Limits) -> Chart:
    """Return when the attack may act in a window of steps alone: a bar a window."""
    rows = sorted(curve.rows, key=lambda row: row.window or (0, 0))

    def paint(axes: Axes, wide: bool) -> None:
        from matplotlib.ticker import MaxNLocator

        _return_axis(axes, limits, "mean return of an episode")
        _clean_line(axes, clean)
        for row in rows:
            start, end = row.window or (0, 0)
            mean = row.returned
            axes.fill_between([start, end], mean.low, mean.high, color=ATTACK, alpha=0.2, linewidth=0)
            hint = _HINT + _hint(f"steps {start} to {end - 1}", mean)
            axes.plot([start, end], [mean.mean] * 2, color=ATTACK, linewidth=3, solid_capstyle="butt", gid=hint)
        axes.xaxis.set_major_locator(MaxNLocator(6 if wide else 4, integer=True))
        axes.set_xlabel(
            "step of the episode; every bar is a run attacked in these steps alone" if wide else "attacked steps",
            color=MUTED,
            fontsize=12,
            labelpad=8,
        )

    worst = min(rows, key=lambda row: row.row["mean_return"])
    start, end = worst.window or (0, 0)
    description = (
        f"Mean return when {curve.attack} acts in a window of steps alone. Lowest for steps {start} to {end - 1}: "
        f"{worst.row['mean_return']:.4g}; without an attack {clean.row['mean_return']:.4g}."
    )
    table = tuple((f"{a} to {b - 1}", row.returned, row.change) for row in rows for a, b in [row.window or (0, 1)])
    return Chart(
        name,
        f"One window of steps at a time: {curve.attack}",
        description,
        *_draw(name, "Return by attacked steps", description, paint, 300, 270),
        ("attacked steps", "mean return", "against no attack"),
        table,
        (("attack", "mean and 95% interval"), ("clean", "no attack")),
        "A window takes nothing of what was earned before it: a late one may cost less even where it ends the episode.",
    )


def few_chart(name: str, curves: Sequence[Curve], clean: AttackRow, limits: Limits) -> Chart:
    """Return over the number of steps that may be attacked."""
    rows = [row for curve in curves for row in curve.rows]
    counts = sorted({row.count or 0 for row in rows})
    axis = _EpsAxis([float(count) for count in counts])

    def paint(axes: Axes, wide: bool) -> None:
        _return_axis(axes, limits, "mean return of an episode")
        _clean_line(axes, clean)
        ends = []
        lowest = min(curves, key=lambda curve: min(row.row["mean_return"] for row in curve.rows))
        for curve, marker in zip(curves, itertools.cycle(_MARKERS)):
            colour, width, level = (ATTACK, 2.6, 4) if curve is lowest else (MUTED, 1.4, 2)
            own = [clean, *curve.rows]  # no attacked step at all is the run without an attack
            x = [axis.place(row.count or 0) for row in own]
            y = [row.row["mean_return"] for row in own]
            if curve is lowest:
                _band(axes, x, [row.returned for row in own], colour)
            axes.plot(x, y, color=colour, linewidth=width, zorder=level)
            _points(axes, x, y, [_hint(row.label, row.returned) for row in own], colour, marker, level=level)
            if curve.rows[-1].count == counts[-1]:
                ends.append((curve.attack, y[-1], MUTED))
        axis.paint(axes, wide, "attacked steps of an episode, at most")
        if len(curves) > 1 and len(ends) <= (10 if wide else 6):
            _end_labels(axes, axes.get_xlim()[1], ends, wide)

    worst = min(rows, key=lambda row: (row.row["mean_return"], row.count or 0))
    description = (
        f"Mean return over the number of attacked steps. {worst.attack} in at most {worst.count} steps leaves "
        f"{worst.row['mean_return']:.4g}; without an attack {clean.row['mean_return']:.4g}."
    )
    table = tuple((row.attack, float(row.count or 0), row.returned) for curve in curves for row in curve.rows)
    return Chart(
        name,
        f"Some steps alone: {curves[0].attack}" if len(curves) == 1 else "",
        description,
        *_draw(name, "Return by number of attacked steps", description, paint, 300, 280),
        ("attack", "attacked steps, at most", "mean return"),
        table,
        (("attack", "lowest curve with its 95% interval"), ("other", "other attacks"), ("clean", "no attack"))
        if len(curves) > 1
        else (("attack", "mean and 95% interval"), ("clean", "no attack")),
    )


def distance_chart(
    name: str, distance: str, rows: Sequence[AttackRow], clean: AttackRow, lowest: float | None
) -> Chart:
    """What an attack takes, over how far the changed observations are from the true ones.

    Args:
        name: an id within the page.
        distance: the name of the distance.
        rows: rows that have it.
        clean: the row without an attack.
        lowest: the return that impact counts from, or None for differences of returns.
    """
    above = clean.row["mean_return"] - lowest if lowest is not None else 0.0
    unit = 1 / above if above > 0 else 1.0
    label = "impact (1: the lowest return possible)" if above > 0 else "return lost"

    def taken(row: AttackRow) -> MeanWithInterval:
        change = row.change
        return MeanWithInterval(-unit * change.mean, -unit * change.high, -unit * change.low, change.caveat)

    points = [(float(row.row["distances"][distance]), taken(row), row) for row in rows]
    values = [taken.mean for _, taken, _ in points] + [0.0]
    space = (max(values) - min(values)) * 0.12 or 1.0
    limits = (min(values) - space, max(values) + space)

    def paint(axes: Axes, wide: bool) -> None:
        _return_axis(axes, limits, label)
        axes.axhline(0, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        for x, value, row in points:
            axes.vlines(x, value.low, value.high, color=ATTACK, linewidth=2, alpha=0.35)
            hints = [f"{_hint(row.label, value)}, {distance} {x:.4g}"]
            _points(axes, [x], [value.mean], hints, ATTACK, size=7.5)
        axes.margins(x=0.1)
        if wide and len(points) <= 12:
            named = [(x, value.mean, shortened(row.label, 24)) for x, value, row in points]
            for (x, y, text), (right, up) in zip(named, _free_places(axes, named), strict=True):
                axes.annotate(
                    text,
                    (x, y),
                    xytext=(right, up),
                    textcoords="offset points",
                    color=MUTED,
                    fontsize=11,
                    va="center",
                    ha="left" if right > 0 else "right",
                    bbox=_BEHIND_TEXT,
                    annotation_clip=False,
                )
        axes.set_xlabel(distance, color=MUTED, fontsize=12, labelpad=8)

    description = f"{label} over {distance} of the attacked observations to the true ones, for {len(points)} attacks."
    table = tuple((row.label, f"{x:.4g}", value) for x, value, row in points)
    return Chart(
        name,
        f"Impact against {distance}",
        description,
        *_draw(name, label, description, paint, 320, 290),
        ("attack", distance, label),
        table,
        (("attack", "an attack, with the 95% interval of what it takes"),),
    )


def episode_chart(name: str, rows: Sequence[AttackRow], limits: Limits) -> Chart:
    """The return of every episode, a line a run, with the mean and its interval."""

    def paint(axes: Axes, wide: bool) -> None:
        _upright_returns(axes, limits, rows[0])
        for place, row in enumerate(rows):
            colour = INK if row.kind == "clean" else ATTACK
            returns = row.row["returns"]
            fade = min(1.0, max(0.12, 6 / len(returns)))
            axes.plot(
                returns, [place] * len(returns), "|", color=colour, markersize=15, markeredgewidth=1.5, alpha=fade
            )
            hints = [_hint(row.label, row.returned)]
            _points(axes, [row.row["mean_return"]], [place], hints, colour)
        _line_names(axes, [row.label for row in rows], wide)
        axes.set_xlabel("return of an episode", color=MUTED, fontsize=12, labelpad=8)

    description = "The return of every episode: " + "; ".join(
        f"{row.label} from {row.row['min']:.4g} to {row.row['max']:.4g}" for row in rows[:8]
    )
    height = 84 + 34 * len(rows)
    table: tuple[tuple[Cell, ...], ...] = tuple(
        (
            row.label,
            row.returned,
            *(float(row.row[key]) for key in ("median", "min", "max")),
        )
        for row in rows
    )
    return Chart(
        name,
        "",
        description,
        *_draw(name, "Each episode's return", description, paint, height, height + 12 * len(rows)),
        ("attack", "mean return", "median", "lowest", "highest"),
        table,
        (("tick", "an episode"), ("attack", "mean")),
    )


def two_agents_chart(name: str, sweeps: tuple[Sweep, Sweep], labels: tuple[str, str], limits: Limits) -> Chart:
    """Return over the radius of two agents under the strongest of the same attacks, with intervals."""
    radii = [eps for eps, _ in sweeps[0].strongest]
    axis = _EpsAxis(radii)
    colours = (MUTED, CERTIFIED)

    def paint(axes: Axes, wide: bool) -> None:
        _return_axis(axes, limits, "mean return under the strongest attack")
        for agent, sweep, colour, marker in zip(labels, sweeps, colours, "so", strict=True):
            x = [axis.place(eps) for eps, _ in sweep.strongest]
            means = [row.returned for _, row in sweep.strongest]
            _band(axes, x, means, colour)
            y = [mean.mean for mean in means]
            axes.plot(x, y, color=colour, linewidth=2.4, zorder=3)
            hints = [f"{agent}, {_hint(row.label, row.returned)}" for _, row in sweep.strongest]
            _points(axes, x, y, hints, colour, marker)
        axis.paint(axes, wide, "eps")

    first, second = (dict(sweep.strongest) for sweep in sweeps)
    table = tuple((eps_text(eps), first[eps].returned, second[eps].returned) for eps in radii if eps in second)
    description = "Mean return over eps of two agents under the same attacks. " + "; ".join(
        f"eps {eps_text(eps)}: {first[eps].row['mean_return']:.4g} and {second[eps].row['mean_return']:.4g}"
        for eps in radii
        if eps in second
    )
    return Chart(
        name,
        "",
        description,
        *_draw(name, "Return of two agents over eps", description, paint, 340, 310),
        ("eps", *labels),
        table,
        (("other", labels[0]), ("certified", labels[1])),
    )


def difference_chart(name: str, labels: tuple[str, str], lines: Sequence[tuple[str, MeanWithInterval]]) -> Chart:
    """Paired differences of the second of two agents to the first, with their intervals, a line an attack."""
    title = f"Mean return of {labels[1]} minus that of {labels[0]}"

    def paint(axes: Axes, wide: bool) -> None:
        from matplotlib.ticker import MaxNLocator

        ends = [value for _, mean in lines for value in (mean.mean, mean.low, mean.high)] + [0.0]
        space = (max(ends) - min(ends)) * 0.06 or 1.0
        axes.set_xlim(min(ends) - space, max(ends) + space)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.grid(axis="x", color=GRID, linewidth=1)
        axes.axvline(0, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        for place, (label, mean) in enumerate(lines):
            colour = {1: CERTIFIED, -1: ATTACK, 0: MUTED}[mean.side]
            axes.hlines(place, mean.low, mean.high, color=colour, linewidth=2, alpha=0.5)
            _points(axes, [mean.mean], [place], [_hint(label, mean)], colour, size=7.5)
        _line_names(axes, [label for label, _ in lines], wide)
        axes.set_xlabel("difference of mean returns", color=MUTED, fontsize=12, labelpad=8)

    description = f"{title}: " + "; ".join(
        f"{label} {mean.mean:+.4g} ({mean.low:+.4g} to {mean.high:+.4g})" for label, mean in lines[:8]
    )
    height = 84 + 34 * len(lines)
    return Chart(
        name,
        "",
        description,
        *_draw(name, title, description, paint, height, height + 10 * len(lines)),
        ("attack", "difference"),
        tuple(lines),
        (("certified", f"{labels[1]} is better"), ("attack", f"{labels[0]} is better"), ("other", "not told apart")),
    )


def bar_place(value: float, limits: tuple[float, float]) -> float:
    """Where a value is between limits, 0 to 100."""
    low, high = limits
    return float(np.clip(100 * (value - low) / ((high - low) or 1.0), 0, 100))
