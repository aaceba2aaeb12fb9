"""The group of commands, its errors and interruptions, and how commands print.

What is expected to go wrong is one line on standard error: status 2 for wrong usage and for what cannot be computed or
written, 130 for an interruption; 1 is a claim of ``--at-least`` that is not shown.

Help, errors of usage and completions in a shell do not wait for torch: modules of the command line import at their head
what is quick, and commands import the rest when they run.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers import __version__
from adv_wrappers.cli.interruption import INTERRUPTED, Interrupted
from adv_wrappers.errors import AdvWrappersError, OutputError

if TYPE_CHECKING:
    from rich.console import Console

BEGAN = time.monotonic()  # when the program did, before it loads what takes seconds
_WIDTH = 150  # columns where no terminal has a width


class _OneLineError(click.ClickException):
    """An expected error: one line, and the exit code of wrong usage."""

    exit_code = 2


class _CommandGroup(click.Group):
    """Commands whose expected errors are one line and exit code 2, and whose interruptions one line and 130."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Be the program of this process, which ends here."""
        try:
            return self.main(*args, **kwargs)
        except SystemExit as end:
            if end.code == INTERRUPTED:
                _end_process(INTERRUPTED)
            raise

    def invoke(self, ctx: click.Context) -> object:
        try:
            if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may be any bytes
                sys.stdout.reconfigure(errors="backslashreplace")
            with _warnings_by_option(self, ctx):
                return super().invoke(ctx)
        except AdvWrappersError as error:
            options = {} if error.threat is not None else option_names(self.commands.get(ctx.invoked_subcommand or ""))
            raise _OneLineError(by_option(str(error), options)) from error
        except OSError as error:
            if error.errno in (None, errno.EPIPE):  # click handles a reader that has gone
                raise
            where = "" if error.filename is None else f" {error.filename}"
            raise _OneLineError(f"cannot read or write{where}: {(error.strerror or str(error)).lower()}") from error
        except (KeyboardInterrupt, Interrupted, ImportError) as error:
            cause: BaseException | None = error
            while isinstance(cause, ImportError):  # what modules in C make of an interruption
                cause = cause.__cause__ or cause.__context__
            if not isinstance(cause, (KeyboardInterrupt, Interrupted)):
                raise
            _end_workers()
            # where nothing has begun that could be kept, or everything is, nobody has said more
            raise cause if isinstance(cause, Interrupted) else Interrupted("by the user") from None


def _end_process(status: int) -> None:
    """End this process without taking apart every module that it imported, which takes seconds where torch is."""
    with contextlib.suppress(ValueError):  # outside of the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # impatience
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a reader that has gone, or a closed stream
            stream.flush()
    os._exit(status)


def _end_workers() -> None:
    """End worker processes, which otherwise finish what they are doing before this process may end."""
    processes = sys.modules.get("adv_wrappers.utils.processes")
    if processes is not None:
        processes.discard_all()


def option_names(command: click.Command | None) -> dict[str, str]:
    """By the name of an argument in Python, the option of a command that sets it; none where there is no command.

    Of a group of commands the options of all of them: they mean the same.
    """
    found: dict[str, str] = {}
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        found |= option_names(inner)
    # by the argument's own name, and by those that the option has on the command line
    for parameter in () if command is None else command.params:
        if isinstance(parameter, click.Option):
            option = max(parameter.opts, key=len)
            found[str(parameter.name)] = option
            found |= {one.lstrip("-").replace("-", "_"): one for one in (option, *parameter.secondary_opts)}
    return found


# name=value, name= or, at the head of a message, name must; not in calls, texts of threats, quotations and paths
_ARGUMENT = re.compile(
    r"""\w\([^()]*\)|(?<![\w.:,(/'"?&-])(\w+)=('[^']*'|(?:[^\s'",;:.)]|\.(?=\w))*)|^(\w+)(?= must )"""
)


def by_option(message: str, options: Mapping[str, str]) -> str:
    """A message of the library on one line, with the options that set the arguments that it names.

    Args:
        message: in the words of Python.
        options: by the names of arguments. An argument without an option stays as Python writes it.

    >>> from adv_wrappers.cli.main import by_option
    >>> by_option("by='loss' goes on with a folder: give out=", {"by": "--by", "out": "--out"})
    '--by loss goes on with a folder: give --out'
    """

    def word(found: re.Match[str]) -> str:
        name, value = found[1] or found[3] or "", found[2] or ""
        option = options.get(f"no_{name}" if value == "False" else name)
        if option is None or value == "None":
            return found[0]
        return option if value in ("", "True", "False") else f"{option} {value.strip(chr(39))}"

    return " ".join(_ARGUMENT.sub(word, message).split())


@contextlib.contextmanager
def _warnings_by_option(group: click.Group, ctx: click.Context) -> Iterator[None]:
    """Print warnings as :func:`by_option` writes them, each once: one line, not the line of Python that gave them."""
    said = set[str]()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        line = by_option(str(message), option_names(group.commands.get(ctx.invoked_subcommand or "")))
        if line not in said:
            said.add(line)
            click.echo(f"warning: {line}", err=True)

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


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


BEGIN = """\
Attack reinforcement-learning agents, and measure what they lose. To begin with:

adv-wrappers demo
    Attack two agents that are shipped, in well under a minute.

adv-wrappers evaluate CartPole-v1 --victim zoo:cartpole-dqn --threat pgd:eps=0.2
    Play an agent of yours, or here of the zoo, clean and under an attack.

adv-wrappers report CartPole-v1 --victim zoo:cartpole-dqn --minutes 5
    Find out how an agent breaks, and what to do about it.

All commands: adv-wrappers --help. Options: adv-wrappers COMMAND --help.
"""


@click.group(cls=_CommandGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="adv-wrappers")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Attack reinforcement-learning agents, and measure what they lose."""
    if ctx.invoked_subcommand is None:
        click.echo(BEGIN, nl=False)
