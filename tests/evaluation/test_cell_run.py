"""The best of several draws: other random numbers in the same episode, and what rows and warnings say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.report import Report
from tests.evaluation.agents import balancing, short
from tests.every_case import every_case

NOISE = "noise:eps=1.0"


def returns(report: Report, row: int = 1) -> Any:
    return np.array(report.threats[row]["returns"])


def test_the_best_draw_of_every_episode_counts() -> None:
    agent, how = balancing(), {"episodes": 4, "seed": 5, "num_envs": 3}
    drawn = [returns(adv.evaluate(agent, short, [NOISE], best_of=count, **how)) for count in (1, 4)]
    assert (drawn[1] <= drawn[0]).all() and drawn[1].mean() < drawn[0].mean()  # else draws would not differ
    again = adv.evaluate(agent, short, [NOISE], best_of=4, **{**how, "num_envs": 2})
    assert (returns(again) == drawn[1]).all()  # however many are played side by side
    row = again.threats[1]
    assert np.array_equal(np.min(row["draws"]["returns"], 0), row["returns"]) and len(row["draws"]["returns"]) == 4
    assert row["draws"]["losses"] is None and again.threats[0]["draws"] is None
    assert row["best_of"] == 4 and again.threats[0]["best_of"] == 1 and row["episodes"] == 4
    assert "(best of 4)" in str(again) and again.threats[0]["returns"] == [40.0] * 4


def test_a_threat_without_randomness_is_played_twice_and_warned_of() -> None:
    done: list[int] = []
    report = adv.evaluate(
        balancing(), short, ["flip:eps=0.5"], 3, best_of=50, progress=lambda name, i, n: done.append(i)
    )
    assert any("two draws of every episode are alike" in warning for warning in report.warnings)
    assert max(done) == 2 * 3
    assert not adv.evaluate(balancing(), short, [NOISE], 3, best_of=2).threats[1]["checks"]["alike"]


def test_draws_that_agree_by_chance_are_not_taken_for_all() -> None:
    """Where nearly all episodes last to their end, two draws of a random attack agree, and the worst case is later."""
    report = adv.evaluate(balancing(), short, ["noise:eps=1.0,when=bernoulli(0.5)"], 2, seed=1, best_of=60)
    drawn = np.array(report.threats[1]["draws"]["returns"])
    assert (drawn[:2] == 40).all() and drawn.shape == (60, 2) and drawn.min() < 40
    assert not report.threats[1]["checks"]["alike"]


def test_draws_are_given_by_threat_and_chosen_by_the_loss(tmp_path: Path) -> None:
    agent = balancing()
    how: dict[str, Any] = {"episodes": 3, "seed": 2, "measure": "2=0.2", "out": tmp_path, "resume": True}
    report = adv.evaluate(agent, short, [NOISE, "noise:eps=0.5"], best_of={NOISE: 5}, by="loss", **how)
    assert [row["best_of"] for row in report.threats] == [1, 5, 1] and (report.measure, report.by) == ("2=0.2", "loss")
    once = adv.evaluate(agent, short, [NOISE], **how)  # another report, as it is chosen by another number
    assert (np.array(report.threats[1]["losses"]) <= np.array(once.threats[1]["losses"])).all()
    assert adv.evaluate(agent, short, [NOISE], best_of={NOISE: 5}, by="loss", **how).threats[1] == report.threats[1]


@every_case(
    ("given", "said"),
    [
        ({"best_of": 0}, "best_of must be"),
        ({"best_of": {"pgd:eps=0.1": 3}}, "none of the threats"),
        ({"best_of": {NOISE: 0}}, f"best_of must be .*{NOISE}"),
        ({"by": "reward"}, "'return' or 'loss'"),
        ({"by": "loss"}, "give measure="),
    ],
)
def test_bad_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueRangeError, match=said):
        adv.evaluate(balancing(), short, [NOISE], **given)
