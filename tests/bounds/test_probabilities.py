"""Bounds on log-probabilities: they hold at every point, are reached, and differences beat single bounds."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers.bounds import interval
from adv_wrappers.bounds.probabilities import difference_spec, log_probability
from adv_wrappers.errors import ValueRangeError
from tests.core.helpers import mlp, randn


def test_every_log_probability_lies_within_the_bounds():
    net, centre, actions = mlp(4, 3), randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    low, high = centre - 0.2, centre + 0.2
    with torch.no_grad():
        bounds = interval(net, low, high, difference_spec(actions, 3, torch.float64))
        least, most = log_probability(*bounds, actions)
        x = low + (high - low) * torch.rand(500, 6, 4, dtype=torch.float64)
        values = net(x).log_softmax(-1).gather(-1, actions.expand(500, 6)[..., None]).squeeze(-1)
    assert (values >= least - 1e-12).all() and (values <= most + 1e-12).all()
    assert (most <= 0).all() and (least < most).all()


def test_a_point_gives_the_log_probability():
    net, x, actions = mlp(4, 3), randn(5, 4), torch.tensor([2, 0, 1, 1, 0])
    bounds = interval(net, x, x, difference_spec(actions, 3, torch.float64))
    expected = net(x).log_softmax(-1).gather(-1, actions[:, None]).squeeze(-1)
    for bound in log_probability(*bounds, actions):
        torch.testing.assert_close(bound, expected)


def test_the_bounds_are_reached_where_differences_are_free():
    low, high = torch.tensor([[-1.0, 0.5, 9.0]]), torch.tensor([[2.0, 0.7, 9.0]])  # the last is the action's own
    least, most = log_probability(low, high, torch.tensor([2]))
    at = [torch.tensor([[*end, 0.0]]).log_softmax(-1)[0, 2] for end in ([2.0, 0.7], [-1.0, 0.5])]
    torch.testing.assert_close(torch.cat([least, most]), torch.stack(at))


@pytest.mark.parametrize("actions", [torch.tensor([0.0]), torch.tensor(0), torch.zeros(1, 1, dtype=torch.int64)])
def test_what_are_no_actions(actions):
    with pytest.raises(ValueRangeError, match="int64"):
        difference_spec(actions, 2)
