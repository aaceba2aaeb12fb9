"""What commands print on standard output: a table that fits the console, or with ``--json`` its rows and nothing else.

``--wide`` prints every column, however wide the table becomes. Sentences around a table are said by :func:`say`, on
standard error where standard output is for JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers.cli.main import make_console
from adv_wrappers.cli.options import Command

if TYPE_CHECKING:
    from adv_wrappers.rendering.table import TextTable

_KEY = "adv_wrappers.cli.output."  # of what a command was asked for, in the meta data of its context


def _keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[f"{_KEY}{param.name}"] = value


_WIDE = click.option("--wide", is_flag=True, expose_value=False, callback=_keep, help="print every column of the table")
_JSON = click.option(
    "--json", is_flag=True, expose_value=False, callback=_keep,
    help="print the rows of the table as JSON, and nothing else on standard output",
)  # fmt: skip


def table_options(command: Command) -> Command:
    """``--wide`` and ``--json``, which :func:`print_table` and :func:`say` ask for."""
    return _WIDE(_JSON(command))


def _asked(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"{_KEY}{name}"))


def json_asked() -> bool:
    """Whether the present command has ``--json``."""
    return _asked("json")


def say(line: str, err: bool = False) -> None:
    """Print a sentence: on standard error with ``err``, and where ``--json`` keeps standard output for rows."""
    click.echo(line, err=err or json_asked())


def tell(sentence: str) -> None:
    """Say on standard error what begins now, of a command that does one thing after another."""
    click.echo(f"  {sentence}", err=True)


def print_table(table: TextTable, rows: Iterable[Mapping[str, object]]) -> None:
    """Print a table as wide as the console with its notes and warnings, or its rows as JSON.

    Args:
        table: the table, with all columns.
        rows: what the table says, one object a row, with values that JSON or numpy knows.
    """
    if json_asked():
        print_rows(rows)
    else:
        console, shown = make_console(), table
        if _asked("wide"):
            console.width = max(console.width, table.width())
        else:
            shown = table.fitted(console.width)
        console.print(shown.rich())
        if left_out := [name for name in table.columns if name not in shown.columns]:
            console.print(f"not shown: {', '.join(left_out)} (--wide shows all)", markup=False, soft_wrap=True)
    # notes and warnings, which are no rows
    console = make_console(stderr=json_asked())
    for note in table.notes:
        console.print(note, markup=False, soft_wrap=True)
    for warning in table.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)


def print_columns(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | Callable[[Mapping[str, Any]], object]], **look: Any
) -> None:
    """Print rows by columns, as :func:`print_table` does.

    Args:
        rows: with the keys that they have in JSON.
        columns: by the head of a column the key of its values, or a function of a row.
        **look: attributes of the table.
    """
    from adv_wrappers.rendering.table import TextTable
    from adv_wrappers.utils.number_text import number_text

    def cell(row: Mapping[str, Any], column: str | Callable[[Mapping[str, Any]], object]) -> str:
        value: Any = row.get(column) if isinstance(column, str) else column(row)
        return number_text(value) if value is None or isinstance(value, float) else str(value)

    lines = tuple(tuple(cell(row, column) for column in columns.values()) for row in rows)
    print_table(TextTable("", tuple(columns), lines, **look), rows)


def print_rows(rows: Iterable[Mapping[str, object]]) -> None:
    """Print rows as a list in JSON; what is not a number, or not finite, is null."""
    click.echo(json.dumps([_plain(row) for row in rows], indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
