"""--at-least: three verdicts on a claim, and the exit status."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from adv_wrappers.cli import main
from adv_wrappers.cli.gate import judge
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
    assert found.verdict == verdict and words in found.sentence, found.sentence


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


def test_a_claim_that_fails_is_one_line(tmp_path: Path) -> None:
    words = ["--threat", "noise:eps=0.01", "--threat", "worst-action", "--threat", "worst-action:when=every(1)"]
    done = invoke(*EVALUATE, *words, "--minimum", "worst-action", "--at-least", "30", "--out", str(tmp_path / "o"))
    assert done.exit_code == 1 and (tmp_path / "o" / "report.json").exists(), done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("failed: ")]
    assert line.startswith("failed: worst-action leaves 9.") and "less than the 30 asked for" in line
    assert line.endswith("(the worst of 2 rows that fail)")


def test_the_row_that_impact_counts_from_is_not_judged() -> None:
    words = ["--threat", "noise:eps=0.01", "--minimum", "worst-action"]
    done = invoke(*EVALUATE, *words, "--at-least", "30")
    assert done.exit_code == 0 and "passed: noise:eps=0.01 leaves" in done.output, done.output


def test_of_a_suite_the_worst_case_on_fresh_episodes_is_judged(tmp_path: Path) -> None:
    words = ["suite", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--eps", "0.01", "--attack", "noise"]
    words += [*SHORT, "--out", str(tmp_path / "o")]
    done = invoke(*words, "--at-least", "60")
    assert done.exit_code == 1 and "failed: worst case noise on fresh episodes leaves 40" in done.output, done.output
    report = SuiteReport.from_json(tmp_path / "o" / "report.json")
    assert report.attacks == ("noise",) and report.verdict in done.output and "left out: not asked for" in done.output
    assert (tmp_path / "o" / "returns.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at-least", "nan"], "expected a finite number, got nan"),
        (["--at-least", "much"], "'much' is not a valid float"),
    ],
)
def test_wrong_usage_is_status_2_before_anything_is_played(words: list[str], message: str) -> None:
    done = invoke(*EVALUATE, *words)
    assert done.exit_code == 2 and message in done.output and "return" not in done.output.lower(), done.output
