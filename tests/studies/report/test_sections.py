"""Rows go into the section of what they vary, whatever wrote them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import StoreError, ValueRangeError
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.studies import Plan, Store, run
from adv_wrappers.studies.report.agent_article import article_of
from adv_wrappers.studies.report.choices import ReportChoices
from adv_wrappers.studies.report.page import page_of
from adv_wrappers.studies.report.sections import StoredReports, read_reports, sorted_report
from tests.episodes import short_episodes_of
from tests.evaluation.made_reports import made_row
from tests.every_case import every_case
from tests.studies.report.planted import agent_for, showing

ROOM = spaces.Discrete(3)


@pytest.fixture(scope="module")
def agent(played):
    (only,) = read_reports(played).agents
    return only


def labels(rows):
    return [row.label for row in rows]


def test_every_row_is_in_one_section(agent):
    assert [row.kind for row in agent.rows] == (
        ["clean"]
        + ["sweep"] * 5
        + ["feature"] * 3
        + ["moment"] * 2
        + ["few"] * 2
        + ["other", "action", "other", "other"]
    )
    sections = [
        section
        for section in article_of(agent, "a0", False).sections
        if section.key in {row.kind for row in agent.attacked} - {"sweep"}
    ]
    shown = [len(section.parts[1].lines) for section in sections]
    assert sum(shown) + len(agent.of("sweep")) == len(agent.attacked)


def test_a_sweep_has_one_budget_and_goes_over_eps(agent):
    linf, l2 = agent.sweeps
    assert linf.budget == "every feature may move by eps, in its own unit" and "Euclidean" in l2.budget
    assert labels(linf.rows) == ["fgsm:eps=0.05", "fgsm:eps=0.2", "noise:eps=0.2", "noise:eps=0.4"]
    assert [row.attack for row in linf.rows] == ["fgsm", "fgsm", "noise", "noise"]
    assert labels(l2.rows) == ["fgsm:eps=0.3,norm=l2"] and l2.rows[0].attack == "fgsm"


def test_the_strongest_attack_never_gets_weaker_with_eps(agent):
    strongest = agent.sweeps[0].strongest
    means = [row.row["mean_return"] for row in strongest.values()]
    assert [*strongest] == [0.0, 0.05, 0.2, 0.4]
    assert means == sorted(means, reverse=True) and strongest[0.0].kind == "clean"
    assert strongest[0.4].name == "fgsm:eps=0.2"  # noise at 0.4 takes less


def test_a_label_says_in_words_what_may_change(agent):
    assert labels(agent.of("feature")) == [
        "fgsm:eps=0.2 on feature 0", "fgsm:eps=0.2 on feature 2", "fgsm:eps=0.4 on feature 2",
    ]  # fmt: skip
    assert labels(agent.of("moment")) == ["fgsm:eps=0.4 in steps 0 to 19", "fgsm:eps=0.4 in steps 20 to 39"]
    assert labels(agent.of("few")) == ["fgsm:eps=0.4 in at most 3 steps", "fgsm:eps=0.4 in at most 9 steps"]
    assert "fgsm:eps=0.4,when=strategic(0.1)&atmost(3)" in labels(agent.of("other"))


def test_a_scale_of_all_features_that_change_is_the_whole_budget():
    rows = [row(f"noise:eps=0.1,scale={units}", -6.0, [layer(within=linf(0.1, scale=units))])
            for units in ([1, 2, 0, 1], [0, 2, 0, 0])]  # fmt: skip
    found = sorted_report(made(*rows), ReportChoices(scale=(1.0, 2.0, 0.0, 1.0)))  # the third never changes
    assert [one.kind for one in found.attacked] == ["sweep", "feature"]
    assert [one.kind for one in sorted_report(made(*rows)).attacked] == ["feature", "feature"]


def test_a_store_of_a_plan_has_a_report_a_seed_and_a_victim(tmp_path):
    victims = ["zoo:cartpole-dqn", "zoo:cartpole-ppo"]
    plan = Plan.of(victims=victims, threats=["noise:eps=0.1"], seeds=[0, 1], episodes=1)
    with Store(tmp_path / "plan.db") as store, short_episodes_of(5, "CartPole-v1"):
        run(plan, store)
    found = read_reports(tmp_path / "plan.db")
    assert {(one.victim, one.report.seed) for one in found.agents} == {(v, s) for v in victims for s in (0, 1)}


def test_a_folder_of_a_suite_has_the_fresh_episodes_beside_the_others(played, tmp_path):
    for part in ("evaluation", "fresh"):
        shutil.copytree(played, tmp_path / part)
    found = read_reports(tmp_path)
    assert found.path == tmp_path
    assert [one.episodes for one in found.agents] == ["seed 0", "seed 0, fresh episodes"]


def test_an_attack_on_a_key_is_none_on_all_features(tmp_path):
    space = spaces.Dict(goal=spaces.Box(-1, 1, (2,)), image=spaces.Box(0, 255, (3, 3, 1), np.uint8), room=ROOM)
    threats = [
        "noise:eps=0.1,at=goal", "noise:eps=0.2,at=goal", "noise:eps=0.2,scale=0;1,at=goal", "noise:eps=8,at=image",
        "noise:norm=valid,at=room", "noise:eps=1,norm=l0,at=room,when=bernoulli(0.5)",
        "stuck-sensor:features=1,at=goal",
    ]  # fmt: skip
    adv.evaluate(agent_for(space), lambda: showing(space), threats, episodes=1, out=tmp_path)
    (agent,) = read_reports(tmp_path).agents
    assert [(row.kind, row.keys) for row in agent.attacked] == [
        ("sweep", ("goal",)), ("sweep", ("goal",)), ("feature", ("goal",)), ("sweep", ("image",)),
        ("entries", ("room",)), ("entries", ("room",)), ("fault", ("goal",)),
    ]  # fmt: skip
    assert [sweep.budget.partition(" may")[0] for sweep in agent.sweeps] == [
        "every feature of goal", "every feature of image",
    ]  # fmt: skip
    labels = [row.label for row in agent.attacked]
    assert labels[2].endswith("on feature 1 of goal") and labels[6] == "stuck-sensor on feature 1 of goal"
    assert labels[4:6] == ["noise, any value of room", "noise, 1 entry of room at 50% of steps"]
    chosen = sorted_report(agent.report, ReportChoices(at=("goal",), folder=tmp_path))
    assert [row.label for row in chosen.attacked[:4]] == [
        "noise:eps=0.1", "noise:eps=0.2", "noise:eps=0.2 on feature 1 of goal", "noise:eps=8,at=image",
    ]  # fmt: skip
    page = page_of(read_reports(tmp_path), "page").decode()
    assert "all features" not in page and "all of goal" in page and "all of image" in page


def row(threat, mean, layers, **more):
    return made_row(
        threat, [mean - 1.0, mean, mean + 1.0], layers=layers, **{"action_change": None, "distances": {}, **more}
    )


def layer(how="noise", within=None, when=None, on="observation"):
    return {"type": "threat", "on": on, "how": {"type": how}, "within": within, "when": when}


def dynamics(values, at, when=None, how="fixed-dynamics"):
    made = layer(how, {"type": "valid"}, when, "dynamics")
    return {**made, "how": {"type": how, "values": values}, "at": at}


def linf(eps, **more):
    return {"type": "linf", "eps": eps, **more}


def made(*rows, **more):
    """A report of rows that nothing played."""
    about = {
        "versions": {"adv_wrappers": "0"}, "seed": 0, "episode_seeds": (1, 2, 3), "git": None, "device": "cpu",
        "victim": {"ref": None, "fingerprint": "ab" * 32, "select": "mode"}, "env": {"id": "Some-v0", "kwargs": {}},
        "episodes": 3, "num_envs": 3, "warnings": (),
    }  # fmt: skip
    return Report(**{**about, "threats": (row("none", -5.0, []), *rows), **more})


NEWEST = {"type": "newest", "within": linf(0.1), "axis": 0}


@every_case(
    ("found", "kind"),
    [
        (row("brightness", -6.0, [layer("brightness", {"type": "valid"})]), "daylight"),
        (row("noise:eps=0.1,newest=true", -6.0, [layer(within=NEWEST)]), "sweep"),
        (row("action-noise:eps=0.1", -6.0, [layer("action-noise", linf(0.1), on="action")]), "action"),
        (row("fixed-dynamics:values=2,at=mass", -6.0, [dynamics(2.0, "mass")]), "dynamics"),
        (row("noise:eps=2,norm=l0", -6.0, [layer(within={"type": "l0", "k": 2})]), "entries"),
        (row("<mine>:eps=0.1", -6.0, [None]), "other"),
        (row("a kind of another release", -6.0, [{"type": "threat", "on": "observation"}]), "other"),
        (row("noise", -6.0, [layer(within=linf(0.1), when={"type": "bernoulli", "p": 0.5})]), "other"),
        (row("noise", -6.0, [layer(within=linf(0.1), when={"type": "always"})]), "sweep"),
    ],
)
def test_the_kind_of_a_row(found, kind):
    (attacked,) = sorted_report(made(found)).attacked
    assert attacked.kind == kind


def test_a_scale_of_actions_names_no_features():
    """Their numbers are of actions, whichever features the budgets of observations may change."""
    acted = layer("action-noise", linf(0.1, scale=[1, 0]), on="action")
    rows = [
        row("noise:eps=0.1,scale=1;2", -6.0, [layer(within=linf(0.1, scale=[1, 2]))]),
        row("action-noise:eps=0.1,scale=1;0", -6.0, [acted]),
    ]
    assert [one.label for one in sorted_report(made(*rows)).attacked] == ["noise:eps=0.1", "action-noise:eps=0.1"]


def test_a_long_scale_is_left_out_of_labels_unless_they_would_be_the_same():
    rows = [
        row("noise:eps=0.1,scale=1;2", -6.0, [layer(within=linf(0.1, scale=[1, 2]))]),
        row("noise:eps=0.1,scale=0;2", -6.0, [layer(within=linf(0.1, scale=[0, 2]))]),
        row("noise:eps=0.2,scale=1;2", -6.0, [layer(within=linf(0.2, scale=[1, 2]))]),
        row("noise:eps=0.2,scale=3;4", -6.0, [layer(within=linf(0.2, scale=[3, 4]))]),
        row("noise:eps=0.3", -6.0, [layer(within=linf(0.3))], best_of=4, transfer=True),
    ]
    labels = [one.label for one in sorted_report(made(*rows)).rows]
    assert labels == [
        "no attack",
        "noise:eps=0.1",
        "noise:eps=0.1 on feature 1",
        "noise:eps=0.2,scale=1;2",
        "noise:eps=0.2,scale=3;4",
        "noise:eps=0.3 (best of 4) (transfer)",
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("values=1.5,at=mass.torso", "mass.torso times 1.5"),
        ("values=20,at=force.foot", "fixed-dynamics:values=20,at=force.foot"),
        ("values=1.5;2,at=mass", "fixed-dynamics:values=1.5;2,at=mass"),
        ("values=1.5,at=mass,when=every(2)", "fixed-dynamics:values=1.5,at=mass,when=every(2)"),
    ],
)
def test_a_factor_of_the_dynamics_is_said_in_words(text, label):
    found = row(f"fixed-dynamics:{text}", -6.0, [dynamics(1.5, "mass")])
    assert sorted_report(made(found)).attacked[0].label == label


def test_a_run_without_an_attack_names_the_threats_of_its_environment():
    name = "none (on an environment already perturbed by noise:eps=0.1)"
    report = made()
    for threat, expected in (("none", "no attack"), (name, name)):
        (clean,) = sorted_report(replace(report, threats=(replace(report.threats[0], threat=threat),))).rows
        assert (clean.kind, clean.label) == ("clean", expected)


def test_a_row_of_fewer_episodes_has_the_mean_of_what_was_lost_in_them():
    few = made_row("beam", [-7.0, -6.0], layers=[layer(within=linf(0.1))])
    (attacked,) = sorted_report(made(few)).attacked  # without an attack the three episodes have -6, -5 and -4
    assert attacked.change.mean == -1.0 and attacked.mean == attacked.returned.mean == -6.0
    assert attacked.returned.caveat and attacked.label.endswith("on 2 of 3 episodes")


def test_a_report_of_anything_can_be_drawn():
    """Returns below zero, thirty features, distances, odd letters, an attack and an agent without a name."""
    features = [linf(0.1, scale=[float(i == j) for j in range(30)]) for i in range(30)]
    rows = [
        *(row(f"noise:eps=0.1,scale={i}", -6.0 - i, [layer(within=within)]) for i, within in enumerate(features)),
        row("brightness", -9.0, [layer("brightness", {"type": "valid"})], distances={"ssim": 0.9, "psnr": None}),
        row("jpeg", -5.0, [layer("jpeg", {"type": "valid"})], distances={"ssim": 0.8, "psnr": None}, action_change=0.2),
        row("<mine>", -4.0, [None]),
        row("\N{CJK UNIFIED IDEOGRAPH-653B}\a\n$x$", -4.0, [None]),
    ]
    agent = sorted_report(made(*rows))
    stored = StoredReports(Path("rows.db"), (agent,), ("lost:eps=1",), {"broken": "ValueError: no"})
    text = page_of(stored, "report.html").decode()
    assert "agent abababababab" in text and ">ssim</th>" in text and ">psnr</th>" not in text
    assert "6 more are in the table of all attacks alone." in text
    assert "compare them with: lost:eps=1." in text and "they failed: broken (ValueError: no)." in text
    assert "Play it again" not in text, "some of it has no name"
    bare = page_of(StoredReports(Path("rows.db"), (sorted_report(made()),), (), {}), "bare.html").decode()
    assert "No attack was played." in bare


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
    (folder / "choices.json").write_text(json.dumps({"schema": 3, "unit": "in grey levels"}))
    assert read_reports(folder).agents[0].choices.unit == "in grey levels"
    assert not read_reports((folder / "rows.db").rename(folder / "another.db")).agents[0].choices.played


def test_choices_go_to_the_report_that_they_name(folder):
    with short_episodes_of(5, "CartPole-v1"):
        adv.evaluate("zoo:cartpole-ppo", "CartPole-v1", ["noise:eps=0.1"], episodes=1, out=folder)
    small = min(read_reports(folder).agents, key=lambda agent: len(agent.rows)).report
    about = {"victim": small.victim, "env": small.env, "seed": small.seed}
    for identity, expected in ((about, ["zoo:cartpole-ppo"]), (None, ["zoo:cartpole-dqn"]), ({"seed": 7}, [])):
        (folder / "choices.json").write_text(json.dumps({"identity": identity}))
        assert [agent.victim for agent in read_reports(folder).agents if agent.choices.played] == expected
