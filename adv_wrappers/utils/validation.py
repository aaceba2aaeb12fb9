"""Limits of arguments: what a number or a word may be is declared in an annotation, and checked at the door.

A door is a public function (:func:`checked`), a dataclass that somebody fills (:func:`check_fields`), a file, or an
option of the command line. ``Annotated[int, Limits(1)]`` is an integer from 1 on, ``Literal["mode", "sample"]`` one of
two words, and ``Positive | None`` may be left out. Inside nothing is checked again. Importing this takes no time: the
command line reads it before torch and NumPy.

Pydantic would check the same, but adds a tenth of a second to every start, refuses NumPy's integers, takes NaN, copies
mappings and consumes iterators.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.utils.frozen import set_fields

P = ParamSpec("P")
R = TypeVar("R")


def is_integer(value: object) -> TypeGuard[int]:
    """Whether this is an integer of Python's own."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether this is an integer or a float of Python's own; NaN and infinity are."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain_number(value: object) -> object:
    """A number of NumPy as Python's own; anything else as it is."""
    return value.item() if not is_number(value) and _is_of_numpy(value, "integer", "floating") else value


def _is_of_numpy(value: Any, *kinds: str) -> TypeGuard[Any]:
    """Whether a value is of these classes of NumPy, which is not imported for that: then nobody has such a value."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, tuple(getattr(numpy, kind) for kind in kinds))


def finite_float(value: object) -> float | None:
    """A number of Python's own as a float; None for anything else, infinity and integers that no float can hold."""
    if not is_number(value):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def either(texts: Iterable[str]) -> str:
    """``a, b or c``."""
    *others, last = texts
    return f"{', '.join(others)} or {last}" if others else last


@dataclass(frozen=True)
class Limits:
    """The range of a number, as an annotation of its type.

    Attributes:
        minimum, maximum: the ends, both included; None for none.
        above: ``minimum`` itself is refused.
        below: ``maximum`` itself is refused.
    """

    minimum: float | None = None
    maximum: float | None = None
    above: bool = False
    below: bool = False

    def __contains__(self, number: float) -> bool:
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        inside: bool = low <= number <= high
        return inside and not (self.above and number == low) and not (self.below and number == high)

    def __str__(self) -> str:
        """In words, to be put behind what the number is."""
        ends = (self.minimum, self.maximum)
        least, most = (None if end is None else f"{end}" if is_integer(end) else f"{end:g}" for end in ends)
        if least is None:
            return "" if most is None else f" of at most {most}"
        if self.above:
            return f" above {least}" + ("" if most is None else f" and {'below' if self.below else 'at most'} {most}")
        return f" of at least {least}" if most is None else f" from {least} to {most}"


MOST_EPISODES = 10**6
MOST_TRAINING_STEPS = 10**12
MOST_NETWORKS = 100  # of a card
MOST_SEED = 2**32 - 2**16  # with which Stable-Baselines3 can seed NumPy's own generator

Integer = Annotated[int, Limits()]
Count = Annotated[int, Limits(0)]
Positive = Annotated[int, Limits(1)]
LongCount = Annotated[int, Limits(0, 2**63 - 1)]  # that a tensor of integers holds
Finite = Annotated[float, Limits()]
NotNegative = Annotated[float, Limits(0)]
AboveZero = Annotated[float, Limits(0, above=True)]
Share = Annotated[float, Limits(0, 1)]
PositiveShare = Annotated[float, Limits(0, 1, above=True)]
OpenShare = Annotated[float, Limits(0, 1, above=True, below=True)]  # neither none nor all
# of evaluations
Seed = Annotated[int, Limits(0)]
EpisodeCount = Annotated[int, Limits(1, MOST_EPISODES)]
EnvCount = Annotated[int, Limits(1, 2**16)]  # side by side: each is a simulator in memory
DrawCount = Annotated[int, Limits(1, 10**6)]
BestOf = DrawCount | Mapping[str, DrawCount]  # by the text of a threat
Minimum = Finite | Literal["worst-action"]  # that impact counts from
Workers = Annotated[int, Limits(1, 1024)]
Minutes = Annotated[float, Limits(0.01, 1e5)]
# of trainings
TrainingSeed = Annotated[int, Limits(0, MOST_SEED)]
TrainingSteps = Annotated[int, Limits(1, MOST_TRAINING_STEPS)]
Transitions = Annotated[int, Limits(100, MOST_TRAINING_STEPS)]
Epochs = Annotated[int, Limits(1, 10**6)]
Width = Annotated[int, Limits(1, 2**16)]  # of a layer
LearningRate = Annotated[float, Limits(0, 1e3, above=True)]
Exploration = Annotated[float, Limits(0, 1e3)]  # as a fraction of half the range of actions
AttackCount = Annotated[int, Limits(1, 10**9)]  # of an episode
Cost = Annotated[float, Limits(0, 1e12)]  # in units of reward, whose squares a training holds in float32
Return = Annotated[float, Limits(-1e12, 1e12)]

