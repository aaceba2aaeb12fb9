"""Curves over eps: which rows make a point, with which interval, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval
from adv_wrappers.evaluation.statistics.curves import curves_of
from tests.evaluation.made_reports import made_report
from tests.every_case import every_case

CLEAN, WEAK, STRONG = [500.0, 400.0, 450.0], [300.0, 100.0, 250.0], [20.0, 30.0, 10.0]
SWEEP = {"none": CLEAN, "pgd:eps=0.2": STRONG, "pgd:eps=0.1": WEAK, "noise:eps=0.1": CLEAN}
ONE = made_report(SWEEP)
FURTHER = made_report({"none": [500.0], "pgd:eps=0.1": [290.0]}, seed=1)
OTHER = made_report({"none": [480.0] * 3, "pgd:eps=0.1": [40.0, 60.0, 50.0]}, victim="zoo:b")


def test_a_curve_begins_with_the_clean_run_and_goes_to_the_right() -> None:
    found = curves_of(ONE)
    assert [*found.curves] == [("", "pgd"), ("", "noise")] and found.notes == ()
    pgd = found.curves["", "pgd"]
    assert [(point.x, point.mean) for point in pgd] == [(0.0, 450.0), (0.1, pytest.approx(216.6667)), (0.2, 20.0)]
    assert mean_interval(WEAK)[0] < 0  # which CartPole does not return
    assert (pgd[1].low, pgd[1].high) == (0.0, mean_interval(WEAK)[1]) and (pgd[1].count, pgd[1].of) == (3, "episodes")
    assert pgd[1].caveat is not None and pgd[1].caveat.startswith("fewer than 10 episodes")


def test_seeds_of_one_victim_are_pooled_and_victims_are_not() -> None:
    point = curves_of([ONE, FURTHER]).curves["", "pgd"][1]
    assert (point.low, point.high) == (0.0, mean_interval([*WEAK, 290.0])[1]) and (point.count, point.episodes) == (
        4,
        4,
    )
    point = curves_of([ONE, FURTHER, OTHER]).curves["", "pgd"][1]
    means = [sum([*WEAK, 290.0]) / 4, 50.0]
    assert mean_interval(means)[0] < 0 and mean_interval(means)[1] > 500  # which CartPole does not return
    assert (point.low, point.high) == (0.0, 500.0) and (point.count, point.of, point.episodes) == (
        2,
        "victims",
        7,
    )
    apart = curves_of([ONE, FURTHER, OTHER], hue="victim", col="threat")
    assert [*apart.curves] == [("pgd", "zoo:a"), ("noise", "zoo:a"), ("pgd", "zoo:b")]
    assert apart.curves["pgd", "zoo:b"][0].mean == 480.0  # the clean run of that victim


def test_what_a_point_may_be_of() -> None:
    regret = curves_of(ONE, y="regret").curves["", "pgd"]
    assert [point.mean for point in regret] == [0.0, pytest.approx(450 - 216.6667), 430.0]
    assert (regret[1].low, regret[1].high) == mean_interval([200.0, 300.0, 200.0])  # episodes are paired
    impact = curves_of(ONE, y="impact").curves["", "pgd"]
    assert impact[2].mean == pytest.approx(430 / 450)
    changed = curves_of([ONE, FURTHER], y="action_change").curves["", "pgd"]
    assert [(point.x, point.mean, point.of) for point in changed] == [(0.1, 0.5, "rows"), (0.2, 0.5, "rows")]
    assert (changed[1].low, changed[1].caveat) == (None, None)  # one figure has no interval
    assert curves_of(ONE, y="ssim").curves["", "pgd"][1].mean == 0.9
    assert curves_of(ONE, y="attacked").curves["", "pgd"][1].mean == 1.0


def test_other_columns_to_go_over() -> None:
    rows = {"none": CLEAN, "pgd:eps=0.1,steps=5": WEAK, "pgd:eps=0.1,steps=50": STRONG, "noise:eps=0.1": CLEAN}
    found = curves_of(made_report(rows), x="steps")
    assert {label: [point.x for point in points] for (_, label), points in found.curves.items()} == {
        "pgd:eps=0.1": [5, 50]
    }
    assert found.notes == ("1 of 3 attacked rows have no steps and are left out",)
    by_seed = curves_of(
        [made_report({"none": CLEAN, "flip": [float(seed)] * 3}, seed=seed) for seed in (4, 2)], x="seed"
    )
    assert [(point.x, point.mean) for point in by_seed.curves["", "flip"]] == [(2.0, 2.0), (4.0, 4.0)]


@every_case(
    ("how", "message"),
    [
        ({"hue": "agent"}, "hue must be 'threat', 'victim', 'env' or 'seed', got 'agent'"),
        ({"col": "eps"}, "col must be 'threat', .* got 'eps'"),
        ({"y": "score"}, "no row has 'score' for y=: there are return, length, attacked, regret, impact, "),
        ({"y": "loss"}, "no row has 'loss' for y"),
        ({"y": "threat"}, "no row has 'threat' for y"),
        (
            {"x": "steps"},
            "no row has 'steps' for x=: expected eps, seed, training_steps, or .* threats are pgd:eps=0.2",
        ),
        ({"hue": "victim"}, "rows of pgd and noise fall together in the curve 'zoo:a': give hue='threat' or col='thr"),
    ],
)
def test_columns_that_are_not_there_and_rows_that_fall_together(how: dict[str, str], message: str) -> None:
    with pytest.raises(ValueRangeError, match=message):
        curves_of(ONE, **how)


def test_environments_are_not_averaged_and_clean_rows_alone_are_no_curve() -> None:
    hopper = made_report({"none": [2.0], "pgd:eps=0.1": [1.0]}, env="Hopper-v5")
    with pytest.raises(ValueRangeError, match="rows of CartPole-v1 and Hopper-v5 fall together in the curve 'pgd'"):
        curves_of([ONE, hopper])
    assert len(curves_of([ONE, hopper], col="env").curves) == 3
    with pytest.raises(ValueRangeError, match="there are no attacked rows, only clean ones"):
        curves_of(made_report({"none": CLEAN}))


def test_the_table_and_json_have_every_point(tmp_path: Path) -> None:
    found = curves_of([ONE, OTHER], hue="victim", col="threat")
    shown = str(found)
    assert "zoo:b" in shown and "3 episodes" in shown and "† " in shown and "fewer than 10 episodes" in shown
    rows = json.loads(json.dumps(found.rows(), allow_nan=False))
    assert len(rows) == 7 and rows[-1] == {
        "threat": "pgd", "victim": "zoo:b", "eps": 0.1, "mean": 50.0, "low": mean_interval([40.0, 50.0, 60.0])[0],
        "high": mean_interval([40.0, 50.0, 60.0])[1], "count": 3, "of": "episodes", "episodes": 3,
        "caveat": "fewer than 10 episodes: 3 episodes miss an event of 1 in 20 in 86% of the runs",
    }  # fmt: skip
    found.plot(tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_bytes().startswith(b"<?xml")


def test_the_table_is_written_and_printed() -> None:
    found = curves_of(ONE, col="victim")
    assert r"\toprule" in found.to_latex() and found.to_markdown().startswith("**return over eps**")
    assert found.table().columns == ("victim", "threat", "eps", "return", "95% interval", "over")
    assert "pgd" in str(found) and "object at" not in str(found.table())
