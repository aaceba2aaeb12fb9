"""When a layer attacks: timings, and how they combine with ``&``, ``|`` and ``~``.

A timing is decided a row at a time from the step ``t``, the attacks ``spent`` so far and the row's own random key, so
that nothing depends on how many environments run side by side. Steps at which it says no cost no attack.

>>> Bernoulli(0.1) & ~AtMost(7)
And(a=Bernoulli(p=0.1, stream=None), b=Not(a=AtMost(n=7)))

``Strategic`` is the timing of Lin et al. 2017: attack when it matters to the victim what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from torch import Tensor

from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import Step, When, expect_victim
from adv_wrappers.core.types import Flags
from adv_wrappers.errors import ThreatError, VictimError
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.validation import Limits, LongCount, Share


class Timing(When):
    """Base of the timings."""

    def __and__(self, other: When) -> And:
        return And(self, other)

    def __or__(self, other: When) -> Or:
        return Or(self, other)

    def __invert__(self) -> Not:
        return Not(self)

    def __bool__(self) -> bool:
        """Raises :class:`ThreatError`: ``and`` and ``or`` would silently keep one of the two."""
        raise ThreatError("timings combine with &, | and ~; and, or and not would silently drop one of them")

    def __str__(self) -> str:
        """The text that the timing is read from, its defaults left out."""
        given, skipped = list[str](), False
        for field in fields(cast(Any, self)):
            value = getattr(self, field.name)
            if value is field.default or value == field.default:
                skipped = True
            else:  # behind an argument that is left out, only its name says which one a value is
                whole = isinstance(value, float) and value.is_integer()
                text = repr(value) if isinstance(value, str) else str(int(value) if whole else value)
                given.append(f"{field.name}={text}" if skipped else text)
        return f"{self.name}({','.join(given)})"


def _look(when: When, x: Tensor, context: Context, step: Step, path: int) -> Flags:
    seen = when.decide(step, path) if when.blind else when.look(x, context, step, path)
    return seen.cpu().numpy() if isinstance(seen, Tensor) and step.on_host else seen


class Pair(Timing):
    """Two timings; each operand folds its own place into the key, so that two Bernoullis do not draw alike."""

    a: When
    b: When

    def __post_init__(self) -> None:
        for part in (self.a, self.b):
            if not isinstance(part, When):
                raise ThreatError(f"timings combine with timings, got {part!r}")

    @property
    def blind(self) -> bool:  # type: ignore[override]
        """Whether neither operand looks at the observation."""
        return self.a.blind and self.b.blind

    def join(self, a: Flags, b: Flags) -> Flags:
        """Both decisions as one."""
        raise NotImplementedError

    def decided(self, first: Flags) -> bool:
        """Whether the first decision is already that of both."""
        return False

    def decide(self, step: Step, path: int = 0) -> Flags:
        return self.join(self.a.decide(step, 4 * path + 1), self.b.decide(step, 4 * path + 2))

    def look(self, x: Tensor, context: Context, step: Step, path: int = 0) -> Flags:
        first = _look(self.a, x, context, step, 4 * path + 1)
        if not isinstance(first, Tensor) and self.decided(first):
            return first  # the second may cost a pass through the victim
        return self.join(first, _look(self.b, x, context, step, 4 * path + 2))


@dataclass(frozen=True)
class And(Pair):
    """Both."""

    name: ClassVar[str] = "and"
    a: When
    b: When

    def join(self, a: Flags, b: Flags) -> Flags:
        return a & b

    def decided(self, first: Flags) -> bool:
        return not np.any(first)

    def __str__(self) -> str:
        return f"{self.a}&({self.b})" if isinstance(self.b, And) else f"{self.a}&{self.b}"


@dataclass(frozen=True)
class Or(Pair):
    """Either."""

    name: ClassVar[str] = "or"
    a: When
    b: When

    def join(self, a: Flags, b: Flags) -> Flags:
        return a | b

    def __str__(self) -> str:
        return f"({self.a}|{self.b})"


@dataclass(frozen=True)
class Not(Timing):
    """Neither more nor less than the other steps."""

    name: ClassVar[str] = "not"
    a: When

    def __post_init__(self) -> None:
        if not isinstance(self.a, When):
            raise ThreatError(f"~ turns a timing round, got {self.a!r:.80}")

    @property
    def blind(self) -> bool:  # type: ignore[override]
        """Whether the operand does not look at the observation."""
        return self.a.blind

    def __str__(self) -> str:
        return f"~({self.a})" if isinstance(self.a, And) else f"~{self.a}"

    def decide(self, step: Step, path: int = 0) -> Flags:
        return self.a.decide(step, 4 * path + 3) ^ True

    def look(self, x: Tensor, context: Context, step: Step, path: int = 0) -> Flags:
        return _look(self.a, x, context, step, 4 * path + 3) ^ True


_LARGEST = 2**63 - 1  # steps: what a tensor of integers holds


@dataclass(frozen=True)
class Always(Timing):
    """Attack at every step."""

    name: ClassVar[str] = "always"

    def decide(self, step: Step, path: int = 0) -> Flags:
        return True


@dataclass(frozen=True)
class Never(Timing):
    """Do not attack."""

    name: ClassVar[str] = "never"

    def decide(self, step: Step, path: int = 0) -> Flags:
        return False


@dataclass(frozen=True)
class Every(Timing):
    """Attack at t = 0, k, 2k, ...; with ``length`` for so many steps each time, with ``first`` from that step on."""

    name: ClassVar[str] = "every"
    k: Annotated[int, Limits(1, _LARGEST)]
    length: Annotated[int, Limits(1, _LARGEST)] = 1
    first: LongCount = 0

    def decide(self, step: Step, path: int = 0) -> Flags:
        return ((step.t - self.first) % self.k < self.length) & (step.t >= self.first)


@dataclass(frozen=True)
class Window(Timing):
    """Attack while a <= t < b."""

    name: ClassVar[str] = "window"
    a: LongCount
    b: int

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("b", self.b, self.a, _LARGEST)

    def decide(self, step: Step, path: int = 0) -> Flags:
        return (self.a <= step.t) & (step.t < self.b)


@dataclass(frozen=True)
class Bernoulli(Timing):
    """Attack with probability p, independently at every step.

    ``stream`` names a stream of draws shared by several layers (what ``ProbabilisticTiming`` does); None is the
    layer's own.
    """

    name: ClassVar[str] = "bernoulli"
    p: Share
    stream: LongCount | None = None

    def decide(self, step: Step, path: int = 0) -> Flags:
        return step.chance(path, self.stream) < self.p


@dataclass(frozen=True)
class AtMost(Timing):
    """Attack while fewer than n attacks were spent in this episode."""

    name: ClassVar[str] = "atmost"
    n: LongCount

    def decide(self, step: Step, path: int = 0) -> Flags:
        return step.spent < self.n


@dataclass(frozen=True)
class Strategic(Timing):
    """Attack when the victim cares: its most and its least preferred action differ by more than beta.

    Source: Lin et al. 2017, "Tactics of Adversarial Attack on Deep Reinforcement Learning Agents", equation 6. The gap
    is one of probabilities, in [0, 1]; Q-values pass through a softmax (temperature 1).

    Raises:
        VictimError: without a victim, or with one whose actions are continuous.
    """

    name: ClassVar[str] = "strategic"
    blind: ClassVar[bool] = False
    beta: Share
    victim: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_victim(self.name, self.victim)

    def look(self, x: Tensor, context: Context, step: Step, path: int = 0) -> Flags:
        if self.victim is None:
            raise VictimError("strategic timing needs a victim: Strategic(beta, victim) or threat.against(victim)")
        probs = getattr(context.bind(self.victim).policy(), "probs", None)
        if probs is None or probs.dim() != 2:
            raise VictimError("strategic timing is defined for one discrete action, this victim's is of another kind")
        flags: Tensor = probs.amax(1) - probs.amin(1) > self.beta
        return flags
