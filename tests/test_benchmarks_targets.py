"""The script that trains the agents of Behzadan and Hsu (2019): what it keeps, and that it goes on."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import adv_wrappers as adv

pytest.importorskip("stable_baselines3")

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "reproduce"


@pytest.fixture
def targets(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("resilience_targets", FOLDER / "resilience_targets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CHECKPOINTS", 2)
    for settings in module.TABLES.values():
        monkeypatch.setitem(settings, "steps", 120)
    return module


def test_the_best_checkpoint_is_a_card_and_a_second_run_trains_nothing(targets, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["resilience_targets.py", "--out", str(tmp_path), "--only", "dqn", "a2c"])
    targets.main()
    results = json.loads((tmp_path / "targets.json").read_text())
    assert set(results) == {"dqn", "a2c"}
    for name, row in results.items():
        victim = adv.load_victim(f"card:{tmp_path / name}")
        assert victim.kind == {"dqn": "q", "a2c": "logits"}[name]
        best = max(point["mean_return"] for point in row["checkpoints"])
        assert [point["steps"] for point in row["checkpoints"]] == [60 if name == "dqn" else 64, 120]
        assert row["checkpoint"] == [point for point in row["checkpoints"] if point["mean_return"] == best][-1]
        assert victim.card["checkpoint"] == row["checkpoint"] and row["lowest"] <= row["mean_return"]
    said = capsys.readouterr().out
    monkeypatch.setattr(targets, "train", None)
    targets.main()
    assert capsys.readouterr().out == said and json.loads((tmp_path / "targets.json").read_text()) == results
