"""SA-RL (Zhang et al. 2021, "Robust RL on State Observations with Learned Optimal Adversary"): the steer is the point.

The adversary chooses every feature of the perturbation itself: ``x + radius * steer``, a point of the box for a steer
in [-1, 1]. The released code squashes a Gaussian policy's sample with hardtanh, which the bounds of the space do here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.adversaries.actor import Actor, Steers, unit_box
from adv_wrappers.core.context import Context


@dataclass(frozen=True)
class SARL(Actor):
    """The steer is a point of the box around the true observation, ``[n]`` numbers in [-1, 1].

    Args:
        victim: looked at by nobody; kept so that all actors are made alike.
    """

    name: ClassVar[str] = "sa-rl"
    needs_victim: ClassVar[bool] = False
    victim: Any = None

    def steer_space(self, shape: tuple[int, ...]) -> Steers:
        return unit_box(math.prod(shape))

    def __call__(self, x: Tensor, steer: Tensor, context: Context) -> Tensor:
        move = steer.to(x.dtype).clamp(-1, 1).view(x.shape)
        if context.budget.bounded:
            return x + move * context.budget.spread(x, context.low, context.high)
        return (context.low + context.high) / 2 + move * (context.high - context.low) / 2
