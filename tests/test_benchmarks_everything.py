"""The script of the suite everything beside all other rows: how they are compared, the page, and who is attacked."""

from __future__ import annotations

import sys
from pathlib import Path

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


def others(script):
    planted = [("pgd:eps=0.1", "eps=0.1", 5.0, False), ("noise:eps=0.1", "eps=0.1", 9.0, False),
               ("pgd:eps=9", "eps=9", 0.0, False), ("learned:eps=0.1", "eps=0.1", 1.0, True)]  # fmt: skip
    return [
        script.PublishedRow("page", threat, budget, trained, script.of_row(row(threat, mean)))
        for threat, budget, mean, trained in planted
    ]


@pytest.mark.parametrize(
    ("worst", "holds", "lower"), [(4.0, "yes", 0), (5.2, "yes", 0), (5.7, "overlaps", 0), (7.0, "no", 1)]
)
def test_the_worst_case_is_compared_with_rows_of_the_same_budget(script, worst, holds, lower):
    found = script.compare(row("none", 9.0), row("max-diff:eps=0.1", worst), 2, "eps=0.1", others(script))
    assert (found["worst"], found["entries"]) == ("max-diff:eps=0.1", 2)
    assert found["untrained"]["holds"] == holds and found["untrained"]["rows"] == 2
    assert len(found["untrained"]["lower"]) == lower
    assert found["trained"]["holds"] == "no" and found["trained"]["threat"] == "learned:eps=0.1"
    page = script.markdown({"command": "it", "machine": "here", "missing": ["z"], "agents": {"a": found}})
    assert f"| 2 | `pgd` of page: 5 +- 0.6 (n=10) [4.5, 5.5] | {holds} | `learned` of page:" in page
    assert f'"{holds}" for 1' in page and "Not played: z." in page
    assert ("| a | `pgd:eps=0.1` | page | 5 +- 0.6 (n=10) [4.5, 5.5] |" in page) is bool(lower)


def test_a_row_that_is_not_the_lowest_can_fail_the_claim(script):
    sharp = script.PublishedRow("page", "sharp", "eps=1", False, script.Figure(5.0, 0.0, 3, 5.0, 5.0))
    vague = script.PublishedRow("page", "vague", "eps=1", False, script.Figure(4.0, 9.0, 3, -20.0, 28.0))
    found = script.compare(row("none", 9.0), row("pgd:eps=1", 7.0), 1, "eps=1", [sharp, vague])["untrained"]
    assert found["threat"] == "vague" and found["holds"] == "no"
    assert [one["threat"] for one in found["lower"]] == ["sharp"]


def test_a_mean_without_an_interval_is_a_point(script):
    worst = script.of_row(row("pgd:eps=1", 7.0))
    assert [script.verdict(worst, script.Figure(mean)) for mean in (7.0, 6.9, 5.0)] == ["yes", "overlaps", "no"]


def test_an_agent_without_other_rows_has_empty_cells(script):
    found = script.compare(row("none", 9.0), row("pgd:eps=1", 7.0), 1, "eps=1", others(script))
    page = script.markdown({"command": "it", "machine": "here", "missing": [], "agents": {"a": found}})
    assert "Of 1 agents 0 have other rows" in page and "|  |  |  |  |  |" in page and "Not played" not in page


def test_the_list_knows_every_agent_of_the_zoo(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["everything.py", "--list"])
    monkeypatch.chdir(Path(__file__).resolve().parents[1])
    script.main()
    lines = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert {*lines} == {f"zoo:{name}" for name in zoo_names()}
    assert lines["zoo:mountaincar-dqn"].startswith("MountainCar-v0 eps=0.05,scale=0.9;0.07 ")
    without = [name for name, line in lines.items() if line.endswith(" 0 rows")]
    assert without == ["zoo:fish-upright-sac"]  # whose page is about actions
    costs = [agent.cost for agent in script.agents_of(None)]
    assert costs == sorted(costs) and costs[0] == 0 and costs[-1] == 3


def test_agents_have_the_budgets_of_the_pages(script):
    budgets = {
        ("zoo-cartpole-a2c", "CartPole-v1"): "eps=0.1", ("zoo:cartpole-a2c", "CartPole-v1"): "eps=0.05",
        ("saddpg-ant-convex", "Ant-v4"): "eps=0.2,scale=victim", ("wocar-ant-ppo", "Ant-v4"): "eps=0.15,scale=victim",
        ("davide-qbert-ppo", "QbertNoFrameskip-v4"): "eps=1",
    }  # fmt: skip
    assert {key: script.Agent(key[0], "", key[1]).budget for key in budgets} == budgets
    with pytest.raises(SystemExit, match="no budget is known for Pendulum-v1"):
        _ = script.Agent("a", "", "Pendulum-v1").budget
