"""Fit a table of the terminal to a width: columns that matter least are left out, and numbers are never broken."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

LEAST_TEXT = 22  # columns of the terminal below which no text is folded, so that the text of a threat can be read
_EMPTY = ("", "-")  # cells that say nothing


class PrintedTable(Table):
    """A rich table that ``print`` shows too, as plain text of at most 160 columns."""

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=160, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def fit_table(table: Table, width: int, by_importance: Sequence[str] = ()) -> list[str]:
    """Leave out columns until the others fit.

    Cells of text, those at the left of their column, may be folded; numbers, at the right, may not. A column that says
    nothing in any row goes first.

    Args:
        table: is changed.
        width: columns of the terminal.
        by_importance: headers of columns, from what matters most, which always stays. Those that are not among them
            matter less, from left to right.

    Returns:
        The headers of the columns that were left out, from left to right.

    >>> from rich.table import Table
    >>> from adv_wrappers.rendering.table_width import fit_table
    >>> table = Table("threat", "return", "median")
    >>> table.add_row("noise:eps=0.1", "436.2", "500.0")
    >>> fit_table(table, 30)
    ['median']
    """
    for column in table.columns:
        column.no_wrap = column.no_wrap or column.justify == "right"
    headers = [str(column.header) for column in table.columns]
    known = [name for name in by_importance if name in headers]
    order = [*known, *(name for name in headers if name not in known)]
    said = [name for name in order if name == order[0] or _says_something(table.columns[headers.index(name)])]
    order = [*said, *(name for name in order if name not in said)]
    while len(order) > 1 and least_width(table) > width:
        last = order.pop()
        table.columns = [column for column in table.columns if str(column.header) != last]
    return [name for name in headers if name not in order]


def least_width(table: Table) -> int:
    """The columns of the terminal that a table needs whose texts are folded as far as they may be."""
    folded = [column for column in table.columns if not column.no_wrap and column.width is None]
    for column in folded:
        column.width = min(LEAST_TEXT, max(map(_width, [column.header, *column.cells])))
    try:
        return full_width(table)
    finally:
        for column in folded:
            column.width = None


def full_width(table: Table) -> int:
    """The columns of the terminal that a table needs in which nothing is folded."""
    return _width(table)


def _says_something(column: Column) -> bool:
    return any(str(cell) not in _EMPTY for cell in column.cells)


def _width(shown: object) -> int:
    console = Console(width=1_000_000, color_system=None)
    return Measurement.get(console, console.options, shown).maximum  # type: ignore[arg-type]  # cells are texts
