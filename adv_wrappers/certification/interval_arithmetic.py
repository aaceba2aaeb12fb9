"""Interval arithmetic on float64 arrays, rounded outwards (Moore 1966): what a formula can give for numbers in ranges.

Every operation answers with an interval that holds the exact result for all numbers in its operands, and the result
that float64 computes for them. Formulas in which a variable occurs several times are bounded, not exactly: each
occurrence is taken to vary by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.types import Floats

_TURN = 2 * np.pi
_WAVE = 2.0**-48  # more than sines and cosines, and the multiples of pi that they are reduced by, are off


@dataclass(frozen=True)
class Interval:
    """All numbers from ``low`` to ``high``, elementwise; float64 arrays of one shape, or numbers.

    >>> from adv_wrappers.core.types import Floats
    from adv_wrappers.certification.interval_arithmetic import Interval
    >>> Interval(1.0, 2.0) - Interval(0.0, 1.0)  # doctest: +ELLIPSIS
    Interval(low=..., high=...)
    """

    low: Floats
    high: Floats

    @classmethod
    def of(cls, value: Interval | Floats | float) -> Interval:
        """A number or array as an interval of no width; intervals as they are."""
        return value if isinstance(value, Interval) else cls(np.float64(value), np.float64(value))  # type: ignore[arg-type]

    @property
    def middle(self) -> Floats:
        """The middle, rounded."""
        return 0.5 * self.low + 0.5 * self.high

    @property
    def radius(self) -> Floats:
        """How far the interval reaches from its middle at most."""
        middle = self.middle
        return np.nextafter(np.maximum(self.high - middle, middle - self.low), np.inf)

    @property
    def largest(self) -> Floats:
        """The largest absolute value in it."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval | Floats | float) -> Interval:
        other = Interval.of(other)
        return _rounded(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval | Floats | float) -> Interval:
        return self + -Interval.of(other)

    def __mul__(self, other: Interval | Floats | float) -> Interval:
        other = Interval.of(other)
        ends = self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high
        return _rounded(
            np.minimum(np.minimum(ends[0], ends[1]), np.minimum(ends[2], ends[3])),
            np.maximum(np.maximum(ends[0], ends[1]), np.maximum(ends[2], ends[3])),
        )

    def __truediv__(self, other: Interval | Floats | float) -> Interval:
        """Divided by intervals without zero; through one that holds it, the quotient has no bounds."""
        other = Interval.of(other)
        holds_zero = (other.low <= 0) & (other.high >= 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = _rounded(1 / other.high, 1 / other.low)
        low, high = np.where(holds_zero, -np.inf, inverse.low), np.where(holds_zero, np.inf, inverse.high)
        return self * Interval(low, high)

    def square(self) -> Interval:
        """The square, in which both factors are the same number."""
        least = np.where((self.low <= 0) & (self.high >= 0), 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))
        found = _rounded(least * least, self.largest * self.largest)
        return Interval(np.maximum(found.low, 0.0), found.high)

    def cos(self) -> Interval:
        """The cosine."""
        ends = np.cos(self.low), np.cos(self.high)
        low, high = np.minimum(*ends) - _WAVE, np.maximum(*ends) + _WAVE
        high = np.where(_holds_multiple(self, 0.0), 1.0, np.minimum(high, 1.0))
        return Interval(np.where(_holds_multiple(self, np.pi), -1.0, np.maximum(low, -1.0)), high)

    def sin(self) -> Interval:
        """The sine."""
        return (self - np.pi / 2).cos()


def _rounded(low: Floats, high: Floats) -> Interval:
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


def _holds_multiple(x: Interval, shift: float) -> NDArray[np.bool_]:
    """Whether an interval may hold ``shift`` plus a multiple of a full turn."""
    turns = np.floor((x.high - shift) / _TURN + _WAVE)
    return np.asarray((x.low - shift) / _TURN - _WAVE <= turns)
