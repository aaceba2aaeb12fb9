"""The steps by which networks are trained."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.training.models.networks import descend


def test_a_step_has_the_rate_that_is_asked_for():
    weight = torch.zeros(2, requires_grad=True)
    adam = torch.optim.Adam([weight], lr=9.0, eps=1.0)
    descend(adam, (weight * torch.tensor([3.0, 4.0])).sum(), 0.1, "")
    grad = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(weight.detach(), -0.1 * grad / (grad + 1))


def test_a_loss_that_is_not_finite_ends_the_training():
    weight = torch.ones(1, requires_grad=True)
    with pytest.raises(ValueRangeError, match="the critic diverged"):
        descend(torch.optim.Adam([weight]), (weight / 0).sum(), 0.1, "the critic diverged")
    assert weight.item() == 1.0
