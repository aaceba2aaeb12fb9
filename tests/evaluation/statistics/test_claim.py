"""The claim that a mean return is at least so much: its verdicts, how often they are wrong, and what was not seen."""

from __future__ import annotations

import numpy as np
import pytest

from adv_wrappers.evaluation.statistics.claim import RobustnessClaim, interval_with_unseen
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval


def test_one_look_at_one_attack_is_the_interval_of_95_percent() -> None:
    returns = np.random.default_rng(0).normal(10.0, 2.0, 30)
    low, high = mean_interval(returns)
    assert RobustnessClaim(low).interval(returns) == (low, high)
    assert RobustnessClaim(low).verdict(returns) == "shown"
    assert RobustnessClaim(float(np.nextafter(low, 11))).verdict(returns) == "not shown"
    assert RobustnessClaim(high).verdict(returns) == "not shown"
    assert RobustnessClaim(float(np.nextafter(high, 20))).verdict(returns) == "below"


def test_looks_and_attacks_share_the_probability_of_an_error() -> None:
    returns = np.random.default_rng(0).normal(10.0, 2.0, 30)
    low, high = mean_interval(returns)
    assert RobustnessClaim(low, looks=2).verdict(returns) == "not shown"
    assert RobustnessClaim(low, attacks=9).verdict(returns) == "shown"  # all have to show it
    assert RobustnessClaim(high + 0.01, attacks=9).verdict(returns) == "not shown"  # any may refute it


@pytest.mark.parametrize(("chance", "steps", "looks"), [(0.5, 5, 8), (0.1, 1, 1)])
def test_verdicts_are_wrong_no_more_often_than_promised(chance: float, steps: int, looks: int) -> None:
    """At the mean itself, where each verdict is wrong: half of the error of 5% is for what is seen."""
    draw, claim = np.random.default_rng(0), RobustnessClaim(chance * steps, looks=looks)
    verdicts = [claim.verdict(draw.binomial(steps, chance, 100)) for _ in range(400)]
    assert verdicts.count("shown") <= 0.05 * 400 and verdicts.count("below") <= 0.05 * 400


def test_equal_returns_decide_where_others_would_have_been_seen() -> None:
    claim = RobustnessClaim(30.0)
    assert claim.verdict([40.0] * 71) == "not shown" and claim.verdict([40.0] * 72) == "shown"
    assert claim.verdict([20.0] * 71) == "not shown" and claim.verdict([20.0] * 72) == "below"
    assert RobustnessClaim(30.0, attacks=9).verdict([20.0] * 72) == "not shown"
    assert RobustnessClaim(30.0, lowest=0.0).verdict([40.0] * 10) == "not shown"  # the share of others may be 0.3
    assert RobustnessClaim(27.0, lowest=0.0).verdict([40.0] * 10) == "shown"
    assert RobustnessClaim(30.0, highest=50.0).verdict([10.0] * 10) == "below"
    assert RobustnessClaim(30.0, rare=0.01).verdict([40.0] * 100) == "not shown"


def test_there_is_no_verdict_on_fewer_than_ten() -> None:
    assert RobustnessClaim(0.0, lowest=0.0).verdict(range(1, 10)) == "not shown"
    assert RobustnessClaim(0.0, lowest=0.0).verdict(range(1, 11)) == "shown"


def test_the_interval_allows_for_what_was_not_seen() -> None:
    assert interval_with_unseen([1.0] * 20, 0.9) == (1.0, 1.0)  # nothing says how far others would be
    low, high = interval_with_unseen([1.0] * 20, 0.9, lowest=-1.0, highest=1.0)
    assert high == 1.0 and (low + 1) / 2 == pytest.approx(0.05 ** (1 / 20))  # the share that is seen in all 20
    low, high = interval_with_unseen([0.0] * 99 + [5.0], 0.9)
    assert low < 0.05 and high == pytest.approx(5 * 0.0466, rel=1e-2)  # Clopper and Pearson's for 1 of 100
    assert interval_with_unseen(range(10), 0.9) == mean_interval(range(10), 0.9)
