"""Checks of single values by hand, where no annotation says what they may be (:mod:`adv_wrappers.utils.limits`).

Every message names what was expected and what came. NumPy's numbers are taken, and plain ones come back; True and False
are no numbers anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable
from typing import TypeGuard

import numpy as np

from adv_wrappers.errors import AdvWrappersError, ThreatError, ValueRangeError


def is_integer(value: object) -> TypeGuard[int]:
    """Whether this is an integer of Python's own."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether this is an integer or a float of Python's own; NaN and infinity are."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain_number(value: object) -> object:
    """A number of NumPy as Python's own; anything else as it is."""
    return value.item() if isinstance(value, (np.integer, np.floating)) else value


def finite_float(value: object) -> float | None:
    """A number of Python's own as a float; None for anything else, infinity and integers that no float can hold."""
    if not is_number(value):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


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
    plain = int(plain) if floats and isinstance(plain, float) and plain.is_integer() else plain
    if not is_integer(plain) or not (low is None or low <= plain) or not (high is None or plain <= high):
        raise error(f"{name} must be an integer{limits_in_words(low, high)}, got {value!r:.80}")
    return plain


def number(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: bool = False,
    error: type[AdvWrappersError] = ValueRangeError,
) -> float:
    """``value`` as a float; raises unless it is a finite number in ``[low, high]``.

    Args:
        name: the argument's.
        value: the argument.
        low, high: limits, both included.
        above: ``low`` itself is refused.
        error: class of the error.
    """
    found = finite_float(plain_number(value))
    if found is None or not low <= found <= high or (above and found == low):
        raise error(f"{name} must be a finite number{limits_in_words(low, high, above)}, got {value!r:.80}")
    return found


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


def either(texts: Iterable[str]) -> str:
    """``a, b or c``."""
    *others, last = texts
    return f"{', '.join(others)} or {last}" if others else last


def limits_in_words(low: float | None, high: float | None, above: bool = False, below: bool = False) -> str:
    """Two limits in words; None and infinity are none."""
    ends = (
        None if end is None or math.isinf(end) else f"{end}" if is_integer(end) else f"{end:g}" for end in (low, high)
    )
    least, most = ends
    if least is None:
        return "" if most is None else f" of at most {most}"
    if above:
        return f" above {least}" + ("" if most is None else f" and {'below' if below else 'at most'} {most}")
    return f" of at least {least}" if most is None else f" from {least} to {most}"
