"""Which policies of several are worth keeping."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.policy_bandit import non_dominated, value_of_game
from tests.every_case import every_case


@every_case(
    ("payoffs", "value"),
    [
        ([[1, -1], [-1, 1]], 0.0),
        ([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], 0.0),  # rock, paper, scissors
        ([[3, 1], [0, 2]], 1.5),  # (3 * 2 - 1 * 0) / (3 + 2 - 1 - 0)
        ([[2, 5], [1, 9]], 2.0),  # both players have a choice that is best whatever the other does
        ([[4, 4], [4, 4]], 4.0),
        ([[-7.0]], -7.0),
        ([[1], [5], [3]], 5.0),
        ([[1, 5, 3]], 1.0),
    ],
)
def test_the_value_of_games_that_are_known(payoffs: list[list[float]], value: float) -> None:
    assert value_of_game(np.array(payoffs, float)) == pytest.approx(value, abs=1e-12)


def test_no_mixture_of_a_grid_is_surer_of_more_than_the_value_and_one_comes_close() -> None:
    steps = 40
    mixtures = np.array([w for w in itertools.product(range(steps + 1), repeat=3) if sum(w) == steps]) / steps
    for payoffs in np.random.default_rng(0).integers(-5, 6, (30, 3, 4)).astype(float):
        surest = (mixtures @ payoffs).min(1).max()
        assert surest - 1e-9 <= value_of_game(payoffs) <= surest + 10 * 2 / steps


def test_what_half_of_each_other_beats_is_left_out_and_what_it_does_not_is_kept() -> None:
    assert non_dominated([[500, 0], [250, 250], [0, 500]]).tolist() == [True, False, True]
    assert non_dominated([[500, 0], [251, 251], [0, 500]]).tolist() == [True, True, True]
    assert non_dominated([[500, 300], [500, 299]]).tolist() == [True, False]


def test_of_equal_policies_the_first_is_kept() -> None:
    assert non_dominated([[1e4 / 3, 7], [1e4 / 3, 7], [1e4 / 3, 7]]).tolist() == [True, False, False]
    assert non_dominated([[0.0, 0.0]]).tolist() == [True]


def test_those_that_are_kept_dominate_the_others_and_not_one_another() -> None:
    for table in np.random.default_rng(1).integers(0, 20, (50, 6, 3)).astype(float):
        kept = non_dominated(table)
        assert kept.any()
        for policy in np.flatnonzero(~kept):
            assert value_of_game(table[kept] - table[policy]) >= -1e-9
        for policy in np.flatnonzero(kept) if kept.sum() > 1 else ():
            others = kept & (np.arange(len(table)) != policy)
            assert value_of_game(table[others] - table[policy]) < 0


@every_case(
    ("returns", "words"),
    [
        ([1.0, 2.0], r"\[policies, attacks\], at least 1 by 1, got shape \(2,\)"),
        (np.zeros((0, 3)), r"got shape \(0, 3\)"),
        (np.zeros((3, 0)), r"got shape \(3, 0\)"),
        ([[1.0, np.nan]], "finite"),
        ([[1.0, np.inf], [0.0, 0.0]], "finite"),
    ],
)
def test_returns_that_say_nothing_are_refused(returns: object, words: str) -> None:
    with pytest.raises(ValueRangeError, match=words):
        non_dominated(returns)  # type: ignore[arg-type]  # that is what is tested
