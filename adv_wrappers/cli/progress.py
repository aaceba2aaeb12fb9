"""How far a command is, on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click

from adv_wrappers.cli.main import make_console
from adv_wrappers.utils.parse_values import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

EVERY_S = 10.0  # seconds between lines


class Move(Protocol):
    """Tells how far something is."""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """``done`` of ``total`` parts of ``what`` are done; the note stands beside it."""


@dataclass
class _Task:
    began: float
    done: int
    total: int
    note: str


class ProgressLines:
    """Plain lines that say what runs, how much of it is done, for how long it has run, and about how long is left.

    Args:
        write: takes a line.
        clock: seconds, which only rise.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._tasks: dict[str, _Task] = {}
        self._last = ""  # what was told of last
        self._lock = threading.Lock()

    def move(self, what: str, done: int, total: int, note: str = "") -> None:
        """Keep how far something is, for the next line."""
        with self._lock:
            task = self._tasks.setdefault(what, _Task(self._clock(), done, total, note))
            task.done, task.total, task.note = done, total, note
            self._last = what

    def tell(self) -> None:
        """Write a line on what runs: on the last thing that was told of, if it is not done, or on all that is not."""
        with self._lock:
            running = {what: task for what, task in self._tasks.items() if task.done < task.total}
            if self._last in running:
                running = {self._last: running[self._last]}
            lines = [self._line(what, task) for what, task in running.items()]
        for line in lines:
            self._write(line)

    def _line(self, what: str, task: _Task) -> str:
        gone = self._clock() - task.began
        left = f", about {duration(gone / task.done * (task.total - task.done))} left" if task.done else ""
        note = f", {task.note}" if task.note else ""
        return f"{what}: {task.done} of {task.total}{note} after {duration(gone)}{left}"


@contextlib.contextmanager
def show_progress() -> Iterator[Move]:
    """A function that moves a bar on a terminal, and elsewhere is told of in a line every ten seconds.

    A command that is done sooner writes no line.
    """
    console = make_console(stderr=True)
    with _bars(console) if console.is_terminal else _lines() as move:
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

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, TaskID] = {}

        def move(what: str, done: int, total: int, note: str = "") -> None:
            if what not in tasks:
                tasks[what] = progress.add_task("", total=total)
            described = escape(f"{what}, {note}" if note else what)
            progress.update(tasks[what], completed=done, total=total, description=described)

        yield move


@contextlib.contextmanager
def _lines() -> Iterator[Move]:
    lines, ended = ProgressLines(lambda line: click.echo(line, err=True)), threading.Event()

    def tell() -> None:
        while not ended.wait(EVERY_S):
            lines.tell()

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield lines.move
    finally:
        ended.set()
        teller.join()
