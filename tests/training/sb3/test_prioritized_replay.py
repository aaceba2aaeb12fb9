"""Prioritised replay: frequencies and weights of draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.training.sb3.prioritized_dqn import SMALLEST, PrioritizedReplayBuffer

OBS = spaces.Box(-10.0, 10.0, (2,), np.float32)
ACT = spaces.Discrete(3)


def filled(count, rows=1, size=None, **arguments):
    """A buffer of ``count`` steps: observation k, reward k, in every row's own tens."""
    buffer = PrioritizedReplayBuffer((size or count) * rows, OBS, ACT, "cpu", rows, **arguments)
    for step in range(count):
        number = step + 10.0 * np.arange(rows)
        obs = np.stack([number, number], 1).astype(np.float32)
        infos = [{"TimeLimit.truncated": step == 1}] * rows
        buffer.add(obs, obs + 0.5, np.arange(rows) % 3, number, np.full(rows, step in (1, 2)), infos)
    return buffer


@pytest.mark.parametrize("rows", [1, 2])
def test_transitions_are_drawn_in_proportion_to_their_priority(rows):
    buffer = filled(4, rows, alpha=0.5)
    count = 4 * rows
    errors = np.arange(count) - 2.0
    buffer.update(np.arange(count), errors)
    expected = (np.abs(errors) + SMALLEST) ** 0.5
    np.random.seed(0)
    drawn = np.bincount(np.concatenate([buffer.draw(16, 1.0)[0] for _ in range(500)]), minlength=count) / 8000
    np.testing.assert_allclose(drawn, expected / expected.sum(), atol=0.02)


def test_a_draw_takes_one_of_each_equal_part():
    buffer = filled(8)
    assert sorted(buffer.draw(8, 1.0)[0]) == list(range(8))  # equal priorities, as many parts as transitions


@pytest.mark.parametrize("rows", [1, 2])
def test_without_an_exponent_draws_are_even(rows):
    buffer = filled(4, rows, size=9, alpha=0.0)
    buffer.update(np.arange(4 * rows), np.arange(4.0 * rows))
    np.random.seed(0)
    found, weights = buffer.draw(8000, 1.0)
    np.testing.assert_allclose(np.bincount(found) / 8000, np.full(4 * rows, 1 / (4 * rows)), atol=0.02)
    assert (weights == 1).all() and weights.dtype == np.float32
    assert set(buffer.transitions(found).rewards[:, 0].tolist()) == {
        k + 10.0 * row for k in range(4) for row in range(rows)
    }


def test_weights_correct_the_draws_and_none_is_above_one():
    buffer = filled(4, alpha=1.0)
    buffer.update(np.arange(4), np.array([1.0, 2.0, 4.0, 8.0]))
    found, weights = buffer.draw(64, 0.5)
    priorities = np.array([1.0, 2.0, 4.0, 8.0])[found]
    np.testing.assert_allclose(weights, ((4 * priorities / 15) / (4 * 1 / 15)) ** -0.5, rtol=1e-5)
    assert weights.dtype == np.float32 and weights.max() == 1
    assert (buffer.draw(8, 0.0)[1] == 1).all()


def test_a_new_transition_has_the_highest_priority_so_far():
    buffer = filled(3, size=4, alpha=1.0)
    buffer.update(np.array([0, 1]), np.array([5.0, 0.5]))
    obs = np.zeros((1, 2), np.float32)
    for _ in range(2):  # the second takes the place of the oldest one
        buffer.add(obs, obs, np.array([0]), np.zeros(1), np.zeros(1), [{}])
    np.testing.assert_allclose(buffer.priorities, [5, 0.5, 1, 5], rtol=1e-5)
    buffer.reset()
    assert buffer.size() == 0


def test_transitions_are_those_that_were_added():
    data = filled(4, rows=2).transitions(np.array([0, 3, 4, 7]))  # steps 0, 1, 2, 3 of rows 0, 1, 0, 1
    numbers = torch.tensor([0.0, 11.0, 2.0, 13.0])
    assert torch.equal(data.observations, torch.stack([numbers, numbers], 1))
    assert torch.equal(data.next_observations, data.observations + 0.5)
    assert torch.equal(data.rewards[:, 0], numbers) and torch.equal(data.actions[:, 0], torch.tensor([0, 1, 0, 1]))
    assert torch.equal(data.dones[:, 0], torch.tensor([0.0, 0.0, 1.0, 0.0]))  # step 1 ended by the clock


def test_bad_input_is_refused():
    with pytest.raises(ValueRangeError, match=r"alpha must be a finite number from 0 to 1, got 2"):
        filled(1, alpha=2)
    with pytest.raises(ValueRangeError, match="optimize_memory_usage must be False"):
        filled(1, optimize_memory_usage=True)
    with pytest.raises(ValueRangeError, match="without transitions"):
        filled(0, size=3).draw(1, 0.4)
    with pytest.raises(ValueRangeError, match="without transitions"):
        filled(0, size=3, alpha=0.0).draw(1, 0.4)
