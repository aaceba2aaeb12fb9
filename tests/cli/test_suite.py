"""The command ``suite``: that it says beforehand what it will take."""

from __future__ import annotations

from click.testing import CliRunner

from adv_wrappers.cli import suite
from adv_wrappers.cli.main import main

WORDS = ["suite", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--eps", "0.2", "--no-train", "--episodes", "2"]
WORDS += ["--env-kwargs", "max_episode_steps=40", "--attack", "noise", "--attack", "pgd"]


def test_a_line_says_what_a_suite_will_take(monkeypatch):
    monkeypatch.setattr(suite, "EVERY_S", 0.0)
    done = CliRunner().invoke(main, WORDS)
    assert done.exit_code == 0, done.output
    [line] = [line for line in done.stderr.splitlines() if line.startswith("about ")]
    assert " on this machine: " in line and "pgd" in line and "fresh episodes" in line
    assert "about" not in done.stdout.partition("worst case")[0]


def test_a_dry_run_judges_nothing():
    done = CliRunner().invoke(main, [*WORDS, "--dry-run", "--at-least", "10"])
    assert done.exit_code == 2 and "--dry-run judges nothing" in done.output