_REFUSED = object()
_LISTS, _MAPPINGS = (list, tuple, Sequence), (dict, Mapping)


class Part(NamedTuple):
    """What a value may be: one part of a union.

    Attributes:
        kind: a class, ``Literal``, or what values cannot be asked about, such as a protocol.
        words: the words of a ``Literal``.
        limits: of the number, or of both ends of a schedule; None where none are declared.
        elements: of a list or a dictionary.
        length: of a tuple of so many; None for any number.
    """

    kind: Any
    words: tuple[Any, ...]
    limits: Limits | None
    elements: Expected | None
    length: int | None

    @property
    def is_checked(self) -> bool:
        """Whether it is a choice, has limits, or is a collection of what does; all else passes as it is."""
        inner = self.elements is not None and self.elements.is_checked
        return inner or self.limits is not None or self.kind in (bool, Literal)

    def __str__(self) -> str:
        """In words; nothing of what has no name."""
        if self.kind is Literal:
            return either(repr(one) for one in self.words if one is not None)
        if self.elements is not None:
            count = "" if self.length is None else f" of {self.length}"
            each = f", each {self.elements}" if str(self.elements) else ""
            return f"a {'dictionary' if self.kind in _MAPPINGS else 'list'}{count}{each}"
        if self.kind in (int, float):
            return f"{'an integer' if self.kind is int else 'a finite number'}{self.limits or ''}"
        # any other class by its name
        name = {NoneType: "", bool: "true or false", str: "a text"}.get(self.kind)
        if name is not None or not isinstance(self.kind, type):
            return name or ""
        return f"a{'n' * self.kind.__name__.startswith(tuple('AEIOU'))} {self.kind.__name__}"

    def takes(self, value: Any) -> bool:
        """Whether it is of this part."""
        return self.plain(value) is not _REFUSED

    def plain(self, value: Any) -> Any:
        """The value, with plain numbers in the place of NumPy's; ``_REFUSED`` where it is none of this part."""
        # numbers within their limits, one of some words, flags, collections, and instances of a class
        if self.kind in (int, float):
            plain = plain_number(value)
            number = (plain if is_integer(plain) else None) if self.kind is int else finite_float(plain)
            return _REFUSED if number is None or not (self.limits is None or number in self.limits) else number
        if self.kind is Literal:
            return value if isinstance(value, Hashable) and value in self.words else _REFUSED
        if self.kind is bool:
            return bool(value) if isinstance(value, bool) or _is_of_numpy(value, "bool_") else _REFUSED
        if self.elements is not None:
            return self._collection(value, self.elements)
        if not isinstance(self.kind, type):
            return _REFUSED if is_number(value) else value
        ends = () if self.limits is None else getattr(value, "ends", ())
        fits = isinstance(value, self.kind) and all(end in self.limits for end in ends)  # type: ignore[operator]
        return value if fits else _REFUSED

    def _collection(self, value: Any, elements: Expected) -> Any:
        mapping = isinstance(value, Mapping)
        if mapping != (self.kind in _MAPPINGS) or isinstance(value, str) or not isinstance(value, Iterable):
            return _REFUSED
        found = tuple(map(elements.plain, value.values() if isinstance(value, Mapping) else value))
        if any(one is _REFUSED for one in found) or self.length not in (None, len(found)):
            return _REFUSED
        return dict(zip(value, found, strict=True)) if mapping else found


