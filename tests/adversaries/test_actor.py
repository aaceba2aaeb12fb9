"""Steers: what they stand for in a range of actions that is not symmetric, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.adversaries.actor import check_actions, scale_to_range
from adv_wrappers.errors import ValueRangeError

RANGE = spaces.Box(np.array([0.0, -3.0]), np.array([2.0, 5.0]), dtype=np.float64)


@pytest.mark.parametrize("stretch", [1.0, 3.0])
def test_an_action_is_a_part_of_the_range_around_its_middle(stretch):
    action = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [0.5, -0.25]], dtype=torch.float64)
    middle, half = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 4.0])
    torch.testing.assert_close(scale_to_range(RANGE, action, stretch), (middle + stretch * half * action).double())
    torch.testing.assert_close(scale_to_range(RANGE, action[1:2]), torch.from_numpy(RANGE.high)[None])
    torch.testing.assert_close(scale_to_range(RANGE, action[2:3]), torch.from_numpy(RANGE.low)[None])


def test_choices_end_below_their_number():
    assert check_actions(torch.tensor([0, 1, 2]), spaces.Discrete(3), 3).tolist() == [0, 1, 2]
    for wrong in (3, -1):
        with pytest.raises(ValueRangeError, match="integers below 3"):
            check_actions(torch.tensor([0, 1, wrong]), spaces.Discrete(3), 3)
