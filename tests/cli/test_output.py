"""Tables as wide as the console, all columns with --wide, and with --json rows and nothing else on standard output."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from adv_wrappers.cli import evaluate as evaluation
from adv_wrappers.cli import main
from adv_wrappers.cli.output import print_rows
from adv_wrappers.evaluation.rows.report import Report
from tests.every_case import every_case

main_file = sys.modules["adv_wrappers.cli.main"]  # whose name is the group of commands in its package
DQN = ["CartPole-v1", "--victim", "zoo:cartpole-dqn"]
EVALUATE = ["evaluate", *DQN, "--threat", "noise:eps=0.1", "--episodes", "2", "--num-envs", "2"]
TABLES = (
    "certify", "demo", "evaluate", "imitate", "look", "plot", "resilience", "robustness", "run", "suite", "threats",
    "train-adversary", "train-agent", "train-critic", "train-dynamics", "victims",
)  # fmt: skip


def rows(*words: str, status: int = 0):
    """What a command prints with ``--json``, as JSON, and what it says on standard error."""
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout), done.stderr


@every_case("name", TABLES)
def test_every_command_that_prints_a_table_has_both_options(name: str) -> None:
    options = {option for parameter in main.commands[name].params for option in parameter.opts}
    assert {"--wide", "--json"} <= options


def test_a_table_fits_and_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_file, "_WIDTH", 60)
    done = CliRunner().invoke(main, EVALUATE)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    [left_out] = [line for line in lines if line.startswith("not shown: ")]
    assert "ms/step" in left_out and left_out.endswith(" (--wide shows all)")
    assert all(len(line) <= 60 for line in lines[: lines.index(left_out)])
    assert "return" in done.stdout and re.search(r"60(\.0)? \.\. 60(\.0)?", done.stdout)


def test_wide_prints_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_file, "_WIDTH", 60)
    done = CliRunner().invoke(main, [*EVALUATE, "--wide"])
    heads = [line for line in done.stdout.splitlines() if "ms/step" in line]
    assert done.exit_code == 0 and len(heads) == 1 and "median" in heads[0] and "not shown" not in done.stdout


def test_a_report_that_is_printed_elsewhere_fits_too() -> None:
    done = CliRunner().invoke(main, EVALUATE)
    assert done.exit_code == 0 and "not shown" not in done.stdout, done.output


def test_rows_of_evaluate(tmp_path: Path) -> None:
    found, said = rows(*EVALUATE, "--out", str(tmp_path), "--at-least", "1000", status=1)
    assert found == json.loads((tmp_path / "report.json").read_text())["threats"]
    assert "wrote " in said and "failed: noise:eps=0.1" in said and "no interval of 95%" in said


def test_rows_of_a_suite_and_of_what_it_will_cost(tmp_path: Path) -> None:
    suite = ["suite", *DQN, "--eps", "0.1", "--attack", "noise", "--episodes", "2"]
    found, said = rows(*suite)
    assert [row["attack"] for row in found] == [
        "none", "noise", "worst case: noise, fresh episodes", "worst per episode (optimistic)",
    ]  # fmt: skip
    assert found[1]["strongest"] and found[1]["share"] == 1 and not found[0]["strongest"]
    assert found[1]["other_budget"] is None
    assert "left out: not asked for" in said
    found, said = rows(*suite, "--dry-run", "--out", str(tmp_path / "o"))
    assert [row["name"] for row in found] == ["noise"] and found[0]["seconds"] > 0 and "entries are left" in said
    assert not (tmp_path / "o").exists()


def test_rows_of_a_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    given = {"victims": ["zoo:cartpole-dqn"], "environments": ["CartPole-v1"], "seeds": [0, 1], "episodes": 1}
    plan.write_text(json.dumps({**given, "threats": ["noise:eps=0.1"]}))
    words = ["run", str(plan), "--store", str(tmp_path / "rows.db")]
    found, said = rows(*words, "--dry-run")
    assert {row["name"] for row in found} == {
        "zoo:cartpole-dqn on CartPole-v1, none",
        "zoo:cartpole-dqn on CartPole-v1, noise",
    }
    assert "cells are left" in said
    found, said = rows(*words)
    assert [(row["threat"], row["seeds"], row["std_over_seeds"]) for row in found] == [
        ("none", 2, 0.0), ("noise:eps=0.1", 2, found[1]["std_over_seeds"]),
    ]  # fmt: skip
    assert "rows are in" in said


def test_rows_of_lists() -> None:
    found, _ = rows("threats")
    [pgd] = [row for row in found if row["preset"] == "pgd"]
    assert pgd["perturbs"] == "observation" and pgd["arguments"]["restarts"] == 3
    found, said = rows("victims")
    [dqn] = [row for row in found if row["victim"] == "zoo:cartpole-dqn"]
    assert dqn["environment"] == "CartPole-v1" and dqn["measured"]["mean"] == 500 and said == ""


def test_rows_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, victim, env, threats, _ = evaluation._DEMO[0]
    monkeypatch.setattr(evaluation, "_DEMO", 2 * ((name, victim, env, threats[:1], 1),))
    found, said = rows("demo", "--out", str(tmp_path))
    assert [(row["victim"], row["threat"]) for row in found] == 2 * [(victim, "none"), (victim, threats[0])]
    assert "wrote " in said and Report.from_json(tmp_path / "cartpole.json").threats[1]["threat"] == threats[0]


def test_rows_of_trainings(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    words = ["train-agent", "CartPole-v1", "--adversary", "none", "--steps", "128", "--num-envs", "1", "--checks", "2"]
    found, said = rows(*words, "--episodes", "1", "--out", str(tmp_path))
    assert [row["steps"] for row in found] == [64, 128] and sum(row["best"] for row in found) == 1
    assert "evaluate with: " in said


def test_numbers_that_json_does_not_have_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(
        [{"a": np.array([1.0, np.nan]), "b": float("inf"), "c": np.int64(3), "d": (None, True, "e"), "f": Path("g")}]
    )
    [row] = json.loads(capsys.readouterr().out)
    assert row == {"a": [1.0, None], "b": None, "c": 3, "d": [None, True, "e"], "f": "g"}
