"""What a page shows numbers by: tables whose lines may have bars, and charts of lines over a number.

Both are made of plain values, and drawn by the templates as HTML and SVG that take the width of their window, the
page's own font and its colours, in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from adv_wrappers.evaluation.statistics.confidence_intervals import MeanWithInterval
from adv_wrappers.utils.number_text import number_text

Tone = Literal["attack", "certified", "clean", "other"]  # a class of the style sheet
Legend = Sequence[tuple[str, str]]  # a tone, or "tick", and what it stands for
Limits = tuple[float, float]
Cell = str | float | MeanWithInterval | None

_MOST_NAMES = 10  # of lines, beside them
_NAME = 7.0  # percent of a chart's height, of one name
_WIDE, _NARROW = 620, 230  # pixels of a chart, by which it is seen which ticks have room
_LETTER = 7.5  # pixels


def eps_text(eps: float) -> str:
    """A radius, or a change of a feature, as it is written beside an axis and in sentences."""
    return f"{eps:.3g}".replace("-", "\N{MINUS SIGN}")


def limits_of(values: Sequence[float]) -> Limits:
    """The ends of an axis that shows some values."""
    low, high = min(values), max(values)
    low = 0.0 if 0 < low < high / 2 else low  # an axis begins at 0 where that costs little room
    space = (high - low) * 0.06 or max(abs(high), 1.0) * 0.06
    return low - space, high + space


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: its head.
        form: of its numbers: returns and others, differences of returns, which have a sign, shares, eps; or texts.
        less: whether it is left out of narrow windows.
    """

    name: str
    form: Literal["return", "signed", "share", "eps", "text"] = "return"
    less: bool = False


