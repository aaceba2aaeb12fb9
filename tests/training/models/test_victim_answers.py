"""Queries: every one is counted, of single rows and several, of recurrent victims, and at random points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.training.models import imitation
from adv_wrappers.training.models.imitation import NEARBY, Labels, ask, ask_nearby, episode_seeds
from tests.training.toys import POINT, TWO, Alternating, Plane, Rule


def test_seeds_of_trainings_are_even_and_those_of_tests_odd():
    drawn = [[*itertools.islice(episode_seeds([0, 1], test), 50)] for test in (False, True)]
    assert {seed % 2 for seed in drawn[0]} == {0} and {seed % 2 for seed in drawn[1]} == {1}
    assert drawn[0] == [*itertools.islice(episode_seeds([0, 1], False), 50)] and len({*drawn[0]}) == 50


def test_a_recurrent_victim_keeps_its_state():
    victim = adv.from_module(Alternating(), POINT, TWO, "logits", initial_state=torch.zeros)
    labels = ask(victim, Plane, episode_seeds([0], False), count=14)
    assert labels.actions.tolist() == [1, 0, 1, 0, 1, 0, 1] * 2


@pytest.mark.parametrize("count", [19, 20, 21])
def test_several_rows_ask_no_more_than_they_may(count, monkeypatch):
    rule = Rule()
    victim = adv.from_module(rule, POINT, TWO, "action")
    rule.asked = 0
    monkeypatch.setattr(imitation, "_LENGTH", 5)
    labels = ask(victim, Plane, episode_seeds([0], False), count=count)
    assert len(labels) == rule.asked == count


@pytest.mark.parametrize(("dtype", "high"), [(np.float32, 1.0), (np.uint8, 3)])
def test_random_points_are_near_what_was_seen_and_inside_the_space(dtype, high):
    space = spaces.Box(0, high, (2,), dtype)
    victim = adv.from_module(Rule(), space, TWO, "action")
    seen = np.array([[0, 0], [high, 0]], dtype)
    found = ask_nearby(victim, space, Labels(seen, np.zeros(2), np.array([0, NEARBY])), np.array([2.0, 0.1]), 200, 0)
    assert found.observations.dtype == dtype and (found.sources == NEARBY).all() and len(found) == 200
    low, top = found.observations.min(0), found.observations.max(0)
    assert low.tolist() == [0, 0] and 0.5 * min(high, 2) < top[0] <= min(high, 2) and top[1] <= 0.1
    assert found.actions.tolist() == Rule()(found.observations.astype(float)).tolist()
    again = ask_nearby(victim, space, Labels(seen, np.zeros(2), np.array([0, NEARBY])), np.array([2.0, 0.1]), 200, 0)
    assert np.array_equal(found.observations, again.observations)
