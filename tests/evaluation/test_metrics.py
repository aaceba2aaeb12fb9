"""Intervals, regret and impact."""

from __future__ import annotations

import numpy as np
import pytest

from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.evaluation import metrics
from adv_wrappers.evaluation.environments import minimum_of


def test_the_interval_is_repeatable_and_holds_the_mean() -> None:
    values = np.random.default_rng(1).normal(10, 2, 50)
    low, high = metrics.interval(values)
    assert (low, high) == metrics.interval(values.tolist())
    assert low < values.mean() < high


def test_the_interval_is_that_of_the_normal_limit() -> None:
    values = np.random.default_rng(2).normal(0, 3, 400)
    low, high = metrics.interval(values)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.05)


def test_the_interval_covers_as_often_as_it_says() -> None:
    draws = np.random.default_rng(3).normal(size=(200, 40))
    inside = sum(low <= 0 <= high for low, high in (metrics.interval(row, resamples=500) for row in draws))
    assert 0.88 <= inside / 200 <= 0.98


def test_many_episodes_are_resampled_in_pieces() -> None:
    values = np.random.default_rng(4).normal(size=3000)
    low, high = metrics.interval(values, resamples=2000)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 3000**0.5, rel=0.1)


def test_one_value_is_its_own_interval() -> None:
    row = metrics.summary([7.0])
    assert (row["low"], row["high"], row["std"]) == (7.0, 7.0, 0.0)


def test_summary() -> None:
    row = metrics.summary([1.0, 2.0, 6.0])
    assert (row["mean_return"], row["median"], row["min"], row["max"]) == (3.0, 2.0, 1.0, 6.0)
    assert row["std"] == pytest.approx(7**0.5)


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [float("inf")]])
def test_values_must_be_finite(bad: list[float]) -> None:
    with pytest.raises(ValueRangeError):
        metrics.interval(bad)


def test_regret_and_impact() -> None:
    assert metrics.regret(500.0, 100.0) == 400.0
    assert metrics.impact(500.0, 100.0, 0.0) == pytest.approx(0.8)
    assert metrics.impact(21.0, -21.0, -21.0) == 1.0
    assert metrics.impact(100.0, 150.0, 0.0) == pytest.approx(-0.5)
    assert metrics.impact(100.0, 50.0, None) is None
    assert metrics.impact(-21.0, -21.0, -21.0) is None


@pytest.mark.parametrize(
    ("id", "lowest"),
    [
        ("CartPole-v1", 0.0), ("PongNoFrameskip-v4", -21.0), ("ale_py:ALE/Pong-v5", -21.0), ("MountainCar-v0", -200.0),
        ("Hopper-v5", None),
    ],
)  # fmt: skip
def test_minimum_of(id: str, lowest: float | None) -> None:
    assert minimum_of(id) == lowest
