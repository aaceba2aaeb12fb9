"""The script of the model-based paper's tables: what counts as a win, what is halfway, and cells nobody measured."""

from __future__ import annotations

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.threats.presets import parse_threat
from tests.result_scripts import result_script, runs


@pytest.fixture(scope="module")
def script():
    with result_script("model_based") as module:
        yield module


def found(**more):
    table = {"none": runs(90, 90), "rand-U": runs(80, 70), "rand-B": runs(70, 60), "flip": runs(60, 80)}
    return {"eps": 0.2, "sweep": {}, "errors": {}, "table": {**table, "attack": runs(50, 61)}, **more}


def test_a_win_is_below_all_baselines_of_that_run(script):
    assert script.wins([50, 61], found()["table"]) == 1 and script.wins([59, 59], found()["table"]) == 2
    assert script.wins(None, found()["table"]) is None and script.wins([1, 1], {"flip": runs(2, 2)}) is None


def test_halfway_lies_between_the_best_baseline_and_the_planner_in_the_simulator(script):
    assert script.halfway(found(truth=runs(41, 41))) == "no"  # 65 and 41: 53, the attack leaves 55.5
    assert script.halfway(found(truth=runs(50, 50))) == "yes" and script.halfway(found()) == "-"


def test_cells_that_nobody_measured_say_so(script):
    rows = script.ROWS[:2]
    text = "\n".join(script.body({"machine": "a machine", "truth_runs": 4, "rows": {rows[0].name: found()}}, rows))
    lines = [line for line in text.splitlines() if line.startswith(f"| {rows[0].name} | 0.2")]
    assert [line.partition("| 0.2 | ")[2] for line in lines] == [
        "90 (0) | 75 (7) | 65 (7) | 70 (14) | 56 (8) | 0.87 | 1/2 | - | - | - | - | - |",
        "9 (0) | 8 (1) | 6 (1) | 7 (1) | 6 (1) | 0.87 | 1/2 | - | - | - | - |",
    ]
    assert f"| {rows[1].name} | no agent |" + " - |" * 12 in text
    assert "| the paper's | - | - | 1462 | 1126 | 1458 | - | - | - | 258 | 0.23 | - | - | - |" in text
    settings = {str(setting): runs(90, 40) for setting in rows[0].settings[1:]}
    assert len(settings) == 6 * (1 + 2) - 1  # of T = 1 and 5, n is at most 1 and 2
    part = found(grid=settings, truth=runs(10, 10))
    text = "\n".join(script.body({"machine": "a machine", "truth_runs": 4, "rows": {rows[0].name: part}}, rows))
    assert "| 1/2 | 17 of 18 settings | - | - | 10 (0) | no |" in text  # the best of a part of the grid is nothing
    assert f"- {rows[0].name}: the grid was not finished" in text and "take about 0 minutes of one core" in text
    assert (
        f"**{rows[0].name}: the learned model limits the attack.**" in text
        and "leaves 10; the attack leaves 56," in text
    )
    full = found(grid={**settings, "first": runs(40, 90)}, truth=runs(10, 10))
    text = "\n".join(script.body({"machine": "a machine", "truth_runs": 4, "rows": {rows[0].name: full}}, rows))
    assert "| 1/2 | 40 (0) | 0.62 | 2 of 2 | 10 (0) | no |" in text and "the grid was not finished" not in text
    cost = {"humanoid-stand": {"decisions": 500, "seconds": 10.0, "wanted": 3_000_000, "processor": "EPYC"}}
    text = "\n".join(script.body({"machine": "a machine", "truth_runs": 4, "rows": {}, "cost": cost}, rows))
    assert "humanoid-stand-sac`) takes 3 million decisions, which at 50 a second" in text and "are 17 hours" in text


def test_eps_is_where_the_attack_is_farthest_ahead(script):
    row = script.ROWS[0]
    cells = {
        f"{eps:g}": {"flip": runs(90), "noise": runs(80), "attack": runs(80 - gain)}
        for eps, gain in zip(row.radii, (5, 40, 30, 10), strict=True)
    }
    assert script.chosen(row, cells) == row.radii[1]


def test_all_threats_can_be_read_and_cells_hold_every_run(script):
    pytest.importorskip("dm_control")
    for row in script.ROWS:
        assert row.name in script.NAMES and row.has_victim is not row.task.startswith("humanoid")
        assert not row.has_victim or adv.load_victim(row.victim)
        texts = (script.truth(row, 0.1), f"{row.prefix}noise:kind={row.signs},eps=0.1", f"{row.prefix}flip:eps=0.1")
        assert all(parse_threat(text).on == row.on for text in texts)
    row = script.ROWS[script.NAMES.index("cartpole-balance, observations")]
    one = script.cell(row, "noise:kind=sign,eps=0.1", runs=2, best_of=3, num_envs=6)
    assert len(one["losses"]) == len(one["returns"]) == 2 and one["best_of"] == 3
    assert np.max(one["losses"]) <= 4000 and one["seconds"] > 0
