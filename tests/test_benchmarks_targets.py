"""The script that trains the agents of Behzadan and Hsu (2019): what it keeps, and that it goes on."""

from __future__ import annotations

import json
import sys

import pytest

import adv_wrappers as adv
from tests.result_scripts import result_script

pytest.importorskip("stable_baselines3")


@pytest.fixture
def targets(monkeypatch):
    with result_script("resilience_targets") as module:
        monkeypatch.setattr(module, "CHECKPOINTS", 2)
        for settings in module.TABLES.values():
            monkeypatch.setitem(settings, "steps", 120)
        yield module


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
