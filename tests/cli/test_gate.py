"""--at-least and --junit: three outcomes of a claim, the exit status, and a file that CI servers read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from adv_wrappers.cli import main
from adv_wrappers.cli.gate import judge, junit_xml

EVALUATE = ["evaluate", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--episodes", "2"]


def invoke(*words: str):
    return CliRunner().invoke(main, [*words])


def row(low: float, mean: float, high: float, threat: str = "max-diff:eps=0.1", caveat: str | None = None):
    about = {"threat": threat, "caveat": caveat, "ms_per_step": 2.0, "lengths": [100, 150]}
    return {**about, "low": low, "mean_return": mean, "high": high}


@pytest.mark.parametrize(
    ("least", "outcome", "words"),
    [
        (290.1, "shown", "max-diff:eps=0.1 leaves 312.4 (95% interval 290.1 to 334.7), at least the 290.1 asked for"),
        (300, "not shown", "max-diff:eps=0.1 leaves 312.4 (95% interval 290.1 to 334.7), which does not show the 300 "
         "asked for: it may be more or less"),
        (334.7, "not shown", "does not show the 334.7"),
        (400, "below", "max-diff:eps=0.1 leaves 312.4 (95% interval 290.1 to 334.7), less than the 400 asked for"),
    ],
)  # fmt: skip
def test_three_outcomes(least: float, outcome: str, words: str) -> None:
    found = judge(row(290.1, 312.4, 334.7), least)
    assert found.outcome == outcome and found.failed == (outcome != "shown") and found.seconds == 0.5
    assert words in found.sentence
    assert not judge(row(290.1, 312.4, 334.7), least, judged=False).failed


def test_an_interval_that_is_none_of_95_percent_says_so() -> None:
    found = judge(row(500, 500, 500, "none", "all 2 returns are equal"), 400)
    assert found.outcome == "shown"
    assert found.sentence.startswith("the agent earns 500.0 (500.0 to 500.0, no interval of 95%, all 2 returns are")


def test_a_claim_that_holds(tmp_path: Path) -> None:
    done = invoke(*EVALUATE, "--threat", "noise:eps=0.01", "--at-least", "400", "--out", str(tmp_path / "o"))
    assert done.exit_code == 0, done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("passed: ")]
    assert line.startswith("passed: noise:eps=0.01 leaves 500.0 (") and "at least the 400 asked for" in line


def test_without_a_threat_the_clean_row_is_judged() -> None:
    assert "passed: the agent earns 500.0" in invoke(*EVALUATE, "--at-least", "499").output
    done = invoke(*EVALUATE, "--at-least", "501")
    assert done.exit_code == 1 and "failed: the agent earns 500.0" in done.output


def test_a_claim_that_fails_is_one_line_and_a_failed_case(tmp_path: Path) -> None:
    words = ["--threat", "noise:eps=0.01", "--threat", "worst-action", "--threat", "worst-action:when=every(1)"]
    junit = tmp_path / "new" / "junit.xml"
    done = invoke(
        *EVALUATE,
        *words,
        "--minimum",
        "worst-action",
        "--at-least",
        "100",
        "--junit",
        str(junit),
        "--out",
        str(tmp_path / "o"),
    )
    assert done.exit_code == 1 and (tmp_path / "o" / "report.json").exists(), done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: worst-action leaves 9.5 (") and "less than the 100 asked for" in line
    assert line.endswith("(the worst of 2 rows that fail)") and f"wrote {junit}" in done.output
    root = ElementTree.parse(junit).getroot()
    [suite] = root
    assert root.tag == "testsuites" and suite.tag == "testsuite"
    counts = {"tests": "4", "failures": "2", "errors": "0", "skipped": "1"}
    assert {key: suite.get(key) for key in counts} == counts and suite.get("name") == "zoo:cartpole-dqn on CartPole-v1"
    names = [case.get("name") for case in suite]
    assert names[:3] == ["none", "noise:eps=0.01", "worst-action"]
    assert [[part.tag for part in case] for case in suite] == [["skipped"], ["system-out"], ["failure"], ["failure"]]
    failure = suite[2][0]
    assert failure.get("type") == "below" and failure.text == failure.get("message") and failure.text in line
    assert all(float(case.get("time")) > 0 and case.get("classname") == suite.get("name") for case in suite)


def test_the_row_that_impact_counts_from_is_not_judged() -> None:
    words = ["--threat", "noise:eps=0.01", "--minimum", "worst-action"]
    done = invoke(*EVALUATE, *words, "--at-least", "400")
    assert done.exit_code == 0 and "passed: noise:eps=0.01 leaves" in done.output, done.output


def test_of_a_suite_the_worst_case_on_fresh_episodes_is_judged(tmp_path: Path) -> None:
    words = ["suite", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--eps", "0.01", "--attack", "noise"]
    words += ["--episodes", "2", "--junit", str(tmp_path / "junit.xml"), "--out", str(tmp_path / "o")]
    done = invoke(*words, "--at-least", "400")
    assert done.exit_code == 0 and "passed: worst case noise on fresh episodes leaves 500.0" in done.output, done.output
    done = invoke(*words, "--at-least", "600")
    assert done.exit_code == 1 and "failed: worst case noise on fresh episodes leaves 500.0" in done.output
    [suite] = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [case.get("name") for case in suite] == ["none", "noise", "worst case noise on fresh episodes"]
    assert [case[0].tag for case in suite] == ["skipped", "skipped", "failure"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--junit", "junit.xml"], "--junit goes with --at-least"),
        (["--at-least", "nan"], "expected a finite number, got nan"),
        (["--at-least", "much"], "'much' is not a valid float"),
        (["--at-least", "1", "--junit", "file/under/junit.xml"], "cannot write to the folder file"),
    ],
)
def test_wrong_usage_is_status_2_before_anything_is_played(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    done = invoke(*EVALUATE, *words)
    assert done.exit_code == 2 and message in done.output and "return" not in done.output.lower(), done.output


def test_the_file_holds_what_xml_can() -> None:
    odd = judge(row(1, 2, 3, 'learned:card=<\x1b&"é\ufffe'), 2)
    case = ElementTree.fromstring(junit_xml([odd], "a\x00 on b"))[0][0]
    assert case.get("name") == 'learned:card=<?&"é?' and case.get("classname") == "a? on b"
    assert case[0].tag == "failure" and case[0].get("type") == "not shown"
