"""The least size of an attack that breaks an agent: which size is tried next, by what the ones before did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bisection:
    """Looks for the least size of an attack that breaks an agent.

    Up some sizes until one breaks it, and down them until one does not; then in the middle of the largest that does not
    and the least that does, until these are close.

    Attributes:
        sizes: those that are tried first, in rising order.
        start: the first of all.
        close: the difference of two sizes at which it ends, or their ratio.
        by_ratio: whether the middle is the geometric mean.
        whole: whether sizes are whole numbers; others have three digits.
        least: what is taken not to break the agent; 0, or a size above it where the middle is a geometric mean.
    """

    sizes: Sequence[float]
    start: float
    close: float
    by_ratio: bool = False
    whole: bool = False
    least: float = 0.0

    def next(self, breaks: Mapping[float, bool]) -> float | None:
        """The size that is tried next, by whether those so far break the agent; None at the end.

        >>> search = Bisection([1.0, 8.0], start=1.0, close=1.0)
        >>> search.next({}), search.next({1.0: False}), search.next({1.0: False, 8.0: True})
        (1.0, 8.0, 4.5)
        """
        if not breaks:
            return self.start
        low, high = bracket(breaks)
        if high is None:
            return next((size for size in self.sizes if size > max(breaks)), None)
        if low is None and (smaller := [size for size in self.sizes if size < high]):
            return smaller[-1]
        return self.between(self.least if low is None else low, high)

    def between(self, low: float, high: float) -> float | None:
        """The middle of two sizes; None where they are close, or no other size is between them."""
        if (high / low if self.by_ratio else high - low) <= self.close:
            return None
        middle = math.sqrt(low * high) if self.by_ratio else (low + high) / 2
        size = float(round(middle) if self.whole else f"{middle:.3g}")
        return size if low < size < high else None


def bracket(breaks: Mapping[float, bool]) -> tuple[float | None, float | None]:
    """The largest size below all that break an agent, and the least that does; None where there is none."""
    high = min((size for size, broken in breaks.items() if broken), default=None)
    low = max((size for size in breaks if high is None or size < high), default=None)
    return low, high
