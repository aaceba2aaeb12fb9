"""Checks of single values by hand, where no annotation says what they may be (:mod:`adv_wrappers.utils.validation`).

Every message names what was expected and what came. NumPy's numbers are taken, and plain ones come back; True and False
are no numbers anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Iterable
from typing import Annotated

from adv_wrappers.errors import AdvWrappersError, ThreatError, ValueRangeError
from adv_wrappers.utils.validation import Expected, Limits, plain_number
from adv_wrappers.utils.validation import either as either
from adv_wrappers.utils.validation import finite_float as finite_float
from adv_wrappers.utils.validation import is_integer as is_integer
from adv_wrappers.utils.validation import is_number as is_number


def integer(
    name: str,
    value: object,
    low: int | None = None,
    high: int | None = None,
    *,
    floats: bool = False,
    error: type[AdvWrappersError] = ValueRangeError,
) -> int:
    """``value`` as an int; raises unless it is an integer in ``[low, high]``.

    Args:
        name: the argument's.
        value: the argument.
        low, high: limits, both included; None for none.
        floats: whole floats such as 3.0 are taken too, as texts and drawn parameters write them.
        error: class of the error.
    """
    plain = plain_number(value)
    if floats and isinstance(plain, float) and plain.is_integer():
        value = int(plain)
    found: int = _within(int, low, high).check(name, value, error)
    return found


def number(
    name: str,
    value: object,
    low: float | None = None,
    high: float | None = None,
    *,
    above: bool = False,
    error: type[AdvWrappersError] = ValueRangeError,
) -> float:
    """``value`` as a float; raises unless it is a finite number in ``[low, high]``.

    Args:
        name: the argument's.
        value: the argument.
        low, high: limits, both included; None for none.
        above: ``low`` itself is refused.
        error: class of the error.
    """
    found: float = _within(float, low, high, above).check(name, value, error)
    return found


@functools.lru_cache(typed=True)  # a whole limit and a float that equals it read differently in messages
def _within(kind: type, low: float | None, high: float | None, above: bool = False) -> Expected:
    """What reads a number in these limits: made once, as every row of a reset checks its seed."""
    return Expected(Annotated[kind, Limits(low, high, above)])


def check_choice(
    name: str, value: object, known: Collection[object], *, error: type[AdvWrappersError] = ValueRangeError
) -> None:
    """Raise unless ``value`` is one of ``known``; the message leaves None out, which says that nothing is given."""
    if not isinstance(value, Hashable) or value not in known:
        raise error(f"{name} must be {either(repr(one) for one in known if one is not None)}, got {value!r:.80}")


def check_names(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise :class:`ThreatError` unless ``what`` takes arguments of all the names that are given."""
    if unknown := sorted({*map(str, given)} - {*known}):
        raise ThreatError(f"{what} takes {', '.join(sorted(known)) or 'no arguments'}, not {', '.join(unknown)}")
