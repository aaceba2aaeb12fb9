"""The script of the suite everything beside all other rows: how they are compared, the page, and who is attacked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.studies import SUITES, SuiteReport
from adv_wrappers.victims.references import zoo_names
from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("everything") as module:
        yield module


def row(threat, mean, episodes=10):
    returns = list(mean + np.linspace(-1, 1, episodes))
    return {"threat": threat, "mean_return": mean, "std": 0.6, "episodes": episodes, "returns": returns}


@pytest.fixture(scope="module")
def suite():
    """Of a mean, the report of a suite whose worst case has it; its episodes were not all played."""
    played = adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", ["noise:eps=0.1"], episodes=1)

    def made(worst):
        found = [
            replace(played, threats=tuple({**played.threats[1], **row(name, mean)} for name, mean in rows), episodes=10)
            for rows in ([("none", 9.0), ("max-diff", worst - 1), ("noise", 8.0)], [("none", 9.0), ("max-diff", worst)])
        ]
        settings = {"budget": "eps=0.1", "victim": {"sha256": "0"}}
        left_out = {"min-q": "no Q", "worst-action": "not asked for"}
        return SuiteReport("everything", settings, *found, {"max-diff": "one", "noise": "one"}, left_out, ())

    return made


def others(script):
    planted = [
        ("pgd:eps=0.1", "eps=0.1", 5.0, False),
        ("noise:eps=0.1", "eps=0.1", 9.0, False),
        ("pgd:eps=9", "eps=9", 0.0, False),
        ("learned:eps=0.1", "eps=0.1", 1.0, True),
    ]
    return [
        script.PublishedRow("page", threat, budget, trained, script.of_row(row(threat, mean)))
        for threat, budget, mean, trained in planted
    ]


@pytest.mark.parametrize(
    ("worst", "holds", "lower"), [(4.0, "yes", 0), (5.2, "yes", 0), (5.7, "overlaps", 0), (7.0, "no", 1)]
)
def test_the_worst_case_is_compared_with_rows_of_the_same_budget(script, suite, worst, holds, lower):
    found = script.compare(suite(worst), "eps=0.1", others(script))
    assert (found["worst"], found["entries"], found["left_out"]) == ("max-diff", 2, {"min-q": "no Q"})
    assert found["figure"]["mean"] == worst and found["chosen"]["mean"] == worst - 1  # of fresh episodes
    assert found["untrained"]["holds"] == holds and found["untrained"]["rows"] == 2
    assert len(found["untrained"]["lower"]) == lower
    assert found["trained"]["holds"] == "no" and found["trained"]["threat"] == "learned:eps=0.1"
    page = script.PAGE.markdown({"command": "it", "machine": "here", "missing": ["z"], "agents": {"a": found}})
    assert f"| 2 | `pgd` of page: 5 +- 0.6 (n=10) [4.5, 5.5] | {holds} | `learned` of page:" in page
    assert f'"{holds}" for 1' in page and "Not played: z." in page
    assert ("| a | `pgd:eps=0.1` | page | 5 +- 0.6 (n=10) [4.5, 5.5] |" in page) is bool(lower)


def test_a_row_that_is_not_the_lowest_can_fail_the_claim(script, suite):
    sharp = script.PublishedRow("page", "sharp", "eps=1", False, script.Figure(5.0, 0.0, 3, 5.0, 5.0))
    vague = script.PublishedRow("page", "vague", "eps=1", False, script.Figure(4.0, 9.0, 3, -20.0, 28.0))
    found = script.compare(suite(7.0), "eps=1", [sharp, vague])["untrained"]
    assert found["threat"] == "vague" and found["holds"] == "no"
    assert [one["threat"] for one in found["lower"]] == ["sharp"]


def test_a_mean_without_an_interval_is_a_point(script):
    worst = script.of_row(row("pgd:eps=1", 7.0))
    assert [script.verdict(worst, script.Figure(mean)) for mean in (7.0, 6.9, 5.0)] == ["yes", "overlaps", "no"]


def test_an_agent_without_other_rows_has_empty_cells(script, suite):
    found = script.compare(suite(7.0), "eps=1", others(script)[:2])
    page = script.PAGE.markdown({"command": "it", "machine": "here", "missing": [], "agents": {"a": found}})
    assert "Of 1 agents 0 have other rows" in page and "| - | - | - | - | - |" in page and "Not played" not in page


def test_the_list_knows_every_agent_of_the_zoo(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["everything.py", "--list"])
    monkeypatch.chdir(Path(__file__).resolve().parents[1])
    with pytest.raises(SystemExit):
        script.PAGE.main()
    lines = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert {*lines} == {f"zoo:{name}" for name in zoo_names()}
    assert lines["zoo:mountaincar-dqn"].startswith("MountainCar-v0 eps=0.05,scale=0.9;0.07 ")
    without = [name for name, line in lines.items() if line.endswith(" 0 rows")]
    assert without == ["zoo:fish-upright-sac"]  # whose page is about actions
    costs = [agent.cost for agent in script.agents_of(None)]
    assert costs == sorted(costs) and costs[0] == 0 and costs[-1] == 3


def test_agents_have_the_budgets_of_the_pages(script):
    budgets = {
        ("zoo-cartpole-a2c", "CartPole-v1"): "eps=0.1",
        ("zoo:cartpole-a2c", "CartPole-v1"): "eps=0.05",
        ("saddpg-ant-convex", "Ant-v4"): "eps=0.2,scale=victim",
        ("wocar-ant-ppo", "Ant-v4"): "eps=0.15,scale=victim",
        ("davide-qbert-ppo", "QbertNoFrameskip-v4"): "eps=1",
    }
    assert {key: script.Agent(key[0], "", key[1]).budget for key in budgets} == budgets
    with pytest.raises(SystemExit, match="the standing has no budget for Pendulum-v1"):
        _ = script.Agent("a", "", "Pendulum-v1").budget


def test_entries_are_those_of_the_budget(script):
    assert {"noise", "lower-bound-pgd", "carlini-wagner", "robust-sarsa", "beam"} <= {*script.ENTRIES}
    assert not {*script.ENTRIES} & {entry.name for entry in (*SUITES["action"], *SUITES["daylight"])}
