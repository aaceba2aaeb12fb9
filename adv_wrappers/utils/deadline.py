"""Limits of time: when to stop, and how much to do at once so that stopping is never far away."""

from __future__ import annotations

import math
import time

clock = time.monotonic  # tests put another one in its place

_AT_ONCE = 0.05  # of the time that is left, which a batch takes at most


class OutOfTime(Exception):
    """Something does not fit into the time that is left, or that time passed while it was done."""


class Deadline:
    """The time at which something stops.

    Args:
        seconds: from now on; None for no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._until = math.inf if seconds is None else clock() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0; infinity without a limit."""
        return max(self._until - clock(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether nothing is left."""
        return clock() >= self._until

    def check(self, *_told: object) -> None:
        """Raise :class:`OutOfTime` once nothing is left; may be called in place of a function that tells progress."""
        if self.passed:
            raise OutOfTime

    def before(self, seconds: float) -> Deadline:
        """One that leaves so many seconds, or a quarter of what is left where that is less."""
        return Deadline(self.left - min(seconds, self.left / 4))

    def share(self, part: float) -> Deadline:
        """One after this part of the time that is left."""
        return Deadline(None if math.isinf(self._until) else part * self.left)


NEVER = Deadline(None)


class TimedBatches:
    """How many rows to compute at once before a deadline.

    Without a limit of time as many as may be. With one a single row at first, and then as many as seem to take a
    twentieth of what is left, so that the last of them ends in time but for one row.

    Args:
        deadline: when to stop.
        most: at once.
    """

    def __init__(self, deadline: Deadline, most: int) -> None:
        self.deadline, self._most = deadline, most
        self._each: float | None = None  # seconds of a row
        self._began = 0.0

    def next(self, rows: int) -> int:
        """How many of these rows, 0 where the time is over; they begin now."""
        self._began = clock()
        count, left = min(rows, self._most), self.deadline.left
        if math.isinf(left):
            return count
        if left == 0:
            return 0
        # one row tells how long one takes, then as many as fit into a share of what is left
        if self._each is None:
            return min(count, 1)
        return min(count, max(int(_AT_ONCE * left / max(self._each, 1e-9)), 1))

    def done(self, rows: int) -> None:
        """So many rows are computed."""
        self._each = (clock() - self._began) / rows
