"""--at-least and --junit: three verdicts on a claim, the exit status, and a file that CI servers read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from adv_wrappers.cli import main
from adv_wrappers.cli.gate import judge, junit_xml
from adv_wrappers.evaluation.statistics.claim import RobustnessClaim
from adv_wrappers.studies import SuiteReport
from tests.evaluation.made_reports import made_row
from tests.every_case import every_case

SHORT = ["--episodes", "20", "--env-kwargs", "max_episode_steps=40"]  # of CartPole no return below 0 is possible
EVALUATE = ["evaluate", "CartPole-v1", "--victim", "zoo:cartpole-dqn", *SHORT]


def invoke(*words: str):
    return CliRunner().invoke(main, [*words])


def row(returns: list[float], threat: str = "max-diff:eps=0.1"):
    return made_row(threat, returns, ms_per_step=2.0, lengths=[100, 150])


RETURNS = [float(i) for i in range(300, 325)]  # their mean is 312, its interval 308.962 to 315.038


@every_case(
    ("least", "verdict", "words"),
    [
        (308.9, "shown", "max-diff:eps=0.1 leaves 312.0 (95% interval 309.0 to 315.0), at least the 308.9 asked for"),
        (312, "not shown", "max-diff:eps=0.1 leaves 312.0 (95% interval 309.0 to 315.0), which does not show the 312 "
         "asked for: it may be more or less; it passes where the interval lies at or above 312.0 (it begins at 309.0)"),
        (315, "not shown", "does not show the 315"),
        (400, "below", "max-diff:eps=0.1 leaves 312.0 (95% interval 309.0 to 315.0), less than the 400 asked for"),
    ],
)  # fmt: skip
def test_three_verdicts(least: float, verdict: str, words: str) -> None:
    found = judge(row(RETURNS), RobustnessClaim(least))
    assert found.verdict == verdict and found.failed == (verdict != "shown") and found.seconds == 0.5
    assert words in found.sentence, found.sentence
    assert not judge(row(RETURNS), RobustnessClaim(400), judged=False).failed


def test_returns_that_show_nothing_say_so() -> None:
    found = judge(row([500.0] * 50, "none"), RobustnessClaim(400))
    assert found.verdict == "not shown"  # 0 of 50 episodes were lost, and 1 of 15 may be
    assert found.sentence.startswith("the agent earns 500.0 (500.0 to 500.0, no interval of 95%, all 50 returns are")
    found = judge(row([500.0] * 50, "none"), RobustnessClaim(400, lowest=0.0))
    assert found.verdict == "shown" and "(95% interval 464.4 to 500.0), at least the 400" in found.sentence
    assert judge(row([500.0, 499.0] * 4), RobustnessClaim(400)).verdict == "not shown"


def test_without_a_threat_the_clean_row_is_judged() -> None:
    assert "passed: the agent earns 40" in invoke(*EVALUATE, "--at-least", "30").output
    done = invoke(*EVALUATE, "--at-least", "39")
    assert done.exit_code == 1 and "failed: the agent earns 40" in done.output and "does not show" in done.output


def test_a_claim_that_fails_is_one_line_and_a_failed_case(tmp_path: Path) -> None:
    words = ["--threat", "noise:eps=0.01", "--threat", "worst-action", "--threat", "worst-action:when=every(1)"]
    junit = tmp_path / "new" / "junit.xml"
    done = invoke(
        *EVALUATE,
        *words,
        "--minimum",
        "worst-action",
        "--at-least",
        "30",
        "--junit",
        str(junit),
        "--out",
        str(tmp_path / "o"),
    )
    assert done.exit_code == 1 and (tmp_path / "o" / "report.json").exists(), done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: worst-action leaves 9.") and "less than the 30 asked for" in line
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
    done = invoke(*EVALUATE, *words, "--at-least", "30")
    assert done.exit_code == 0 and "passed: noise:eps=0.01 leaves" in done.output, done.output


def test_of_a_suite_the_worst_case_on_fresh_episodes_is_judged(tmp_path: Path) -> None:
    words = ["suite", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--eps", "0.01", "--attack", "noise"]
    words += [*SHORT, "--junit", str(tmp_path / "junit.xml"), "--out", str(tmp_path / "o")]
    done = invoke(*words, "--at-least", "60")
    assert done.exit_code == 1 and "failed: worst case noise on fresh episodes leaves 40" in done.output, done.output
    report = SuiteReport.from_json(tmp_path / "o" / "report.json")
    assert report.attacks == ("noise",) and report.verdict in done.output and "left out: not asked for" in done.output
    assert (tmp_path / "o" / "returns.png").read_bytes()[1:4] == b"PNG"
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
    odd = judge(row([1.0, 3.0], 'learned:card=<\x1b&"é\ufffe'), RobustnessClaim(2))
    case = ElementTree.fromstring(junit_xml([odd], "a\x00 on b"))[0][0]
    assert case.get("name") == 'learned:card=<?&"é?' and case.get("classname") == "a? on b"
    assert case[0].tag == "failure" and case[0].get("type") == "not shown"
