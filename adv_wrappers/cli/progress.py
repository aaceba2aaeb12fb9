"""How far a command is, on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from adv_wrappers.cli.main import make_console
from adv_wrappers.utils.pace import EVERY_S, Move, progress_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

_BAR = 12  # columns of a bar
_BESIDE = _BAR + 44  # columns that it takes with what stands beside it, but for a name and a note
_LEAST_NAME = 12


@contextlib.contextmanager
def show_progress() -> Iterator[Move]:
    """A function that moves a bar on a terminal, and elsewhere is told of in a line every ten seconds.

    A command that is done sooner writes no line.
    """
    console = make_console(stderr=True)
    lines = progress_lines(lambda line: click.echo(line, err=True), EVERY_S)
    with _bars(console) if console.is_terminal else lines as move:
        yield move


@contextlib.contextmanager
def _bars(console: Console) -> Iterator[Move]:
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    # a bar for every name, with what it counts and the time that is left
    text, times = TextColumn("{task.description}"), (TimeElapsedColumn(), TimeRemainingColumn())
    columns = text, BarColumn(_BAR), MofNCompleteColumn(), TextColumn("{task.fields[note]}"), *times
    # what is printed meanwhile goes above the bars, but not from standard output that goes elsewhere
    with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as progress:
        tasks: dict[str, TaskID] = {}

        def move(what: str, done: int, total: int, note: str = "") -> None:
            name = Text(what)
            name.truncate(max(console.width - _BESIDE - len(note), _LEAST_NAME), overflow="ellipsis")
            if what not in tasks:
                tasks[what] = progress.add_task(escape(name.plain), total=total, completed=done, note=note)
            progress.update(tasks[what], description=escape(name.plain), completed=done, total=total, note=note)

        yield move