@dataclass(frozen=True)
class TableLine:
    """A line of a table.

    Attributes:
        name: its head.
        cells: its numbers and texts, one a column.
        under: what stands below its name, in small letters.
        bar: the mean that a bar shows, with its interval; or None.
        tone: of the bar.
        episodes: single values, which are marks on the bar.
        focus: whether it is shown at first.
        link: the id that its name leads to, or "".
    """

    name: str
    cells: Sequence[Cell] = ()
    under: str = ""
    bar: MeanWithInterval | None = None
    tone: Tone = "attack"
    episodes: Sequence[float] = ()
    focus: bool = False
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A table, whose lines may have bars.

    Attributes:
        label: what it holds, for those who do not see it.
        head: of the column of names.
        columns: the others.
        lines: its lines.
        limits: the ends of all bars.
        zero: where the bars have a dashed line, which others are compared with; or None.
        title: what tells it from others of its section, or "".
        legend: what the bars are.
        notes: sentences below it.
        sortable: whether it sorts by its heads, and a reader may search it.
        focus: what the lines are that are shown at first, in words; "" for all.
    """

    label: str
    head: str
    columns: Sequence[Column]
    lines: Sequence[TableLine]
    limits: Limits = (0.0, 1.0)
    zero: float | None = None
    title: str = ""
    legend: Legend = ()
    notes: Sequence[str] = ()
    sortable: bool = False
    focus: str = ""

    kind = "table"

    def place(self, value: float) -> str:
        """Where a value is on a bar, 0 to 100."""
        return f"{min(max(_place(value, self.limits), 0.0), 100.0):.1f}"


class Point(NamedTuple):
    """A mean over a number, and the name that it has where a pointer rests on it."""

    x: float
    mean: MeanWithInterval
    name: str


@dataclass(frozen=True)
class Line:
    """Means that a chart joins.

    Attributes:
        name: of its table, and beside its end unless it is bold.
        points: from left to right.
        tone: its colour.
        bold: whether it is what the chart is about, and has its intervals.
    """

    name: str
    points: Sequence[Point]
    tone: Tone = "other"
    bold: bool = False


@dataclass(frozen=True)
class LineChart:
    """Means over a number such as an eps, on a logarithmic axis that has a place for 0 on its left.

    Attributes:
        x_label, y_label: what the axes are.
        lines: the last ones in front.
        limits: the ends of the axis of means.
        legend: what the lines are.
        zero: where a dashed line is, which others are compared with; or None.
        proved: numbers in rising order, with the value that nothing falls below up to there.
        mark: a number, a mean and the words beside the ring that is drawn there; or None.
        title: what tells it from others of its section, or "".
        notes: sentences below it.
    """

    x_label: str
    y_label: str
    lines: Sequence[Line]
    limits: Limits
    legend: Legend
    zero: float | None = None
    proved: Sequence[tuple[float, float]] = ()
    mark: tuple[float, float, str] | None = None
    title: str = ""
    notes: Sequence[str] = ()

    kind = "chart"

    def x(self, number: float) -> float:
        """Where a number is, 0 to 100 from the left."""
        numbers = self._numbers
        if numbers[-1] < 8 * numbers[0]:
            return _place(number, (0.0, numbers[-1]))
        least, most = math.log10(numbers[0]), math.log10(numbers[-1])
        zero = least - max(0.28, 0.16 * (most - least))
        return _place(math.log10(number) if number > 0 else zero, (zero, most))

    def y(self, value: float) -> float:
        """Where a value is, 0 to 100 from the top."""
        return round(100 - _place(value, self.limits), 2)

    def path(self, line: Line) -> str:
        """The points of a line, as SVG has them."""
        return " ".join(f"{self.x(x):.2f},{self.y(mean.mean)}" for x, mean, _ in line.points)

    def band(self, line: Line) -> str:
        """The outline of a line's intervals; "" where none of them is one of 95%."""
        if not line.bold or all(point.mean.caveat for point in line.points):
            return ""
        ends = [(x, mean.high) for x, mean, _ in line.points] + [(x, mean.low) for x, mean, _ in reversed(line.points)]
        return " ".join(f"{self.x(x):.2f},{self.y(value)}" for x, value in ends)

    @property
    def description(self) -> str:
        """What the bold lines show, for those who do not see them."""
        lines = (f"{one.name}: " + ", ".join(f"{number_text(mean.mean)} at {eps_text(x)}" for x, mean, _ in one.points)
                 for one in self.lines if one.bold)  # fmt: skip
        return f"{self.y_label.capitalize()} over {self.x_label}. {'; '.join(lines)}."

    @property
    def numbers(self) -> Table:
        """All means, and what is proved, as a table: those of bold lines first."""
        lines = sorted(self.lines, key=lambda line: not line.bold)
        values: list[dict[float, Cell]] = [{x: mean for x, mean, _ in line.points} for line in lines]
        columns = [Column(line.name, less=not line.bold) for line in lines]
        if self.proved:
            columns, values = [*columns, Column("certified at least")], [*values, dict(self.proved)]
        made = [TableLine(eps_text(x), [one.get(x) for one in values]) for x in [0.0, *self._numbers]]
        return Table(f"Numbers of the chart over {self.x_label}", self.x_label, columns, made)

    @property
    def steps(self) -> str:
        """What is proved: what holds at a number holds below it."""
        found, before = list[str](), 0.0
        for number, value in self.proved:
            found += [f"{self.x(end):.2f},{self.y(value)}" for end in (before, number)]
            before = number
        return " ".join(found)

    @property
    def x_ticks(self) -> list[tuple[float, str, bool]]:
        """Places, texts, and whether only a wide window has room for them; that of the mark is always there."""
        shown = dict[float, bool]()
        always = [0.0] if self.mark is None else [0.0, self.mark[0]]
        for width in (_NARROW, _WIDE):
            for number in [*always, *self._numbers]:
                if number not in shown and all(self._apart(number, other, width) for other in shown):
                    shown[number] = width == _WIDE
        return [(self.x(number), eps_text(number), less) for number, less in sorted(shown.items())]

    def _apart(self, one: float, other: float, width: int) -> bool:
        letters = (len(eps_text(one)) + len(eps_text(other))) / 2 + 1
        return abs(self.x(one) - self.x(other)) * width / 100 >= letters * _LETTER

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Places and texts of about five round values."""
        low, high = self.limits
        rough = (high - low) / 5
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * times for times in (1, 2, 2.5, 5, 10) if unit * times >= rough)
        values = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return [(self.y(value), eps_text(value) if abs(value) < 1000 else f"{value:,.0f}") for value in values]

    @property
    def names(self) -> list[tuple[float, str]]:
        """Names of lines that end on the right, at heights at which none covers another; none of too many."""
        last = self._numbers[-1]
        ends = sorted((self.y(one.points[-1].mean.mean), one.name) for one in self.lines
                      if not one.bold and one.points[-1].x == last)  # fmt: skip
        if len(ends) > _MOST_NAMES:
            return []
        heights = list[float]()
        for height, _ in ends:
            heights.append(max(height, heights[-1] + _NAME) if heights else height)
        up = max(max(heights, default=0.0) - 100, 0.0)
        return [(height - up, name) for height, (_, name) in zip(heights, ends, strict=True)]

    @property
    def _numbers(self) -> list[float]:
        """All above 0, in rising order."""
        numbers = {point.x for line in self.lines for point in line.points} | {number for number, _ in self.proved}
        return sorted(number for number in numbers if number > 0) or [1.0]


def _place(value: float, limits: Limits) -> float:
    """Where a value is between limits, 0 to 100."""
    low, high = limits
    return 100 * (value - low) / ((high - low) or 1.0)
