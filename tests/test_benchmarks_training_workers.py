"""The page of trainings in several processes, made by a training of one rollout."""

from __future__ import annotations

import functools
import json
import sys

import pytest

from tests.result_scripts import result_script

pytest.importorskip("stable_baselines3")


@pytest.fixture(scope="module")
def script():
    with result_script("training_workers") as module:
        yield module


@pytest.mark.slow
def test_trainings_are_compared(script, tmp_path, monkeypatch):
    """Episodes of 20 steps, and rollouts of 8 steps of 4 environments."""
    short = {"env_kwargs": {"max_episode_steps": 20}, "num_envs": 4, "n_steps": 8, "n_epochs": 1, "batch_size": 16}
    monkeypatch.setattr(script, "train_adversary", functools.partial(script.train_adversary, **short))
    given = ["--steps", "1", "--checks", "1", "--episodes", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["training_workers.py", *given])
    script.PAGE.main()
    data, page = (
        json.loads((tmp_path / "training_workers.json").read_text()),
        (tmp_path / "training_workers.md").read_text(),
    )
    one, _, last, both, aside = data["rows"]
    assert [(row["workers"], row["env_workers"]) for row in data["rows"]] == [(1, 1), (2, 1), (2, 2), (1, 1), (2, 1)]
    assert one["sha256"] == last["sha256"] and both["sha256"] == aside["sha256"] and len(both["record"]) == 2
    assert [row["steps"] for row in one["record"]] == [32]
    assert f"| 1 | 2 | 2 | {last['wall']:.1f} |" in page and f"| {last['wall'] / one['wall']:.2f} |" in page
    assert f"| 2 | 2 | 1 | {aside['wall']:.1f} |" in page and f"| {aside['wall'] / both['wall']:.2f} |" in page
    assert str(tmp_path) not in page
    assert f"| 32 | {one['record'][0]['mean_return']:.1f} |" in page


def test_trainings_that_differ_are_found(script):
    same = script.same
    one = {"sha256": "a", "record": [{"mean_return": 1.0, "seconds": 3.0}]}
    assert same(one, {"sha256": "a", "record": [{"mean_return": 1.0, "seconds": 4.0}]})
    assert not same(one, {**one, "sha256": "b"})
    assert not same(one, {**one, "record": [{"mean_return": 1.5, "seconds": 3.0}]})
