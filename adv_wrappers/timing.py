"""When a layer strikes. Timings are values and combine with ``&``, ``|`` and ``~``.

A timing is decided a row at a time from the step ``t``, the strikes ``spent`` so far and the row's own random key, so
that nothing depends on how many environments run side by side. Steps at which it says no cost no attack.

>>> Bernoulli(0.1) & ~AtMost(7)
And(a=Bernoulli(p=0.1, stream=None), b=Not(a=AtMost(n=7)))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.logic import And as And
from adv_wrappers.logic import Not as Not
from adv_wrappers.logic import Or as Or
from adv_wrappers.logic import Timing as Timing


def _count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise ValueRangeError(f"{name} must be an integer of at least {least}, got {value!r:.80}")


@dataclass(frozen=True)
class Always(Timing):
    """Strike at every step."""

    name: ClassVar[str] = "always"

    def decide(self, moment: Any, path: int = 0) -> Any:
        return True


@dataclass(frozen=True)
class Never(Timing):
    """Do not strike."""

    name: ClassVar[str] = "never"

    def decide(self, moment: Any, path: int = 0) -> Any:
        return False


@dataclass(frozen=True)
class Every(Timing):
    """Strike at t = 0, k, 2k, ..."""

    name: ClassVar[str] = "every"
    k: int

    def __post_init__(self) -> None:
        _count("k", self.k, 1)

    def decide(self, moment: Any, path: int = 0) -> Any:
        return moment.t % self.k == 0


@dataclass(frozen=True)
class Window(Timing):
    """Strike while a <= t < b."""

    name: ClassVar[str] = "window"
    a: int
    b: int

    def __post_init__(self) -> None:
        _count("a", self.a, 0)
        _count("b", self.b, self.a)

    def decide(self, moment: Any, path: int = 0) -> Any:
        return (self.a <= moment.t) & (moment.t < self.b)


@dataclass(frozen=True)
class Bernoulli(Timing):
    """Strike with probability p, independently at every step.

    ``stream`` names a stream of draws shared by several layers (what ``ProbabilisticTiming`` does); None is the
    layer's own.
    """

    name: ClassVar[str] = "bernoulli"
    p: float
    stream: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.p, bool) or not isinstance(self.p, (int, float)) or not 0 <= self.p <= 1:
            raise ValueRangeError(f"p must be a probability in [0, 1], got {self.p!r}")
        if self.stream is not None:
            _count("stream", self.stream, 0)

    def decide(self, moment: Any, path: int = 0) -> Any:
        return moment.chance(path, self.stream) < self.p


@dataclass(frozen=True)
class AtMost(Timing):
    """Strike while fewer than n strikes were spent in this episode."""

    name: ClassVar[str] = "atmost"
    n: int

    def __post_init__(self) -> None:
        _count("n", self.n, 0)

    def decide(self, moment: Any, path: int = 0) -> Any:
        return moment.spent < self.n
