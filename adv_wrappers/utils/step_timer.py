"""Seconds of a few steps of something that takes many, to say beforehand what all will take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

ABOUT = 0.9  # of the largest size


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
        self.most, self.limit, self._clock = most, limit, clock
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
        return [seconds for size, seconds in self._timed if size >= ABOUT * largest]

    @contextlib.contextmanager
    def ends(self) -> Iterator[None]:
        """Inside, what is stepped is ended once there are enough."""
        with contextlib.suppress(_Enough):
            yield
