"""The script of the suite everything beside all other rows: which rows are found, how they are compared, the page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adv_wrappers.victims.references import zoo_names
from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("everything") as module:
        yield module


def row(threat, mean, episodes=10):
    returns = list(mean + np.linspace(-1, 1, episodes))
    return {"threat": threat, "mean_return": mean, "std": 0.6, "episodes": episodes, "returns": returns}


def test_rows_of_an_agent_are_found_wherever_they_stand(script, tmp_path):
    agents = {"zoo:a": "zoo:a", "b": "card:folder/b", "zoo-c": "card:folder/zoo-c"}
    pages = {
        "one": {"short": {"zoo-a-0.1": {"rows": {"pgd": row("pgd:eps=0.10", 5.0)}}}, "machine": "here"},
        "two": {"cards": [{"victim": {"ref": "card:far/b"}, "rows": [row("none", 9.0), row("noise:eps=2", 8.0)]}]},
        "three": {"agent": "zoo-c", "rows": [row("learned:eps=1,scale=victim", 1.0), row("pgd:eps=1,norm=2", 0.0)]},
        "other": {"rows": [row("pgd:eps=0.1", 0.0)]}, "everything": {"zoo:a": row("pgd:eps=0.1", 0.0)},
    }  # fmt: skip
    for name, page in pages.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(page))
    found = script.published(tmp_path, agents)
    seen = {name: [(one.file, one.budget, one.trained) for one in rows] for name, rows in found.items()}
    assert seen == {
        "zoo:a": [("one", "eps=0.1", False)], "b": [("two", "eps=2", False)],
        "zoo-c": [("three", "eps=1,scale=victim", True)],
    }  # fmt: skip
    assert {name: script.chosen_budget(name, rows) for name, rows in found.items()} == {
        "zoo:a": "eps=0.1", "b": "eps=2", "zoo-c": "eps=1,scale=victim",
    }  # fmt: skip
    assert script.chosen_budget("zoo:cartpole-x", []) == "eps=0.1" and script.chosen_budget("x", []) == "eps=1"


@pytest.mark.parametrize(("worst", "holds"), [(4.0, True), (5.2, True), (7.0, False)])
def test_the_worst_case_is_compared_with_rows_of_the_same_budget(script, worst, holds, tmp_path):
    others = [
        script.PublishedRow("page", threat, eps, None, script.of_row(row(threat, mean)))
        for threat, eps, mean in [("pgd:eps=0.1", "0.1", 5.0), ("noise:eps=0.1", "0.1", 9.0), ("pgd:eps=9", "9", 0.0),
                                  ("learned:eps=0.1", "0.1", 1.0)]
    ]  # fmt: skip
    rows = [row("none", 9.0), row("max-diff:eps=0.1", worst), row("noise:eps=0.1", 8.0), row("action-flip", 0.0)]
    found = script.compare(rows, "eps=0.1", others)
    assert (found["worst"], found["entries"]) == ("max-diff:eps=0.1", 2)
    assert found["untrained"]["holds"] is holds and found["untrained"]["rows"] == 2
    assert found["trained"]["holds"] is False and found["trained"]["threat"] == "learned:eps=0.1"
    page = script.markdown({"command": "it", "machine": "here", "missing": ["z"], "agents": {"a": found}})
    assert f"| {'yes' if holds else 'no'} | `learned` of page:" in page and "Not played: z." in page


def test_every_agent_of_the_zoo_is_known(script):
    assert {f"zoo:{name}" for name in zoo_names()} == {*script.agents_of(None)}
