"""The command line: plain output, clear errors, files where they were asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from adv_wrappers import presets
from adv_wrappers.cli import main, runs
from adv_wrappers.evaluation.report import Report
from adv_wrappers.victims import zoo_names


def test_threats_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "adv_wrappers", "threats"], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in presets)
    assert "\x1b" not in done.stdout and "random_start=true" in done.stdout


def test_victims_lists_the_zoo() -> None:
    done = CliRunner().invoke(main, ["victims"])
    assert done.exit_code == 0 and all(f"zoo:{name}" in done.output for name in zoo_names())


def test_evaluate_writes_a_table_a_report_and_a_figure(tmp_path: Path) -> None:
    words = "evaluate CartPole-v1 --victim zoo:cartpole-dqn --threat pgd:eps=0.3 --threat noise:eps=0.1 --episodes 2"
    done = CliRunner().invoke(main, [*words.split(), "--seed", "5", "--num-envs", "2", "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    assert "zoo:cartpole-dqn on CartPole-v1, 2 episodes, seed 5" in done.output and "\x1b" not in done.output
    report = Report.from_json(tmp_path / "o" / "report.json")
    assert [row["threat"] for row in report.threats] == ["none", "pgd:eps=0.3", "noise:eps=0.1"] and report.seed == 5
    assert (tmp_path / "o" / "returns.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(("given", "kind"), [("worst-action", "argmin-Q agent"), ("3", "fixed"), (None, "fixed")])
def test_what_impact_counts_from(tmp_path: Path, given: str | None, kind: str) -> None:
    words = ["evaluate", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--episodes", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, [*words, *(["--minimum", given] if given else [])])
    assert done.exit_code == 0, done.output
    minimum = Report.from_json(tmp_path / "report.json").minimum
    assert minimum["kind"] == kind and minimum["value"] == {"3": 3, None: 0}.get(given, minimum["value"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--minimum", "low"],
            "must be a finite return, 'worst-action'",
        ),
        (["CartPole-v1", "--victim", "zoo:nobody"], "no agent 'nobody'"),
        (["Acrobot-v1", "--victim", "zoo:cartpole-dqn"], "observation space"),
        (["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--threat", "nonsense"], "unknown preset"),
        (["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--device", "cuda:99"], "device"),
        (["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--episodes", "0"], "--episodes"),
    ],
)
def test_errors_are_one_clear_line(words: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["evaluate", *words])
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output
    assert len([line for line in done.output.splitlines() if line.startswith("Error: ")]) == 1


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, victim, env, threats, _ = runs._DEMO[0]
    monkeypatch.setattr(runs, "_DEMO", ((name, victim, env, threats[:1], 1),))
    done = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cartpole.json", "cartpole.png"]


def test_look_writes_two_figures_and_a_table(tmp_path: Path) -> None:
    out = tmp_path / "new" / "pong.png"
    words = ["look", "PongNoFrameskip-v4", "--step", "2", "--threat", "rotation:degrees=4", "--threat", "noise:eps=3"]
    done = CliRunner().invoke(main, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "PongNoFrameskip-v4, step 2" in done.output and "rotation degrees=4" in done.output
    assert "\x1b" not in done.output and "high band" in done.output and " 3 " in done.output
    assert [p.name for p in sorted(out.parent.iterdir())] == ["pong-spectrum.png", "pong.png"]
    assert all(p.read_bytes()[1:4] == b"PNG" for p in out.parent.iterdir())
    assert "as it comes" not in done.output


def test_look_says_what_an_environment_has_already(tmp_path: Path) -> None:
    words = ["look", "adv_wrappers:adv-daylight/Pong-Rotation-v0", "--step", "1", "--threat", "shift"]
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "sheet.png")])
    assert done.exit_code == 0, done.output
    assert "as it comes: rotation:degrees=3" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["CartPole-v1"], "only images can be looked at"),
        (["CartPole-v1", "--raw"], "Atari"),
        (["Nothing-v7"], "cannot make the environment"),
        (["PongNoFrameskip-v4", "--step", "0", "--threat", "fgsm:eps=1"], "needs a victim"),
        (["PongNoFrameskip-v4", "--step", "0", "--threat", "worst-action"], "perturbs the action"),
        (["PongNoFrameskip-v4", "--step", "-1"], "--step"),
    ],
)
def test_look_says_what_it_cannot_show(words: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["look", *words, "--out", str(tmp_path / "sheet.png")])
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output
    assert not list(tmp_path.iterdir())
