"""How far something is that takes long: plain lines, with the time that is left."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from adv_wrappers.utils.text import duration

EVERY_S = 10.0  # seconds between lines


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


def to_standard_error(line: str) -> None:
    """Write a line there at once."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress_lines(write: Callable[[str], object] = to_standard_error, every: float = EVERY_S) -> Iterator[Move]:
    """A function that is told how far something is; lines say so as long as it goes on.

    Args:
        write: takes a line.
        every: seconds between lines; what is done sooner writes none.
    """
    lines, ended = ProgressLines(write), threading.Event()

    def tell() -> None:
        while not ended.wait(every):
            lines.tell()

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield lines.move
    finally:
        ended.set()
        teller.join()
