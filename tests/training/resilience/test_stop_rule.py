"""The stop rule of the paper's section 5."""

from __future__ import annotations

import pytest

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.resilience.measurement import StopRule


def first_stop(episodes: list[tuple[float, float]], r_max: float = 500.0) -> int | None:
    """Number of the episode, from 1, at which the rule is first met."""
    rule = StopRule(r_max)
    return next((i for i, row in enumerate(episodes, 1) if rule.add(*row)), None)


def test_it_takes_a_mean_of_a_hundred_that_stays_for_two_hundred() -> None:
    assert first_stop([(9.0, 5.0)] * 299) is None
    assert first_stop([(9.0, 5.0)] * 300) == 300


def test_perturbations_that_change_put_it_off() -> None:
    falling = [(9.0, 10.0 - i / 100) for i in range(500)]  # a mean falls by 2 in 200 episodes
    assert first_stop(falling) is None
    assert first_stop([*falling, *[(9.0, 5.0)] * 1000]) == 701  # means since episode 501 are within 0.5
    slowly = [(9.0, 10.0 - i / 500) for i in range(500)]  # by 0.4
    assert first_stop(slowly) == 300


def test_the_regret_has_to_be_the_highest_so_far() -> None:
    better = [(9.0, 5.0)] * 250
    worse = [(60.0, 5.0)] * 400
    assert first_stop([*better, *worse]) is None
    assert first_stop([*better, *[(13.0, 5.0)] * 400]) == 300  # within 1% of r_max


def test_it_remembers_that_it_was_met() -> None:
    rule = StopRule(500.0)
    for _ in range(300):
        rule.add(9.0, 5.0)
    rule.add(500.0, 50.0)
    assert rule.met and rule.episodes == 301
