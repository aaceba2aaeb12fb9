"""The group of commands, its errors, and how it prints."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from adv_wrappers import __version__
from adv_wrappers.errors import AdvWrappersError, OutputError

_PLAIN = 150  # columns where there is no terminal that has a width


class _Clear(click.ClickException):
    """An error of the package's own: one line, and the exit code of wrong usage."""

    exit_code = 2


class _Commands(click.Group):
    """Commands whose expected errors are one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AdvWrappersError as error:
            raise _Clear(" ".join(str(error).split())) from error
        except OSError as error:
            if error.errno in (None, errno.EPIPE):  # a reader that has gone is click's affair
                raise
            where = "" if error.filename is None else f" {error.filename}"
            raise _Clear(f"cannot read or write{where}: {(error.strerror or str(error)).lower()}") from error


def stats_option(command: Any) -> Any:
    """The option ``--stats`` beside a ``--victim``."""
    return click.option(
        "--stats", metavar="FILE", help="of the VecNormalize of sb3:FILE.zip  [default: looked for beside it]"
    )(command)


def console_(stderr: bool = False) -> Console:
    """A console of the present standard streams: plain and wide enough where no terminal is."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_PLAIN, color_system=None)


def progress_() -> Progress:
    """Progress bars on a terminal's standard error, and silence elsewhere."""
    console = console_(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextlib.contextmanager
def printed(show: Callable[[Any], None]) -> Iterator[None]:
    """Print what was computed, where it could not be written to its file."""
    try:
        yield
    except OutputError as error:
        if error.report is not None:
            show(error.report)
        raise


def table_(*columns: str) -> Table:
    """A table with these columns."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="adv-wrappers")
def main() -> None:
    """Attack reinforcement-learning agents, and measure what they lose."""
