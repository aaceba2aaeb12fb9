"""Numbers that users give: what is taken, what comes back, and what the message says."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import numpy as np
import pytest

from adv_wrappers.errors import BudgetError, SpaceError, ThreatError, ValueRangeError
from adv_wrappers.utils.checks import (
    check_choice,
    check_names,
    finite_float,
    integer,
    is_integer,
    is_number,
    number,
)
from tests.every_case import every_case

NO_NUMBERS = [True, False, None, "1", b"1", [1], (1,), {}, 1j, math.nan, np.array([1, 2])]


def test_plain_numbers_come_back():
    assert integer("a", 3) == integer("a", np.int64(3)) == integer("a", np.uint8(3)) == integer("a", 3.0, floats=True)
    assert {type(integer("a", value)) for value in (3, np.int64(3))} == {int}
    assert number("a", np.float32(0.5)) == number("a", 0.5) and number("a", np.int64(2)) == 2.0
    assert {type(number("a", value)) for value in (3, 0.5, np.float64(0.5))} == {float}


@every_case("value", [*NO_NUMBERS, 2.5, np.float32(2.5), 3.0, 10**400])
def test_what_is_no_integer_within_limits(value):
    with pytest.raises(ValueRangeError, match=r"^a must be an integer from 0 to 5, got .{1,80}$"):
        integer("a", value, 0, 5)


@every_case("value", [*NO_NUMBERS, math.inf, -math.inf, 10**400, 11, -1e-9])
def test_what_is_no_number_within_limits(value):
    with pytest.raises(ValueRangeError, match=r"^a must be a finite number from 0 to 10, got .{1,80}$"):
        number("a", value, 0, 10)


@every_case(
    ("call", "message"),
    [
        (lambda: integer("a", "x"), "a must be an integer, got 'x'"),
        (lambda: integer("a", -1, 0), "a must be an integer of at least 0, got -1"),
        (lambda: integer("a", 6, None, 5), "a must be an integer of at most 5, got 6"),
        (lambda: number("a", "x"), "a must be a finite number, got 'x'"),
        (lambda: number("a", -1, 0), "a must be a finite number of at least 0, got -1"),
        (lambda: number("a", 6, high=5), "a must be a finite number of at most 5, got 6"),
        (lambda: number("a", 0, 0, above=True), "a must be a finite number above 0, got 0"),
        (lambda: number("a", 2, 0, 1, above=True), "a must be a finite number above 0 and at most 1, got 2"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueRangeError, match=f"^{re.escape(message)}$"):
        call()


def test_the_error_is_the_callers():
    for check in (integer, number):
        with pytest.raises(BudgetError, match="eps must be"):
            check("eps", "much", error=BudgetError)


def test_limits_are_included():
    assert integer("a", 0, 0, 5) == 0 and integer("a", 5, 0, 5) == 5
    assert number("a", 0, 0, 5) == 0 and number("a", 5, 0, 5) == 5 == number("a", 5, 0, 5, above=True)


def test_questions():
    assert is_integer(3) and is_number(3) and is_number(0.5) and is_number(math.inf)
    assert not any(is_integer(value) for value in (True, 3.0, np.int64(3), "3"))
    assert not any(is_number(value) for value in (True, np.int64(3), "3", None))
    assert (
        finite_float(3) == 3.0
        and finite_float(math.nan) is finite_float(-math.inf) is finite_float(10**400) is finite_float(True) is None
    )


@every_case(
    ("known", "said"),
    [(("a",), "'a'"), (("a", "b"), "'a' or 'b'"), ({"a": 1, "b": 2, None: 3}, "'a' or 'b'")],
)
def test_choices(known: Collection[object], said: str) -> None:
    check_choice("word", "a", known)
    for wrong in ("c", 1, ["a"]):
        with pytest.raises(SpaceError, match=re.escape(f"word must be {said}, got {wrong!r}")):
            check_choice("word", wrong, known, error=SpaceError)


def test_names() -> None:
    check_names("noise", {"eps": 1}, ("p", "eps"))
    with pytest.raises(ThreatError, match=r"^noise takes eps, p, not a, q$"):
        check_names("noise", ["q", "p", "a"], ("p", "eps"))
