"""Numbers that change during a training, as values: weights of losses, and how much of a budget is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from adv_wrappers.core.serialization import Value
from adv_wrappers.utils.checks import number
from adv_wrappers.utils.validation import Finite, Limits, PositiveShare, Share


@dataclass(frozen=True)
class LinearSchedule(Value):
    """A number that moves linearly from ``first`` to ``last`` while the training goes from ``begin`` to ``end``.

    Args:
        first, last: the number before and after.
        begin, end: shares of the training, in [0, 1]. Where they are equal, the number jumps.

    >>> from adv_wrappers import LinearSchedule
    >>> LinearSchedule(0.0, 1.0, end=0.5)(0.25)
    0.5
    """

    name: ClassVar[str] = "linear-schedule"
    first: Finite
    last: Finite
    begin: Share = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number("end", self.end, self.begin, 1)

    @property
    def ends(self) -> tuple[float, float]:
        """The number before and after."""
        return self.first, self.last

    def part(self, done: float) -> float:
        """How far the number has come from ``first`` to ``last``, when ``done`` of the training is done."""
        if done >= self.end:
            return 1.0
        return 0.0 if done <= self.begin else (done - self.begin) / (self.end - self.begin)

    def __call__(self, done: float) -> float:
        return self.first + self.part(done) * (self.last - self.first)


@dataclass(frozen=True)
class SmoothSchedule(LinearSchedule):
    """:class:`LinearSchedule` with a slow beginning: a power until ``bend``, then a line that goes on from it.

    Bounds through a network that was not trained for them grow fast with eps, so that the first steps are the hard
    ones.

    Args:
        bend: the share of the way from ``begin`` to ``end`` on which the power rules, in (0, 1).
        exponent: the power, at least 1.

    >>> from adv_wrappers import SmoothSchedule
    >>> schedule = SmoothSchedule(0.0, 1.0)
    >>> schedule(0.0), round(schedule(0.1), 4), schedule(1.0)
    (0.0, 0.002, 1.0)
    """

    name: ClassVar[str] = "smooth-schedule"
    bend: PositiveShare = 0.25
    exponent: Annotated[float, Limits(1)] = 4.0

    def part(self, done: float) -> float:
        x, slow = super().part(done), float(self.bend ** (self.exponent - 1))
        # c x^p until the bend, then a line of the slope that it has there, which ends at 1
        scale = 1 / (slow * (self.bend + self.exponent * (1 - self.bend)))
        if x <= self.bend:
            return scale * float(x**self.exponent)
        return 1 - scale * self.exponent * slow * (1 - x)


Number = float | LinearSchedule
ScheduledShare = Annotated[Number, Limits(0, 1)]
ScheduledWeight = Annotated[Number, Limits(0)]


def at(number: Number, done: float) -> float:
    """The value of a number or schedule when ``done`` of the training is done."""
    return number(done) if isinstance(number, LinearSchedule) else float(number)
