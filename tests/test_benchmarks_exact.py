"""The script that computes the optimum of CartPole agents: its tables, and what it leaves when it is run again."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "reproduce"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("resilience_exact")
    monkeypatch.setattr(module, "ZOO", ("zoo:cartpole-dqn",))
    monkeypatch.setattr(module, "HORIZON", 8)
    return module


def test_both_tables_and_a_second_run(script, tmp_path, capsys, monkeypatch):
    out = tmp_path / "exact.json"
    script.main(["--starts", "2", "--profile-starts", "1", "--out", str(out)])
    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if line.startswith("| zoo:cartpole-dqn | ")]
    assert len(rows) == 2 and "| 2 | 14.50 [" in rows[0] and rows[1].startswith("| zoo:cartpole-dqn | 1 | 0 | 0 |")
    kept = json.loads(out.read_text(encoding="utf-8"))["results"]["zoo:cartpole-dqn"]
    assert kept["optimum"]["seeds"] == script.draw_seeds(0, 2) and kept["profile"]["horizon"] == 8
    monkeypatch.setattr(script, "optimum", lambda victim, seeds: pytest.fail("computed again"))
    script.main(["--starts", "2", "--profile-starts", "1", "--out", str(out)])
    assert capsys.readouterr().out == printed