class Expected:
    """What an annotation expects of a value.

    Args:
        kind: the annotation.

    Attributes:
        parts: of the union that it is, each with its limits.
        is_checked: whether it says what a number, a word or a collection of these may be. Nothing is asked of others.
    """

    def __init__(self, kind: Any) -> None:
        self.parts = tuple(_parts(kind))
        self.is_checked = any(part.is_checked for part in self.parts)

    def __str__(self) -> str:
        words = [text for part in self.parts if (text := str(part))]
        return either(words) if words else ""

    def plain(self, value: Any) -> Any:
        """The value, with plain numbers in the place of NumPy's; ``_REFUSED`` where it is none of them."""
        return next((found for part in self.parts if (found := part.plain(value)) is not _REFUSED), _REFUSED)

    def check(self, name: str, value: Any, error: type[AdvWrappersError] = ValueRangeError) -> Any:
        """The value as it is declared, with plain numbers in the place of NumPy's, and tuples in that of lists.

        Args:
            name: the argument's, for the message.
            value: the argument.
            error: class of the error.

        >>> import numpy as np
        >>> from adv_wrappers.utils.validation import Expected, Positive
        >>> Expected(Positive | None).check("steps", np.int64(3))
        3
        >>> Expected(Positive | None).check("steps", 0)
        Traceback (most recent call last):
        adv_wrappers.errors.ValueRangeError: steps must be an integer of at least 1, got 0
        """
        found = self.plain(value)
        if found is _REFUSED:
            raise error(f"{name} must be {self}, got {value!r:.80}")
        return found


def _parts(kind: Any, limits: Limits | None = None) -> Iterator[Part]:
    origin, args = get_origin(kind), get_args(kind)
    # limits hold for the number that they are written beside, through unions too
    if origin is Annotated:
        yield from _parts(args[0], next((one for one in args[1:] if isinstance(one, Limits)), limits))
    elif origin in (Union, UnionType):
        for one in args:
            yield from _parts(one, limits)
    elif origin in _LISTS + _MAPPINGS:
        length = len(args) if origin is tuple and Ellipsis not in args else None
        yield Part(origin, (), None, Expected(args[1] if origin in _MAPPINGS else args[0]), length)
    else:
        found = origin or kind
        protocol = getattr(found, "_is_protocol", False) and not getattr(found, "_is_runtime_protocol", False)
        unasked = found is Any or is_typeddict(found) or protocol
        yield Part(None if unasked else found, args, limits, None, None)


def expected_of(annotations: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Expected]:
    """What those annotations expect that there is something to check of.

    Args:
        annotations: by the names of arguments, also as texts.
        names: that texts use; a text that cannot be read with them is for a type checker alone, and expects nothing.
    """
    found = dict[str, Expected]()
    for name, kind in annotations.items():
        with contextlib.suppress(NameError, AttributeError, TypeError):
            found[name] = Expected(eval(kind, names) if isinstance(kind, str) else kind)
    return {name: one for name, one in found.items() if one.is_checked}


@functools.cache
def expected_arguments(function: Callable[..., Any]) -> dict[str, Expected]:
    """What a function expects of its arguments."""
    inner = inspect.unwrap(function)
    return expected_of(inspect.get_annotations(inner), inner.__globals__)


@functools.cache
def expected_fields(cls: type) -> dict[str, Expected]:
    """What a dataclass expects of its fields."""
    found = dict[str, Expected]()
    for base in reversed(cls.__mro__):
        found |= expected_of(inspect.get_annotations(base), getattr(sys.modules.get(base.__module__), "__dict__", {}))
    return {field.name: found[field.name] for field in fields(cls) if field.name in found}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function that somebody calls: its arguments are checked by their annotations, and become plain numbers."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            given = None
        if given is None:
            return function(*args, **kwargs)  # which says what is wrong
        given.arguments |= _plain(function, given.arguments)
        return function(*given.args, **given.kwargs)

    return call


def checked_arguments(function: Callable[..., Any], /, **given: Any) -> dict[str, Any]:
    """All arguments of a call by their names, with defaults, checked as :func:`checked` does."""
    bound = inspect.signature(function).bind(**given)
    bound.apply_defaults()
    return bound.arguments | _plain(function, bound.arguments)


def _plain(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    expected = expected_arguments(function).items()
    return {name: each.check(name, given[name]) for name, each in expected if name in given}


def check_fields(value: Any, error: type[AdvWrappersError] = ValueRangeError) -> None:
    """Check the fields of a dataclass that is being made by their annotations; they become plain numbers.

    Args:
        value: the dataclass, for its ``__post_init__``.
        error: class of the error.
    """
    for name, expected in expected_fields(value.__class__).items():
        given = getattr(value, name)
        if (plain := expected.check(name, given, error)) is not given:
            set_fields(value, **{name: plain})
