"""The script that compares learned timings with others: its search for a threshold, and what its page claims."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.adversaries.director import Director
from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("learned_timing") as module:
        yield module


def test_a_threshold_is_found_and_nothing_is_measured_twice(script):
    asked = []

    def share_above(at):
        asked.append(at)
        return 1 / (1 + np.exp(at))

    known = {}
    for share in (0.1, 0.25):
        at = script.tune(share_above, share, -8.0, 8.0, known, rounds=12)
        assert 0.95 * share <= known[at] <= share
    assert len(asked) == len(set(asked)) == len(known)
    count = len(asked)
    assert script.tune(share_above, 0.25, -8.0, 8.0, known, rounds=12) == at and len(asked) == count


@pytest.mark.parametrize(("found", "expected"), [(0.0, -7.0), (1.0, 8.0)], ids=["never", "always"])
def test_a_timing_that_cannot_be_tuned_attacks_no_more_than_asked(script, found, expected):
    assert script.tune(lambda at: found, 0.1, -8.0, 8.0, {}, rounds=4) == pytest.approx(expected)


def test_a_threshold_moves_the_preference_and_leaves_the_training_alone(script):
    torch.manual_seed(0)
    director = Director(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), discrete=True)
    victim = adv.load_victim("zoo:cartpole-dqn")
    learned = adv.Learned(director, adv.adversaries.Timed(adv.MinBest(), victim), within=adv.Linf(0.1))
    x = torch.randn(256, 4)
    out = director.net(x)
    for threshold in (-0.3, 0.0, 0.3):
        moved = script.with_threshold(learned, threshold)
        assert torch.equal(moved.director(x) == 1, out[:, 1] - out[:, 0] > threshold)
        assert moved.within == learned.within and moved.actor == learned.actor
    assert torch.equal(director.net(x), out)
