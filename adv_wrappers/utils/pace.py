"""How fast something goes that takes long: seconds of some of its steps, and plain lines with the time that is left."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from adv_wrappers.utils.number_text import duration

Progress = Callable[[str, int, int], None]  # what runs, how many of its parts are done, and how many it has
EVERY_S = 10.0  # seconds between lines
_ABOUT = 0.9  # of the largest size of a step


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
        self.done, self.updated = self.first, self.began

    def move(self, now: float, done: int, total: int) -> None:
        """Keep that ``done`` of ``total`` parts are done now."""
        if done != self.done:
            self.done, self.updated = done, now
        self.total = total

    def left(self, now: float) -> float | None:
        """About how many seconds are left; None where nothing is known: before the first part, and once it is late."""
        made = self.done - self.first
        if made <= 0:
            return None
        left = (self.updated - self.began) / made * (self.total - self.done) - (now - self.updated)
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


class _Enough(Exception):
    """Enough steps were timed."""


class StepTimer:
    """Called after every step: times those after the first, and ends what is stepped once there are enough.

    The first step is not counted: in it networks are prepared and memory is allocated. Of steps that differ in size,
    such as those of a search that widens, those of about the largest size are kept.

    Args:
        most: the number of steps after which there are enough.
        limit: seconds after which there are enough, whatever their number, once one was timed.
        clock: seconds, which only rise.

    Attributes:
        ended: whether there were enough before the end of what was stepped.
    """

    def __init__(self, most: int, limit: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.most = most
        self.limit = limit
        self._clock = clock
        self.ended = False
        self._timed = list[tuple[int, float]]()  # the size of every step, and its seconds
        self._first: float | None = None
        self._last, self._size = 0.0, 0

    def __call__(self, size: int = 0) -> None:
        """A step is over; ``size`` is that of the next one."""
        now = self._clock()
        if self._first is None:
            self._first = now
        else:
            self._timed.append((self._size, now - self._last))
        self._last, self._size = now, size
        if self._timed and (len(self.seconds) >= self.most or now - self._first >= self.limit):
            self.ended = True
            raise _Enough

    @property
    def seconds(self) -> list[float]:
        """Of every step that is kept."""
        largest = max((size for size, _ in self._timed), default=0)
        return [seconds for size, seconds in self._timed if size >= _ABOUT * largest]

    @contextlib.contextmanager
    def ends(self) -> Iterator[None]:
        """Inside, what is stepped is ended once there are enough."""
        with contextlib.suppress(_Enough):
            yield
