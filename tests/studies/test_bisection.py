"""A bisection finds the least size that breaks an agent, and ends."""

from __future__ import annotations

import pytest

from adv_wrappers.studies.bisection import Bisection, bracket

LADDER = Bisection([0.01, 0.1, 1.0], start=0.1, close=1.2, by_ratio=True, least=0.001)


def found(search: Bisection, least: float) -> dict[float, bool]:
    """What is tried, in its order, of an agent that breaks from a size on."""
    tried = dict[float, bool]()
    while (size := search.next(tried)) is not None:
        assert size not in tried
        tried[size] = size >= least
    return tried


@pytest.mark.parametrize("least", [0.0003, 0.002, 0.03, 0.1, 0.7, 1.0])
def test_the_least_size_that_breaks_is_found_as_closely_as_asked(least: float) -> None:
    low, high = bracket(found(LADDER, least))
    assert high is not None
    if least <= LADDER.least:
        assert low is None and high / LADDER.least <= 1.2
    else:
        assert (low or LADDER.least) < least <= high <= 1.2 * (low or LADDER.least)


def test_nothing_breaks_it() -> None:
    assert [*found(LADDER, 2.0)] == [0.1, 1.0]


def test_between_whole_numbers_there_are_no_others() -> None:
    steps = Bisection([8.0], start=8.0, close=1, whole=True)
    assert bracket(found(steps, 3.0)) == (2.0, 3.0)
    assert bracket(found(Bisection([8.0], 8.0, 1.05, by_ratio=True, whole=True, least=0.5), 3.0)) == (2.0, 3.0)


def test_numbers_of_three_digits_are_the_finest() -> None:
    assert bracket(found(Bisection([5.0], start=5.0, close=1e-9), 1.234)) == (1.23, 1.24)
