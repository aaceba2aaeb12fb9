"""How timings combine: ``&``, ``|`` and ``~``, and the text of the result."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast

import numpy as np
from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import ThreatError
from adv_wrappers.core.perturbation import When


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
                text = repr(value) if isinstance(value, str) else str(value)
                given.append(f"{field.name}={text}" if skipped else text)
        return f"{self.name}({','.join(given)})"


def _look(when: When, x: Tensor, context: Context, moment: Any, path: int) -> Any:
    seen = when.decide(moment, path) if when.blind else when.look(x, context, moment, path)
    return seen.cpu().numpy() if isinstance(seen, Tensor) and moment.clock.device is None else seen


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

    def join(self, a: Any, b: Any) -> Any:
        """Both decisions as one."""
        raise NotImplementedError

    def settled(self, first: Any) -> bool:
        """Whether the first decision is already that of both."""
        return False

    def decide(self, moment: Any, path: int = 0) -> Any:
        return self.join(self.a.decide(moment, 4 * path + 1), self.b.decide(moment, 4 * path + 2))

    def look(self, x: Tensor, context: Context, moment: Any, path: int = 0) -> Any:
        first = _look(self.a, x, context, moment, 4 * path + 1)
        if not isinstance(first, Tensor) and self.settled(first):
            return first  # the second may cost a pass through the victim
        return self.join(first, _look(self.b, x, context, moment, 4 * path + 2))


@dataclass(frozen=True)
class And(Pair):
    """Both."""

    name: ClassVar[str] = "and"
    a: When
    b: When

    def join(self, a: Any, b: Any) -> Any:
        return a & b

    def settled(self, first: Any) -> bool:
        return not np.any(first)

    def __str__(self) -> str:
        return f"{self.a}&({self.b})" if isinstance(self.b, And) else f"{self.a}&{self.b}"


@dataclass(frozen=True)
class Or(Pair):
    """Either."""

    name: ClassVar[str] = "or"
    a: When
    b: When

    def join(self, a: Any, b: Any) -> Any:
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

    def decide(self, moment: Any, path: int = 0) -> Any:
        return self.a.decide(moment, 4 * path + 3) ^ True

    def look(self, x: Tensor, context: Context, moment: Any, path: int = 0) -> Any:
        return _look(self.a, x, context, moment, 4 * path + 3) ^ True
