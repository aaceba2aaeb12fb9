"""A table of texts, which all results are shown as: printed, fitted to a terminal, as Markdown and LaTeX.

Whatever its texts hold, they are shown and never read as markup.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

LEAST_TEXT = 22  # columns of the terminal below which no text is folded, so that the text of a threat can be read
_PRINTED = 160  # columns of a table that is printed as plain text
_EMPTY = ("", "-")  # cells that say nothing
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~&$#]")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\symbol{34}", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}",
    "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}",
}  # fmt: skip


@dataclass(frozen=True)
class TextTable:
    """A title, a table of texts and what is said below it.

    Attributes:
        title: one line, or "".
        columns: heads of the columns.
        rows: the cells, as many a row as there are columns.
        notes: what marks in the table mean.
        warnings: why a figure should not be trusted.
        texts: heads of the columns that hold texts, which are set to the left and may be folded; the others hold
            figures, which are set to the right and are never broken. None stands for the first one.
        bold: the places of rows that stand out.
        by_importance: heads of columns, from what matters most, which always stays. Those that are not among them
            matter less, from left to right.

    >>> from adv_wrappers.rendering.table import TextTable
    >>> table = TextTable("", ("threat", "return", "median"), (("noise:eps=0.1", "436.2", "500.0"),))
    >>> table.fitted(30).columns
    ('threat', 'return')
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    texts: tuple[str, ...] | None = None
    bold: Collection[int] = ()
    by_importance: tuple[str, ...] = ()

    def only(self, names: Collection[str]) -> TextTable:
        """The table with some of its columns."""
        places = [i for i, name in enumerate(self.columns) if name in names]
        rows = (self.columns, *self.rows)
        columns, *cells = (tuple(row[i] for i in places) for row in rows)
        return replace(self, columns=columns, rows=tuple(cells))

    def fitted(self, width: int) -> TextTable:
        """The table with as many columns as have room in so many columns of the terminal.

        A column that says nothing in any row goes first. Texts are folded before anything goes.
        """
        cells = dict(zip(self.columns, zip(*self.rows, strict=True), strict=True)) if self.rows else {}
        order = [name for name in self.by_importance if name in self.columns]
        order += [name for name in self.columns if name not in order]
        said = [name for name in order if name == order[0] or any(cell not in _EMPTY for cell in cells.get(name, ()))]
        order = [*said, *(name for name in order if name not in said)]
        while len(order) > 1 and self.only(order).width(LEAST_TEXT) > width:
            order.pop()
        return self.only(order)

    def width(self, most: int | None = None) -> int:
        """The columns of the terminal that it needs, where texts are folded to so many at most."""
        found = 3 * len(self.columns) + 1  # between columns
        for name, *cells in zip(self.columns, *self.rows, strict=True):
            longest = max(cell_len(_printable(cell)) for cell in (name, *cells))
            found += min(longest, most) if most is not None and self._is_text(name) else longest
        return found

    def _is_text(self, name: str) -> bool:
        return name in (self.columns[:1] if self.texts is None else self.texts)

    def rich(self) -> Table:
        """The table for a console of rich, without what is said below it."""
        table = Table(title=Text(_printable(self.title)) if self.title else None, box=box.SIMPLE_HEAD)
        table.title_style, table.title_justify = "bold", "left"
        for name in self.columns:
            text = self._is_text(name)
            justify: Literal["left", "right"] = "left" if text else "right"
            table.add_column(Text(_printable(name)), justify=justify, overflow="fold", no_wrap=not text)
        for place, row in enumerate(self.rows):
            table.add_row(*(Text(_printable(cell)) for cell in row), style="bold" if place in self.bold else "")
        return table

    def __rich__(self) -> Group:
        return Group(self.rich(), *self.notes, *(Text(f"warning: {one}", "yellow") for one in self.warnings))

    def __str__(self) -> str:
        """The table, its notes and its warnings as plain text."""
        text = io.StringIO()
        Console(file=text, width=_PRINTED, color_system=None).print(self.rich())
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([*lines, *self.notes, *(f"warning: {one}" for one in self.warnings)]).rstrip()

    def markdown(self) -> str:
        """A table as GitHub and most other readers of Markdown show it; special characters are escaped."""
        lines = [f"**{_markdown(self.title)}**", ""] if self.title else []
        lines += [_row(map(_markdown, self.columns))]
        lines += [_row(":---" if self._is_text(name) else "---:" for name in self.columns)]
        lines += [_row(map(_markdown, map(_interval, row))) for row in self.rows]
        below = [*self.notes, *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*lines, *(f"\n{_markdown(line)}" for line in below)]) + "\n"

    def latex(self) -> str:
        r"""A ``table`` for the package booktabs; special characters are escaped.

        The notes are in the caption, since a figure that they qualify must not be printed without them. Warnings are
        comments.
        """
        caption = " ".join([self.title + ".", *(f"{note}." for note in self.notes)])
        texts = [self._is_text(name) for name in self.columns]
        body = [
            " & ".join(_latex(cell) if text else _figure(cell) for cell, text in zip(row, texts, strict=True))
            for row in self.rows
        ]
        lines = [r"% needs \usepackage{booktabs}", *(f"% warning: {plain(warning)}" for warning in self.warnings)]
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{_latex(caption)}}}"]
        lines += [rf"\begin{{tabular}}{{{''.join('l' if text else 'r' for text in texts)}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, self.columns)) + r" \\", r"\midrule", *(line + r" \\" for line in body)]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


class Tabular:
    """A result that is shown as a :class:`TextTable`, and prints as one."""

    written: tuple[str, ...] | None = None  # heads of the columns that Markdown, LaTeX and notebooks have; None for all

    def table(self) -> TextTable:
        """The table with all of its columns, its notes and warnings; ``print`` shows it."""
        raise NotImplementedError

    def _written(self) -> TextTable:
        return self.table() if self.written is None else self.table().only(self.written)

    def to_markdown(self) -> str:
        """The table as GitHub shows it, with the intervals, what is marked, and the warnings."""
        return self._written().markdown()

    def to_latex(self) -> str:
        """The table for a paper, with the package booktabs; special characters of names are escaped.

        What marks mean is in the caption, and warnings are comments.
        """
        return self._written().latex()

    def _repr_markdown_(self) -> str:
        """The table as notebooks show it."""
        return self.to_markdown()

    def __str__(self) -> str:
        return str(self.table())


def grouped(by_name: Mapping[str, str]) -> dict[str, str]:
    """By text, the names that it stands for.

    >>> grouped({"a": "no budget", "b": "no Q-values", "c": "no budget"})
    {'no budget': 'a, c', 'no Q-values': 'b'}
    """
    return {text: ", ".join(name for name in by_name if by_name[name] == text) for text in by_name.values()}


def plain(text: str) -> str:
    r"""A text on one line, without control characters and halves of surrogate pairs, which no file may hold.

    >>> plain("two\nlines")
    'two lines'
    """
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    one_line = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text)
    return re.sub(r"[\ud800-\udfff\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", one_line)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", plain(text))


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in plain(text))
    apart = re.sub(r"-(?=-)", "-{}", escaped)  # two hyphens would be a dash
    return re.sub(r"^[\[*]", r"{\g<0>}", apart)  # which would belong to the \\\\ before it


def _figure(text: str) -> str:
    """A number, an interval, or the dash where there is none, with minus signs."""
    if text == "-":
        return "--"
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", _latex(_interval(text)))


def _interval(text: str) -> str:
    """An interval as texts write it: programs of a terminal find two dots more easily."""
    return text.replace(" .. ", " to ")
