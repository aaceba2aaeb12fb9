"""The report of a suite: figures that follow from the returns, the JSON form, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.statistics.confidence_intervals import caveat
from adv_wrappers.studies import SuiteReport
from adv_wrappers.studies.suite.report import close_attacks
from tests.episodes import short_episodes_of
from tests.evaluation.made_reports import made_row
from tests.every_case import every_case

RETURNS = {
    "none": [9.0, 9.0, 9.0, 9.0],
    "a": [1.0, 5.0, 3.0, 8.0],
    "b": [1.0, 2.0, 7.0, 8.0],
    "c": [4.0, 3.0, 8.0, 8.0],
}
FRESH = {"none": [9.0, 9.0, 9.0, 9.0], "a": [2.0, 4.0, 6.0, 9.0]}


@pytest.fixture(scope="module")
def report() -> SuiteReport:
    """Three attacks with returns that were made up, in the report of an evaluation; and the strongest's others."""
    with short_episodes_of(1, "CartPole-v1"):
        played = adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", ["noise:eps=0.1"], episodes=1)

    def made(all_: dict[str, list[float]]) -> tuple[Row, ...]:
        return tuple(made_row(name, returns, caveat=caveat(returns)) for name, returns in all_.items())

    about = replace(played, threats=made(RETURNS), episodes=4)
    fresh = replace(played, threats=made(FRESH), episodes=4, seed=77)
    protocol = {"a": "one setting, one run", "b": "one setting, one run", "c": "best of 30"}
    left_out = {"d": "no Q", "e": "no Q"}
    return SuiteReport("standard", {"budget": "eps=0.1"}, about, fresh, protocol, left_out, ("look out",))


def test_figures(report):
    assert report.attacks == ("a", "b", "c")
    assert report.chosen["threat"] == report.worst["threat"] == "a"
    assert report.chosen["mean_return"] == 4.25 and report.worst["mean_return"] == 5.25
    # episodes: a and b; b; a; all three
    assert report.shares == pytest.approx({"a": (0.5 + 1 + 1 / 3) / 4, "b": (0.5 + 1 + 1 / 3) / 4, "c": (1 / 3) / 4})
    assert (
        report.worst_per_episode["mean_return"] == np.mean([1, 2, 3, 8]) and report.worst_per_episode["median"] == 2.5
    )


def with_tie_break(report: SuiteReport, b: list[float]) -> SuiteReport:
    """The report with further episodes of a and b: under a all return 4, under b these."""
    further = {"none": [9.0] * 4, "a": [4.0] * 4, "b": b}
    threats = tuple(made_row(name, returns, caveat=caveat(returns)) for name, returns in further.items())
    return replace(report, tie_break=replace(report.report, threats=threats, seed=78))


def test_further_episodes_choose_between_close_attacks(report):
    assert close_attacks(report.report) == ("a", "b", "c")  # four episodes tell nothing
    still, other = with_tie_break(report, [4.0] * 4), with_tie_break(report, [3.0] * 4)
    assert still.chosen["threat"] == "a" and other.chosen["threat"] == "b"  # 18 of 8 episodes against 17 and 12
    assert other.chosen["mean_return"] == 4.5  # in the table
    text = "the 4 episodes of the table do not tell a, b apart; with 4 more it is the lowest of them, 4.12 over both"
    assert f"; {text}. The lowest of several means is low by chance" in still.verdict
    assert SuiteReport.from_dict(json.loads(json.dumps(still.to_dict()))) == still
    with pytest.raises(ValueRangeError, match="those of its strongest attack"):
        SuiteReport.from_dict(other.to_dict())
    strange = replace(still, report=replace(still.report, threats=still.report.threats[:2]))
    with pytest.raises(ValueRangeError, match="those of attacks that it has"):
        SuiteReport.from_dict({**still.to_dict(), "report": strange.report.to_dict()})


def test_attacks_that_could_take_little_more_are_not_close(report):
    def close(b: list[float], clean: float) -> tuple[str, ...]:
        returns = {"none": [clean] * 4, "a": [5.0] * 4, "b": b}
        threats = tuple(made_row(name, r) for name, r in returns.items())
        return close_attacks(replace(report.report, threats=threats))

    assert close([5.0, 5.0, 5.0, 5.0], 9.0) == ("a",) and close([8.0, 6.0, 9.0, 7.0], 9.0) == ("a",)
    noisy = [5.0, 5.5, 4.8, 5.1]
    assert close(noisy, 9.0) == ("a", "b")  # lower by up to 0.3, and 4 are taken
    assert close(noisy, 25.0) == ("a",)


def test_round_trip(report, tmp_path):
    report.to_json(tmp_path / "new" / "report.json")
    again = SuiteReport.from_json(tmp_path / "new" / "report.json")
    assert again == report and again.to_dict() == report.to_dict()
    data = report.to_dict()
    assert data["worst"]["threat"] == data["chosen"]["threat"] == "a" and data["shares"] == report.shares
    assert data["worst"]["mean_return"] == 5.25 and data["chosen"]["mean_return"] == 4.25
    assert data["worst"]["caveat"].startswith("fewer than 10 episodes")
    assert data["worst_per_episode"] == report.worst_per_episode


@every_case("text", ["", "[]", "{}", '{"suite": 3}', "3"])
def test_files_that_are_none(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ValueRangeError, match=r"report\.json"):
        SuiteReport.from_json(tmp_path / "report.json")
    with pytest.raises(ValueRangeError, match="nothing"):
        SuiteReport.from_json(tmp_path / "nothing")


def test_a_report_without_an_attack_is_none(report):
    data = report.to_dict()
    for part in ("report", "fresh"):
        short = {**data[part], "threats": data[part]["threats"][:1]}
        with pytest.raises(ValueRangeError, match="at least one attack"):
            SuiteReport.from_dict({**data, part: short})


def test_a_report_whose_fresh_episodes_are_of_another_attack_is_none(report):
    data = report.to_dict()
    data["fresh"]["threats"][1]["threat"] = "b"
    with pytest.raises(ValueRangeError, match="those of its strongest attack"):
        SuiteReport.from_dict(data)


def test_text(report, tmp_path):
    lines = str(report).splitlines()
    assert lines[0] == "standard suite: zoo:cartpole-dqn on CartPole-v1, eps=0.1, 4 episodes, seed 0"
    assert [line.split()[:3] for line in lines if line.startswith("  a ")] == [["a", "*", "4.25"]]
    assert any(line.split()[:6] == ["worst", "case:", "a,", "fresh", "episodes", "5.25"] for line in lines)
    assert any(line.split()[:4] == ["worst", "per", "episode", "(optimistic)"] for line in lines)
    assert "a, b: one setting, one run" in lines and "c: best of 30" in lines and "d, e: left out: no Q" in lines
    [verdict] = [line for line in lines if line.startswith("worst case: a leaves 5.25 († ")]
    assert verdict.endswith(
        "over 4 fresh episodes, seed 77; it is the lowest of 3 means over the 4 episodes of the table, 4.25 there. The "
        "lowest of several means is low by chance as well, the more so the more returns vary: what the attack leaves "
        "is its mean on fresh episodes, on which nothing was chosen"
    )
    assert (
        "† no interval of 95% (fewer than 10 episodes): 4 episodes miss an event of 1 in 20 in 81% of the runs" in lines
    )
    assert lines[-1] == "warning: look out"
    report.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[1:4] == b"PNG"
