"""The page of trainings in several processes, made by a training of one rollout."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script

pytest.importorskip("stable_baselines3")


@pytest.fixture(scope="module")
def script():
    with result_script("training_workers") as module:
        yield module


def test_trainings_that_differ_are_found(script):
    same = script.same
    one = {"sha256": "a", "record": [{"mean_return": 1.0, "seconds": 3.0}]}
    assert same(one, {"sha256": "a", "record": [{"mean_return": 1.0, "seconds": 4.0}]})
    assert not same(one, {**one, "sha256": "b"})
    assert not same(one, {**one, "record": [{"mean_return": 1.5, "seconds": 3.0}]})
