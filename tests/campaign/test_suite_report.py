"""The report of a suite: figures that follow from the returns, the JSON form, and what it prints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.campaign import SuiteReport
from adv_wrappers.evaluation.metrics import summary

RETURNS = {
    "none": [9.0, 9.0, 9.0, 9.0],
    "a": [1.0, 5.0, 3.0, 8.0],
    "b": [1.0, 2.0, 7.0, 8.0],
    "c": [4.0, 3.0, 8.0, 8.0],
}


@pytest.fixture(scope="module")
def report() -> SuiteReport:
    """Three attacks with returns that were made up, in the report of an evaluation."""
    played = adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", ["noise:eps=0.1"], episodes=1)
    rows = tuple(
        {**played.threats[1], "threat": name, **summary(returns), "returns": returns}
        for name, returns in RETURNS.items()
    )
    about = replace(played, threats=rows, episodes=4)
    protocol = {"a": "one setting, one run", "b": "one setting, one run", "c": "best of 30"}
    return SuiteReport("standard", {"budget": "eps=0.1"}, about, protocol, {"d": "no Q", "e": "no Q"}, ("look out",))


def test_figures(report):
    assert report.attacks == ("a", "b", "c")
    assert report.worst["threat"] == "a" and report.worst["mean_return"] == 4.25
    # episodes: a and b; b; a; all three
    assert report.shares == pytest.approx({"a": (0.5 + 1 + 1 / 3) / 4, "b": (0.5 + 1 + 1 / 3) / 4, "c": (1 / 3) / 4})
    assert (
        report.worst_per_episode["mean_return"] == np.mean([1, 2, 3, 8]) and report.worst_per_episode["median"] == 2.5
    )


def test_round_trip(report, tmp_path):
    report.to_json(tmp_path / "new" / "report.json")
    again = SuiteReport.from_json(tmp_path / "new" / "report.json")
    assert again == report and again.to_dict() == report.to_dict()
    data = report.to_dict()
    assert data["worst"]["threat"] == "a" and data["shares"] == report.shares
    assert data["worst_per_episode"] == report.worst_per_episode


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"suite": 3}', "3"])
def test_files_that_are_none(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(adv.ValueRangeError, match=r"report\.json"):
        SuiteReport.from_json(tmp_path / "report.json")
    with pytest.raises(adv.ValueRangeError, match="nothing"):
        SuiteReport.from_json(tmp_path / "nothing")


def test_a_report_without_an_attack_is_none(report):
    data = report.to_dict()
    data["report"] = {**data["report"], "threats": data["report"]["threats"][:1]}
    with pytest.raises(adv.ValueRangeError, match="at least one attack"):
        SuiteReport.from_dict(data)


def test_text(report, tmp_path):
    lines = str(report).splitlines()
    assert lines[0] == "standard suite: zoo:cartpole-dqn on CartPole-v1, eps=0.1, 4 episodes, seed 0"
    assert [line.split()[:3] for line in lines if line.startswith("  a ")] == [["a", "*", "4.25"]]
    assert any(line.split()[:4] == ["worst", "per", "episode", "(optimistic)"] for line in lines)
    assert "a, b: one setting, one run" in lines and "c: best of 30" in lines and "d, e: left out: no Q" in lines
    assert any(
        line.startswith("worst case: a leaves 4.25") and "lowest of 3 means over the same 4" in line for line in lines
    )
    assert lines[-1] == "warning: look out"
    report.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[1:4] == b"PNG"
