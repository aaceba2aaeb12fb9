"""Interval bounds of the victims' own layers (see :mod:`adv_wrappers.bounds.interval`)."""

from __future__ import annotations

from torch import Tensor

from adv_wrappers.bounds.interval import Box, interval, joined, monotone, rule
from adv_wrappers.networks.input_gradient import AppendLogStd, Normalize
from adv_wrappers.victims.card_nets import Critic

monotone(Normalize, AppendLogStd)  # a normaliser divides by what is above 0


@rule(Critic)
def _critic(layer: Critic, low: tuple[Tensor, Tensor], high: tuple[Tensor, Tensor]) -> Box:
    """``(obs, act)`` at both ends; a fixed part has the same ends."""
    seen = interval(layer.normalise, low[0], high[0])
    least, most = interval(layer.net, *joined(seen, (low[1], high[1])))
    return least.squeeze(-1), most.squeeze(-1)
