"""Rows go into the section of what they vary, whatever wrote them."""

from __future__ import annotations

import json
import sqlite3

import pytest

import adv_wrappers as adv
from adv_wrappers.agent_report.rows_by_section import paired_difference, read_reports
from adv_wrappers.campaign import Plan, Store, run
from adv_wrappers.errors import StoreError, ValueRangeError


@pytest.fixture(scope="module")
def agent(played):
    (only,) = read_reports(played).agents
    return only


def names(curves):
    return {curve.attack: [row.name for row in curve.rows] for curve in curves}


def test_every_row_is_in_one_section(agent):
    assert [row.kind for row in agent.rows] == (
        ["clean"] + ["sweep"] * 5 + ["feature"] * 3 + ["moment"] * 2 + ["few"] * 3 + ["action"] + ["other"] * 2
    )
    parts = [*agent.sweeps[0].curves, *agent.sweeps[1].curves, *agent.features, *agent.moments, *agent.few]
    shown = sum(len(curve.rows) for curve in parts) + len(agent.actions + agent.daylight + agent.other)
    assert shown == len(agent.attacked)


def test_a_sweep_has_one_budget_and_its_curves_go_over_eps(agent):
    linf, l2 = agent.sweeps
    assert linf.budget == "every feature may move by eps" and "Euclidean" in l2.budget
    assert names(linf.curves) == {
        "fgsm": ["fgsm:eps=0.05", "fgsm:eps=0.2"],
        "noise": ["noise:eps=0.2", "noise:eps=0.4"],
    }
    assert names(l2.curves) == {"fgsm": ["fgsm:eps=0.3,norm=l2"]}


def test_the_strongest_attack_never_gets_weaker_with_eps(agent):
    strongest = agent.sweeps[0].strongest
    means = [row.row["mean_return"] for _, row in strongest]
    assert [eps for eps, _ in strongest] == [0.0, 0.05, 0.2, 0.4]
    assert means == sorted(means, reverse=True) and strongest[0][1].kind == "clean"
    assert strongest[3][1].name == "fgsm:eps=0.2"  # noise at 0.4 takes less


def test_what_a_section_varies_is_left_out_of_the_name(agent):
    assert names(agent.features) == {
        "fgsm": ["fgsm:eps=0.2,scale=1;0;0;0", "fgsm:eps=0.2,scale=0;0;1;0", "fgsm:eps=0.4,scale=0;0;1;0"]
    }
    assert {row.features for row in agent.features[0].rows} == {(0,), (2,)}
    assert [row.window for row in agent.moments[0].rows] == [(0, 20), (20, 40)]
    assert {curve.attack: [row.count for row in curve.rows] for curve in agent.few} == {
        "fgsm:eps=0.4": [3, 9],
        "fgsm:eps=0.4,when=strategic(0.1)": [3],
    }


def test_a_scale_of_all_usable_features_is_the_whole_budget(tmp_path):
    threats = ["noise:eps=0.1,scale=1;2;0;1", "noise:eps=0.1,scale=0;2;0;0"]  # the third never changes
    adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", threats, episodes=1, out=tmp_path)
    (agent,) = read_reports(tmp_path).agents
    assert [row.kind for row in agent.attacked] == ["sweep", "feature"]


def test_differences_are_of_paired_episodes():
    found = paired_difference([1.0, 2.0, 3.0], [3.0, 4.0, 5.0])
    assert (found.mean, found.low, found.high) == (-2.0, -2.0, -2.0) and found.caveat


def test_a_store_of_a_plan_has_a_report_a_seed_and_a_victim(tmp_path):
    victims = ["zoo:cartpole-dqn", "zoo:cartpole-ppo"]
    plan = Plan.of(victims=victims, threats=["noise:eps=0.1"], seeds=[0, 1], episodes=1)
    with Store(tmp_path / "plan.db") as store:
        run(plan, store)
    found = read_reports(tmp_path / "plan.db")
    assert {(one.victim, one.report.seed) for one in found.agents} == {(v, s) for v in victims for s in (0, 1)}


def test_rows_without_a_run_without_an_attack_are_named(folder):
    with sqlite3.connect(folder / "rows.db") as connection:
        connection.execute("UPDATE runs SET about = json_set(about, '$.device', 'cuda')")
        connection.execute("INSERT INTO runs SELECT 'other', json_set(about, '$.device', 'cpu') FROM runs")
        connection.execute("UPDATE cells SET run = 'other' WHERE name = 'noise:eps=0.4'")
    connection.close()
    found = read_reports(folder)
    assert found.left_out == ("noise:eps=0.4",) and len(found.agents[0].rows) == 16


def test_what_holds_no_rows_is_an_error(tmp_path, folder):
    with pytest.raises(ValueRangeError, match="no folder or file"):
        read_reports(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    with pytest.raises(ValueRangeError, match=r"holds no rows\.db"):
        read_reports(tmp_path)
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at as one" * 10)
    with pytest.raises(StoreError, match="no store"):
        read_reports(tmp_path / "text.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="is empty"):
        read_reports(tmp_path / "empty.db")
    Store(tmp_path / "new.db").close()
    with pytest.raises(ValueRangeError, match="no rows yet"):
        read_reports(tmp_path / "new.db")
    connection = sqlite3.connect(folder / "rows.db")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StoreError, match="newer release"):
        read_reports(folder)


def test_choices_are_those_beside_the_rows_of_a_folder(folder):
    (folder / "choices.json").write_text(json.dumps({"schema": 1, "unit": "in grey levels"}))
    assert read_reports(folder).agents[0].choices.unit == "in grey levels"
    assert not read_reports((folder / "rows.db").rename(folder / "another.db")).agents[0].choices.played
