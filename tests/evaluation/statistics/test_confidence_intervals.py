"""Intervals and what they cannot show, and impact."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics import confidence_intervals
from tests.every_case import every_case


@every_case(
    ("freedom", "level", "table"),
    [
        (1, 0.95, 12.706), (2, 0.95, 4.303), (3, 0.95, 3.182), (9, 0.95, 2.262), (29, 0.95, 2.045), (30, 0.95, 2.042),
        (120, 0.95, 1.980), (10**7, 0.95, 1.960), (4, 0.9, 2.132), (7, 0.99, 3.499), (60, 0.99, 2.660),
    ],
)  # fmt: skip
def test_the_quantiles_are_those_of_the_tables(freedom: int, level: float, table: float) -> None:
    assert confidence_intervals.t_quantile(freedom, level) == pytest.approx(table, abs=6e-4)


def test_without_skewness_it_is_the_interval_of_student() -> None:
    values = np.array([-3.0, -1.0, 0.0, 1.0, 3.0]) + 10
    half = 2.77644511 * values.std(ddof=1) / 5**0.5
    assert confidence_intervals.mean_interval(values) == pytest.approx((10 - half, 10 + half))
    assert confidence_intervals.mean_interval([1.0, 2.0]) == pytest.approx((1.5 - 12.7062047 / 2, 1.5 + 12.7062047 / 2))


@pytest.mark.parametrize(("last", "cut"), [(2.8, False), (9.0, True)])
def test_with_skewness_its_ends_solve_the_equation_of_hall(last: float, cut: bool) -> None:
    values = np.array([1.0, 1.2, 1.5, 1.7, 2.0, 2.1, last])
    n, error, table = 7, values.std(ddof=1) / 7**0.5, 1.9431803
    g = ((values - values.mean()) ** 3).mean() / values.std(ddof=1) ** 3 / n**0.5
    assert (g > 0.8 / table) == cut and g > 0.1
    g = min(g, 0.8 / table)  # one outlier may not stretch it without end
    low, high = confidence_intervals.mean_interval(values, 0.9)
    for end, quantile in ((low, table), (high, -table)):
        t = (values.mean() - end) / error
        assert t + g / 3 * t**2 + g**2 / 27 * t**3 + g / 6 == pytest.approx(quantile)
    assert low < values.mean() < high and high - values.mean() > values.mean() - low
    assert high - low < 1.4 * 2 * table * error


def test_the_interval_moves_and_stretches_with_the_values() -> None:
    values = np.random.default_rng(1).lognormal(size=30)
    low, high = confidence_intervals.mean_interval(values)
    assert (low, high) == confidence_intervals.mean_interval(values.tolist())
    assert confidence_intervals.mean_interval(1000 - 3 * values) == pytest.approx((1000 - 3 * high, 1000 - 3 * low))
    for scale in (1e-300, 1e300):  # squares and cubes of such returns are no numbers
        assert confidence_intervals.mean_interval(values * scale) == pytest.approx((low * scale, high * scale))


@pytest.mark.parametrize(
    ("kind", "mean", "n", "least"),
    [
        ("normal", 0.0, 10, 0.93), ("normal", 0.0, 30, 0.93), ("normal", 0.0, 50, 0.93),
        ("lognormal", math.exp(0.5), 30, 0.90),
    ],
)  # fmt: skip
def test_the_interval_covers_as_often_as_it_says(kind: str, mean: float, n: int, least: float) -> None:
    draws = getattr(np.random.default_rng(3), kind)(size=(2000, n))
    inside = sum(low <= mean <= high for low, high in map(confidence_intervals.mean_interval, draws))
    assert inside / 2000 >= least


def test_a_stratum_alone_is_the_interval_of_its_seeds() -> None:
    values = np.random.default_rng(2).lognormal(size=12)
    assert confidence_intervals.stratified_interval([values], 0.9) == confidence_intervals.mean_interval(values, 0.9)


def test_equal_strata_are_as_sure_as_all_their_seeds() -> None:
    task = [-1.0, -0.5, 0.5, 1.0]
    low, high = confidence_intervals.stratified_interval([task, [v + 100 for v in task], [v - 40 for v in task]])
    half = confidence_intervals.t_quantile(9) * np.std(task, ddof=1) / 12**0.5  # three times three degrees of freedom
    assert (low, high) == pytest.approx((20 - half, 20 + half))


def test_the_interval_over_seeds_covers_as_often_as_it_says() -> None:
    rng, tasks = np.random.default_rng(4), np.array([[0.0], [500.0], [3000.0]])
    draws = tasks + np.array([[1.0], [100.0], [400.0]]) * rng.normal(size=(1000, 3, 5))
    inside = sum(low <= tasks.mean() <= high for low, high in map(confidence_intervals.stratified_interval, draws))
    assert inside / 1000 >= 0.93


@every_case("bad", [[], [[1.0]], [[1.0, 2.0], [3.0]], [[1.0, 2.0], []]])
def test_every_task_needs_two_seeds(bad: list[list[float]]) -> None:
    with pytest.raises(ValueRangeError, match=r"at least two seeds a task|at least one return, all finite, got \[\]"):
        confidence_intervals.stratified_interval(bad)


@every_case("value", [7.0, 0.1, -3e100])
@every_case("count", [1, 2, 3, 50])
def test_equal_values_are_their_own_interval(value: float, count: int) -> None:
    assert confidence_intervals.mean_interval([value] * count) == (value, value)
    row = confidence_intervals.summary([value] * count)
    assert (row["low"], row["high"], row["std"]) == (value, value, pytest.approx(0.0, abs=abs(value) * 1e-12))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([5.0], "fewer than 10 episodes: one episode misses an event of 1 in 20 in 95% of the runs"),
        ([5.0, 6.0], "fewer than 10 episodes: 2 episodes miss an event of 1 in 20 in 90% of the runs"),
        ([5.0] * 10, "all 10 returns are equal: 10 episodes miss an event of 1 in 20 in 60% of the runs"),
        ([5.0] * 27 + [1.0, 2.0, 2.0], "all returns but 3 of 30 are equal: 30 episodes miss an event of 1 in 20 in 21%"
                                       " of the runs"),
        ([5.0] * 500, "all 500 returns are equal: 500 episodes miss an event of 1 in 200 in 8% of the runs"),
    ],
)  # fmt: skip
def test_what_an_interval_cannot_show_is_said(values: list[float], reason: str) -> None:
    assert confidence_intervals.caveat(values) == reason


@pytest.mark.parametrize("values", [list(range(10)), [5.0] * 26 + [1.0, 2.0, 2.0, 3.0]])
def test_other_returns_have_no_caveat(values: list[float]) -> None:
    assert confidence_intervals.caveat(values) is None


def test_the_mark_is_explained_once() -> None:
    rows = [{"episodes": 30, "caveat": text} for text in ("all equal", None, "all but one equal")]
    assert [confidence_intervals.marked("1 .. 2", row)[0] for row in rows] == ["†", "1", "†"]
    (note,) = confidence_intervals.footnotes(rows)
    assert note.startswith("† no interval of 95% (all returns are equal, or all but 3 or fewer)") and "21%" in note
    assert (
        confidence_intervals.footnotes(rows[1:2]) == [] and confidence_intervals.footnotes([{"mean_return": 1.0}]) == []
    )  # and of old reports


def test_summary() -> None:
    row = confidence_intervals.summary([1.0, 2.0, 6.0])
    assert (row["mean_return"], row["median"], row["min"], row["max"]) == (3.0, 2.0, 1.0, 6.0)
    assert row["std"] == pytest.approx(7**0.5)


@every_case("bad", [[], [1.0, float("nan")], [float("inf")]])
def test_values_must_be_finite(bad: list[float]) -> None:
    for question in (
        confidence_intervals.mean_interval,
        confidence_intervals.caveat,
        lambda values: confidence_intervals.stratified_interval([values]),
    ):
        with pytest.raises(ValueRangeError, match="at least one return, all finite, got"):
            question(bad)


@every_case("level", [0.0, 1.0, 95.0, float("nan")])
def test_the_level_is_a_probability(level: float) -> None:
    for values in ([1.0], [1.0, 2.0]):
        with pytest.raises(ValueRangeError, match="level"):
            confidence_intervals.mean_interval(values, level)


def test_impact() -> None:
    assert confidence_intervals.impact(500.0, 100.0, 0.0) == pytest.approx(0.8)
    assert confidence_intervals.impact(21.0, -21.0, -21.0) == 1.0
    assert confidence_intervals.impact(100.0, 150.0, 0.0) == pytest.approx(-0.5)
    assert confidence_intervals.impact(100.0, 50.0, None) is None
    assert confidence_intervals.impact(-21.0, -21.0, -21.0) is None


@every_case(
    ("successes", "trials", "level", "expected"),
    [  # qbeta(level, successes, trials - successes + 1)
        (8, 10, 0.05, 0.4930987), (1, 10, 0.05, 0.005116197), (10, 10, 0.05, 0.7411344), (0, 10, 0.05, 0.0),
        (1000, 1000, 0.05, 0.05 ** 0.001), (1, 1, 0.5, 0.5), (500, 1000, 0.025, 0.4685492),
    ],
)  # fmt: skip
def test_clopper_and_pearsons_bound(successes: int, trials: int, level: float, expected: float) -> None:
    assert confidence_intervals.least_probability(successes, trials, level) == pytest.approx(expected, rel=1e-6)


def test_clopper_and_pearsons_bound_fails_as_rarely_as_stated() -> None:
    for p in (0.3, 0.9):
        counts = np.arange(31)
        weights = [math.comb(30, k) * p**k * (1 - p) ** (30 - k) for k in counts.tolist()]
        fails = sum(
            w
            for k, w in zip(counts.tolist(), weights, strict=True)
            if confidence_intervals.least_probability(k, 30, 0.05) > p
        )
        assert 0.01 < fails <= 0.05


def test_clopper_and_pearsons_bound_needs_numbers_in_their_range() -> None:
    with pytest.raises(ValueRangeError, match="successes must be"):
        confidence_intervals.least_probability(3, 2, 0.1)
    with pytest.raises(ValueRangeError, match="level must be"):
        confidence_intervals.least_probability(1, 2, 0.0)
