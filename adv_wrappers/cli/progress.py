"""How far a command is, on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click

from adv_wrappers.cli.main import make_console
from adv_wrappers.utils.split_and_parse_text import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

EVERY_S = 10.0  # seconds between lines
_BAR = 12  # columns of a bar
_BESIDE = _BAR + 44  # columns that it takes with what stands beside it, but for a name and a note
_LEAST_NAME = 12


class Move(Protocol):
    """Tells how far something is."""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """``done`` of ``total`` parts of ``what`` are done; the note stands beside it."""


@dataclass
class Pace:
    """How fast something goes, by what was done since it was first told of.

    Args:
        began: the time at which it was told of first, in seconds of any clock.
        first: how much of it was done then, which an earlier call did and which says nothing of this one's pace.
        total: of how many parts.
    """

    began: float
    first: int
    total: int

    def __post_init__(self) -> None:
        self.done, self.updated, self._last = self.first, self.began, 0

    def move(self, now: float, done: int, total: int) -> None:
        """Keep that ``done`` of ``total`` parts are done now."""
        if done != self.done:
            self._last, self.done, self.updated = done - self.done, done, now
        self.total = total

    def left(self, now: float) -> float | None:
        """About how many seconds are left; None where nothing is known yet.

        What is done moves by several parts at once, such as the episodes that are played side by side. The time since
        the last move counts towards the next, until that takes longer than the ones before: then they all count as so
        slow as if it came now. Of the last move nothing is known once it is late.
        """
        made, since = self.done - self.first, now - self.updated
        if made <= 0 or self.done >= self.total:
            return None
        expected = (self.updated - self.began) / made * self._last
        if since <= expected:
            left = (self.updated - self.began) / made * (self.total - self.done) - since
        else:
            left = (now - self.began) / (made + self._last) * (self.total - self.done - self._last)
        return left if left > 0 else None


class ProgressLines:
    """Plain lines that say what runs, how much of it is done, for how long it has run, and about how long is left.

    Args:
        write: takes a line.
        clock: seconds, which only rise.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._paces: dict[str, Pace] = {}
        self._notes: dict[str, str] = {}
        self._last = ""  # what was told of last
        self._lock = threading.Lock()

    def move(self, what: str, done: int, total: int, note: str = "") -> None:
        """Keep how far something is, for the next line."""
        with self._lock:
            now = self._clock()
            self._paces.setdefault(what, Pace(now, done, total)).move(now, done, total)
            self._last, self._notes[what] = what, note

    def tell(self) -> None:
        """Write a line on what runs: on the last thing that was told of, if it is not done, or on all that is not."""
        with self._lock:
            running = {what: pace for what, pace in self._paces.items() if pace.done < pace.total}
            if self._last in running:
                running = {self._last: running[self._last]}
            lines = [self._line(what, pace) for what, pace in running.items()]
        for line in lines:
            self._write(line)

    def _line(self, what: str, pace: Pace) -> str:
        now, note = self._clock(), self._notes[what]
        note = f", {note}" if note else ""
        return f"{what}: {pace.done} of {pace.total}{note} after {duration(now - pace.began)}{left_text(pace, now)}"


def left_text(pace: Pace, now: float) -> str:
    """About how long is left, to be put behind another text; empty where nothing is known."""
    left = pace.left(now)
    return "" if left is None else f", about {duration(left)} left"


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Times(ProgressColumn):
        """A note, how long a task has run, and about how long is left."""

        def render(self, task: Task) -> Text:
            pace, note = task.fields["pace"], task.fields["note"]
            gone = duration(task.finished_time if task.finished_time is not None else task.elapsed or 0.0)
            words = f"{note}, {gone}" if note else gone
            return Text(f"{words}{left_text(pace, task.get_time())}", style="progress.remaining")

    # what is printed meanwhile goes above the bars, but not from standard output that goes elsewhere
    columns = (TextColumn("{task.description}"), BarColumn(_BAR), MofNCompleteColumn(), Times())
    with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as progress:
        tasks: dict[str, TaskID] = {}

        def move(what: str, done: int, total: int, note: str = "") -> None:
            now, name = progress.get_time(), Text(what)
            name.truncate(max(console.width - _BESIDE - len(note), _LEAST_NAME), overflow="ellipsis")
            if what not in tasks:
                tasks[what] = progress.add_task(escape(name.plain), total=total, pace=Pace(now, done, total), note=note)
            progress.tasks[tasks[what]].fields["pace"].move(now, done, total)
            progress.update(tasks[what], completed=done, total=total, description=escape(name.plain), note=note)

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
