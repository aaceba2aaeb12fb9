"""The page of trainings in several processes, made by a training of one rollout."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tests.processes import python

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "training_workers.py"
pytest.importorskip("stable_baselines3")


def test_trainings_are_compared(tmp_path):
    done = python(SCRIPT, "--steps", "1", "--checks", "1", "--episodes", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    data, page = (
        json.loads((tmp_path / "training_workers.json").read_text()),
        (tmp_path / "training_workers.md").read_text(),
    )
    one, _, last, both, aside = data["rows"]
    assert [(row["workers"], row["env_workers"]) for row in data["rows"]] == [(1, 1), (2, 1), (2, 2), (1, 1), (2, 1)]
    assert one["sha256"] == last["sha256"] and both["sha256"] == aside["sha256"] and len(both["record"]) == 2
    assert [row["steps"] for row in one["record"]] == [2048]
    assert f"| 1 | 2 | 2 | {last['wall']:.1f} |" in page and f"| {last['wall'] / one['wall']:.2f} |" in page
    assert f"| 2 | 2 | 1 | {aside['wall']:.1f} |" in page and f"| {aside['wall'] / both['wall']:.2f} |" in page
    assert str(tmp_path) not in page
    assert f"| 2048 | {one['record'][0]['mean_return']:.1f} |" in page


def test_trainings_that_differ_are_found(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    same = importlib.import_module("training_workers").same
    one = {"sha256": "a", "record": [{"mean_return": 1.0, "seconds": 3.0}]}
    assert same(one, {"sha256": "a", "record": [{"mean_return": 1.0, "seconds": 4.0}]})
    assert not same(one, {**one, "sha256": "b"})
    assert not same(one, {**one, "record": [{"mean_return": 1.5, "seconds": 3.0}]})
