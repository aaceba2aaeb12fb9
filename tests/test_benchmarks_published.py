"""The reader of published rows: whose they are, under which budget, and whether the attack was trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.result_scripts import result_script
from tests.test_benchmarks_everything import row

PAGES = Path(__file__).resolve().parents[1] / "docs" / "results"


@pytest.fixture(scope="module")
def script():
    with result_script("published") as module:
        yield module


def test_rows_of_an_agent_are_found_wherever_they_stand(script, tmp_path):
    environments = {"zoo:a": "A-v1", "b": "B-v1", "zoo-c": "C-v1", "zoo:d": "D-v1"}
    pages = {
        "one": {"short": {"zoo-a-0.1": {"rows": {"pgd": row("pgd:eps=0.10", 5.0)}}}, "machine": "here"},
        "two": {"cards": [{"victim": {"ref": "card:far/b"}, "rows": [row("none", 9.0), row("noise:eps=2", 8.0)]}]},
        "three": {"agent": "zoo-c", "rows": [row("learned:eps=1,scale=victim", 1.0), row("pgd:eps=1,norm=2", 0.0)]},
        "four": {"b": {"env": {"id": "B-v2"}, "rows": [row("pgd:eps=2", 0.0)]}},  # another environment
        "other": {"rows": [row("pgd:eps=0.1", 0.0)]},
        "everything": {"zoo:a": row("pgd:eps=0.1", 0.0)},
    }
    for name, page in pages.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(page))
    found = script.published(tmp_path, environments)
    seen = {name: [(one.file, one.budget, one.trained) for one in rows] for name, rows in found.items()}
    assert seen == {
        "zoo:a": [("one", "eps=0.1", False)],
        "b": [("two", "eps=2", False)],
        "zoo-c": [("three", "eps=1,scale=victim", True)],
        "zoo:d": [],
    }


def test_a_card_whose_name_begins_with_zoo_is_not_the_agent_of_the_zoo(script):
    assert script.named_agent("zoo-a", {"zoo:a": ""}) is None
    assert script.named_agent("zoo-a-0.1", {"zoo:a": ""}) == "zoo:a"


@pytest.mark.parametrize(
    ("file", "threat", "trained"),
    [
        ("victims", "robust-sarsa:eps=1", False), ("pa_ad", "robust-sarsa:eps=1", True), ("a", "pgd:eps=1", False),
        ("a", "learned pa-ad:eps=1", True), ("a", "pgd:eps=1,victim=card:FOLDER/copy", True), ("a", "momentum", False),
    ],
)  # fmt: skip
def test_what_was_trained_is_known_by_its_text(script, file, threat, trained):
    assert script.is_trained(file, threat) is trained


@pytest.mark.parametrize(
    ("threat", "budget"),
    [
        ("max-diff:eps=0.05,when=strategic(0.1)", "eps=0.05"), ("noise:eps=0.05,scale=...", None),
        ("action-noise:eps=0.1", None), ("worst-action", None), ("pgd:eps=1,scale=0.9;0.07", "eps=1,scale=0.9;0.07"),
    ],
)  # fmt: skip
def test_the_budget_of_a_text(script, threat, budget):
    assert script.budget_of(threat) == budget


def test_pages_in_forms_of_their_own_are_read(script):
    environments = {
        "zoo:cartpole-dqn": "CartPole-v1",
        "zoo:mountaincar-dqn": "MountainCar-v0",
        "zoo:hopper-ppo": "Hopper-v5",
        "zoo:pong-ppo": "PongNoFrameskip-v4",
        "zoo:walker-stand-sac": "dm_control/walker-stand-v0",
    }
    found = script.published(PAGES, environments)
    files = {name: {one.file for one in rows} for name, rows in found.items()}
    assert {"certificates"} <= files["zoo:cartpole-dqn"]
    assert {"certificates", "pa_ad_small"} <= files["zoo:mountaincar-dqn"]
    assert {"pa_ad_sweeps", "model_based_steps"} <= files["zoo:hopper-ppo"]
    assert {"radial"} <= files["zoo:pong-ppo"] and {"model_based"} <= files["zoo:walker-stand-sac"]
    assert all(one.threat != "none" for rows in found.values() for one in rows)
    pong = {one.threat: one for one in found["zoo:pong-ppo"] if one.budget == "eps=1"}
    assert {*pong} == {"fgsm", "pgd"} and pong["pgd"].figure.high is None and not pong["pgd"].trained
