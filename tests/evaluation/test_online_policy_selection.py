"""Choosing among policies online, by the returns of those that were chosen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.policy_bandit import Exp3IX, OnlineSelection, select_online
from tests.every_case import every_case


def test_an_update_is_that_of_the_paper() -> None:
    bandit = Exp3IX(3, 100, (-10.0, 10.0))
    eta = math.sqrt(2 * math.log(3) / 300)
    assert bandit.learning_rate == pytest.approx(eta)
    np.testing.assert_allclose(bandit.probabilities, 1 / 3)
    bandit.update(1, 5.0)  # a loss of a quarter
    first = 0.25 / (1 / 3 + eta / 2)
    np.testing.assert_allclose(bandit.estimated_losses, [0, first, 0])
    weights = np.array([1, math.exp(-eta * first), 1])
    np.testing.assert_allclose(bandit.probabilities, weights / weights.sum())
    bandit.update(0, -10.0)
    np.testing.assert_allclose(bandit.estimated_losses, [1 / (1 / weights.sum() + eta / 2), first, 0])


def test_returns_outside_of_the_range_count_as_its_ends() -> None:
    for outside, end in ((1e9, 500.0), (-3.0, 0.0)):
        one, other = (Exp3IX(2, 10, (0.0, 500.0)) for _ in range(2))
        one.update(0, outside)
        other.update(0, end)
        np.testing.assert_array_equal(one.estimated_losses, other.estimated_losses)


def test_choices_are_drawn_by_the_probabilities() -> None:
    bandit = Exp3IX(2, 10, (0, 1), learning_rate=1.0)
    bandit.update(0, 0.0)
    drawn = [bandit.choose() for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(bandit.probabilities[1], abs=0.04) and bandit.probabilities[1] > 0.6


def test_probabilities_stay_numbers_however_much_was_lost() -> None:
    bandit = Exp3IX(2, 10, (0, 1), learning_rate=10.0)
    bandit.estimated_losses[:] = 1e6, 0.0
    assert bandit.probabilities.tolist() == [0.0, 1.0]


def regret_of(table: Any, **more: Any) -> float:
    return float(np.mean([select_online(table, (0, 1), seed=seed, **more).regret[-1] for seed in range(4)]))


@pytest.mark.slow
def test_the_regret_stays_near_its_order_where_the_best_policy_changes_and_is_far_from_that_of_chance() -> None:
    rounds, random = 600, np.random.default_rng(100)
    means = np.repeat([[0.9, 0.3], [0.1, 0.5], [0.1, 0.1]], rounds // 2, 1)  # the first is best over all rounds
    table = (random.uniform(size=means.shape) < means).astype(float)
    by_chance = table.sum(1).max() - table.mean(0).sum()
    order = math.sqrt(2 * 3 * rounds * math.log(3))
    assert regret_of(table) < order < by_chance
    assert regret_of(table, learning_rate=1e-9) == pytest.approx(by_chance, rel=0.15)  # which learns nothing


def test_only_the_return_of_the_chosen_policy_is_told() -> None:
    table = np.random.default_rng(0).uniform(size=(3, 50))
    found = select_online(table, (0, 1), seed=4)
    other = np.random.default_rng(1).uniform(size=table.shape)
    other[found.chosen, np.arange(50)] = found.received
    again = select_online(other, (0, 1), seed=4)
    np.testing.assert_array_equal(again.chosen, found.chosen)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
    assert not np.array_equal(again.regret, found.regret)
    assert not np.array_equal(select_online(table, (0, 1), seed=5).chosen, found.chosen)


def test_the_regret_is_to_the_best_policy_of_the_rounds_so_far() -> None:
    found = OnlineSelection(np.array([[5.0, 0.0, 0.0], [1.0, 2.0, 6.0]]), np.array([1, 0, 1]), np.full((3, 2), 0.5))
    assert found.received.tolist() == [1.0, 0.0, 6.0] and found.best == 1
    assert found.regret.tolist() == [4.0, 4.0, 2.0]


@every_case(
    ("make", "words"),
    [
        (lambda: Exp3IX(1, 10, (0, 1)), "policies must be an integer of at least 2, got 1"),
        (lambda: Exp3IX(2, 0, (0, 1)), "rounds must be an integer of at least 1, got 0"),
        (lambda: Exp3IX(2, 10, (0, 1), -1.0), "learning_rate"),
        (lambda: Exp3IX(2, 10, (1.0, 1.0)), r"return_range must go from a return to a higher one, got \(1.0, 1.0\)"),
        (lambda: Exp3IX(2, 10, (-1e308, 1e308)), "return_range must go from"),
        (lambda: Exp3IX(2, 10, (0.0, math.inf)), "return_range must be a list of 2, each a finite number"),
        (lambda: Exp3IX(2, 10, (0.0, 1.0, 2.0)), r"return_range must be a list of 2.*got \(0.0, 1.0, 2.0\)"),
        (lambda: Exp3IX(2, 10, 500), "return_range must be a list of 2.*got 500"),
        (lambda: Exp3IX(2, 10, (0, 1), seed=-1), "seed"),
        (lambda: Exp3IX(2, 10, (0, 1)).update(2, 0.5), "chosen must be an integer from 0 to 1, got 2"),
        (lambda: Exp3IX(2, 10, (0, 1)).update(0, math.nan), "episode_return must be a finite number, got nan"),
        (lambda: select_online([[1.0, 2.0]], (0, 1)), r"at least 2 by 1, got shape \(1, 2\)"),
        (lambda: select_online([[], []], (0, 1)), r"got shape \(2, 0\)"),
        (lambda: select_online([1.0, 2.0], (0, 1)), r"got shape \(2,\)"),
        (lambda: select_online([[1.0], [math.inf]], (0, 1)), "finite"),
    ],
)
def test_numbers_out_of_their_range_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueRangeError, match=words):
        make()
