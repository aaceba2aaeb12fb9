"""How many episodes a difference needs, and which differences a report says it of."""

from __future__ import annotations

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.checked_row import CheckedRow
from adv_wrappers.evaluation.rows.report_warnings import find_warnings, too_few_episodes
from adv_wrappers.evaluation.statistics.confidence_intervals import MOST_COUNTED, POWER, episodes_needed, t_quantile
from adv_wrappers.victims import Victim
from tests.every_case import every_case

UNIT = np.array([-1.0, 1.0]) * np.sqrt(0.5)  # a mean of zero, a deviation of one
WIDE = np.array([0.0, 100.0] * 4)


def attack(name: str, victim: Victim, returns: np.ndarray) -> CheckedRow:
    return CheckedRow(f"{name}:eps=0.1", (adv.threat(name, victim, eps=0.1),), returns)


@every_case(
    ("mean", "number"),
    [(0.05, 3142), (0.1, 787), (0.2, 199), (0.3, 90), (0.5, 34), (0.7, 19), (1, 10), (1.5, 6), (2, 5), (3, 4)],
)
def test_the_number_is_that_of_the_noncentral_distribution(mean: float, number: int) -> None:
    """The numbers are those of ``scipy.stats.nct`` with a two-sided test at 5% and a power of 80%."""
    assert episodes_needed(UNIT + mean) == episodes_needed(UNIT - mean) == number


def test_a_paired_test_has_the_power() -> None:
    """Of 4000 samples of so many differences 80% have an interval of Student's t without zero."""
    count = episodes_needed(UNIT + 0.5)
    assert count is not None
    drawn = np.random.default_rng(0).normal(0.5, 1.0, (4000, count))
    error = drawn.std(1, ddof=1) / np.sqrt(count)
    found = np.abs(drawn.mean(1)) > t_quantile(count - 1) * error
    assert abs(found.mean() - POWER) < 0.03


def test_numbers_at_the_edges() -> None:
    assert episodes_needed([1.0, 1.0, 1.0]) == 2 and episodes_needed([0.0, 0.0]) is None
    assert episodes_needed(UNIT + 0.01) is None and episodes_needed(UNIT + 0.03) is not None
    assert episodes_needed(UNIT + 0.5, power=0.9) > episodes_needed(UNIT + 0.5) > episodes_needed(UNIT + 0.5, 0.6)  # type: ignore[operator]
    for bad, message in (([1.0], "two"), ([1.0, np.nan], "finite")):
        with pytest.raises(ValueRangeError, match=message):
            episodes_needed(bad)
    for power, level in ((0.5, 0.95), (1.0, 0.95), (0.8, 1.0)):
        with pytest.raises(ValueRangeError, match="power"):
            episodes_needed(UNIT, power, level)


def test_an_attack_that_may_have_taken_nothing(victim: Victim) -> None:
    clean = CheckedRow("none", (), np.full(8, 100.0))
    noise = attack("noise", victim, np.array([100.0] * 6 + [40.0, 40.0]))
    [said] = too_few_episodes([clean, noise])
    assert said in find_warnings([clean, noise], victim)
    needed = episodes_needed(clean.returns - noise.returns)
    assert (
        said.startswith("too few episodes") and f"noise:eps=0.1 against none (85 against 100, about {needed} " in said
    )
    assert too_few_episodes([clean, attack("noise", victim, np.full(8, 60.0))]) == []  # established
    assert too_few_episodes([clean, attack("noise", victim, noise.returns + 12)]) == []  # nobody claims 3%
    assert too_few_episodes([clean, attack("noise", victim, clean.returns + 15 * (WIDE > 0))]) == []  # more than clean
    assert too_few_episodes([noise]) == [] == too_few_episodes([clean])


def test_the_strongest_attack_and_the_second_strongest(victim: Victim) -> None:
    clean = CheckedRow("none", (), np.full(8, 500.0))
    first, second = attack("pgd", victim, WIDE), attack("fgsm", victim, 160 - WIDE)
    [said] = too_few_episodes([clean, second, first])
    assert "pgd:eps=0.1 against fgsm:eps=0.1 (50 against 110" in said and "against none" not in said
    third = attack("max-diff", victim, 170 - WIDE)  # not the two strongest: nobody claims which of these is
    assert "max-diff" not in too_few_episodes([clean, third, second, first])[0]
    assert too_few_episodes([clean, first, attack("fgsm", victim, 110 - WIDE)]) == []  # a small difference
    assert too_few_episodes([clean, first, attack("fgsm", victim, WIDE + 60)]) == []  # established, by pairs
    assert str(MOST_COUNTED) not in said
