"""The largest value of an objective in a box: what gradient steps reach, and what is refused."""

from __future__ import annotations

import torch

from adv_wrappers.training.defences.base import langevin_ascent


def test_the_ascent_reaches_the_corner_where_a_linear_objective_is_largest():
    torch.manual_seed(0)
    low = torch.randn(64, 3)
    high = low + torch.rand(64, 3)
    slopes = torch.randn(64, 3)
    points = langevin_ascent(lambda y: (slopes * y).sum(1), low, high, steps=10, noise=0.0)
    # the first step is random: where it goes down, the other nine do not bring it to the end of the box
    largest = torch.where(slopes > 0, high, low)
    assert (points >= low).all() and (points <= high).all()
    assert ((points - largest).abs() <= 0.1 * (high - low) + 1e-6).all() and not points.requires_grad
