"""The group of commands, its errors and interruptions, and how commands print.

What is expected to go wrong is one line on standard error: status 2 for wrong usage and for what cannot be computed or
written, 130 for an interruption; 1 is a claim of ``--at-least`` that is not shown.

Help, errors of usage and completions in a shell do not wait for torch: modules of the command line import at their head
what is quick, and commands import the rest when they run.
"""

from __future__ import annotations

import contextlib
import errno
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers import __version__
from adv_wrappers.cli.interruption import Interrupted
from adv_wrappers.cli.messages import in_own_words, option_names, translate
from adv_wrappers.errors import AdvWrappersError, OutputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH = 150  # columns where no terminal has a width


class _OneLineError(click.ClickException):
    """An expected error: one line, and the exit code of wrong usage."""

    exit_code = 2


class _CommandGroup(click.Group):
    """Commands whose expected errors are one line and exit code 2, and whose interruptions one line and 130."""

    def invoke(self, ctx: click.Context) -> object:
        words = [*ctx.args]
        try:
            with _warnings_in_own_words(self, ctx), _any_name_printable():
                return super().invoke(ctx)
        except AdvWrappersError as error:
            name = ctx.invoked_subcommand or ""
            raise _OneLineError(in_own_words(error, self.commands[name], name, words)) from error
        except OSError as error:
            if error.errno in (None, errno.EPIPE):  # click handles a reader that has gone
                raise
            where = "" if error.filename is None else f" {error.filename}"
            raise _OneLineError(f"cannot read or write{where}: {(error.strerror or str(error)).lower()}") from error
        except KeyboardInterrupt:  # where nothing has begun that could be kept, or everything is
            raise Interrupted("by the user") from None


@contextlib.contextmanager
def _warnings_in_own_words(group: click.Group, ctx: click.Context) -> Iterator[None]:
    """Print warnings as a command says them, each once: one line, not the line of Python that gave them."""
    said = set[str]()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        command = group.commands.get(ctx.invoked_subcommand or "")
        known = {} if command is None else option_names(command)
        text = translate(" ".join(str(message).split()), known)
        if text not in said:
            said.add(text)
            click.echo(f"warning: {text}", err=True)

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


@contextlib.contextmanager
def _any_name_printable() -> Iterator[None]:
    """Write what standard output cannot encode with backslashes: names of files may be any bytes."""
    output = sys.stdout
    errors = getattr(output, "errors", None)
    if errors != "strict" or not isinstance(output, io.TextIOWrapper):
        yield
        return
    output.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        output.reconfigure(errors=errors)


def make_console(stderr: bool = False) -> Console:
    """A console on the present standard output or error: plain, and wide enough, where that is no terminal."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH, color_system=None)


@contextlib.contextmanager
def print_if_unwritten(show: Callable[[Any], None]) -> Iterator[None]:
    """Print with ``show`` the report of an error that says that it could not be written to its file."""
    try:
        yield
    except OutputError as error:
        if error.report is not None:
            show(error.report)
        raise


def make_table(*columns: str) -> Table:
    """A table with these columns."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


@click.group(cls=_CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="adv-wrappers")
def main() -> None:
    """Attack reinforcement-learning agents, and measure what they lose."""
