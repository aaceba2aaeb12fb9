"""Recorded perturbations: for their own episodes and observations alone, and in files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import ThreatError
from adv_wrappers.evaluation.searches.beam import RecordedPerturbations, RecordedStep, digest_of
from tests.evaluation.searches.test_fewest_perturbations import Walk


def recorded(seed=3, times=(0, 2), move=0.25):
    """Steps of an episode of :class:`Walk` in which every action is 1, its observations moved."""
    env, steps = Walk(), []
    obs, _ = env.reset(seed=seed)
    for t in range(max(times) + 1):
        if t in times:
            steps.append(RecordedStep(seed, t, digest_of(obs), obs + move))
        obs, *_ = env.step(1)
    return RecordedPerturbations(steps)


def moves(env, seed, actions=(1, 1)):
    """By how much the observations of an episode are moved, and which of them count as attacked."""
    true, (shown, info) = Walk(), env.reset(seed=seed)
    found = [(shown - true.reset(seed=seed)[0], info)]
    for action in actions:
        shown, *_, info = env.step(action)
        found.append((shown - true.step(action)[0], info))
    attacked = [next(iter(info["adv_wrappers"].values()))["attacked"] for _, info in found]
    return [float(move.max()) for move, _ in found], attacked


@pytest.mark.parametrize(
    ("seed", "actions", "expected"),
    [(3, (1, 1), [0.25, 0, 0.25]), (3, (2, 1), [0.25, 0, 0]), (4, (1, 1), [0, 0, 0])],
)
def test_other_episodes_and_observations_are_left_alone(seed, actions, expected):
    env = adv.PerturbObservation(Walk(), recorded(), within=adv.Linf(1.0))
    moved, attacked = moves(env, seed, actions)
    assert moved == pytest.approx(expected) and attacked == [move > 0 for move in expected]
    again, _ = moves(env, seed, actions)  # a second reset with the seed is the same episode
    assert again == moved


def test_the_budget_is_the_layers_own():
    env = adv.PerturbObservation(Walk(), recorded(move=9.0), within=adv.Linf(0.5))
    assert moves(env, 3)[0] == pytest.approx([0.5, 0, 0.5])


def test_files(tmp_path):
    with pytest.raises(ThreatError, match="a record without a file has no JSON form"):
        recorded().to_dict()
    kept = recorded().save(tmp_path / "record.npz")
    data = json.loads(json.dumps(ThreatModel("observation", kept, adv.Linf(1.0)).to_dict()))
    again = ThreatModel.from_dict(data)
    env = adv.PerturbObservation(Walk(), again)
    assert moves(env, 3)[0] == pytest.approx([0.25, 0, 0.25])
    recorded(move=0.5).save(tmp_path / "record.npz")
    with pytest.raises(ThreatError, match=r"record.npz changed: expected sha256 \w{12}, got"):
        ThreatModel.from_dict(data)
    empty = RecordedPerturbations(()).save(tmp_path / "empty.npz")
    assert RecordedPerturbations(file=empty.file).steps == ()
    (tmp_path / "record.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(ThreatError, match="cannot read"):
        ThreatModel.from_dict(data)
    with pytest.raises(ThreatError, match="needs steps=, or file="):
        RecordedPerturbations()


def test_whole_numbers():
    space = spaces.Box(0, 255, (2,), np.uint8)
    assert digest_of(space.low) != digest_of(space.high) and len(digest_of(space.low)) == 16
