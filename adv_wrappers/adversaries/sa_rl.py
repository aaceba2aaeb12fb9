"""SA-RL (Zhang et al. 2021, "Robust RL on State Observations with Learned Optimal Adversary").

The adversary's action is the perturbed point itself: ``x + radius * action``, a point of the box for an action in
[-1, 1]. The released code squashes a Gaussian policy's sample with hardtanh, which the bounds of the space do here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.adversaries.actor import Actor, ActorSpace, unit_box
from adv_wrappers.core.engine.context import Context


@dataclass(frozen=True)
class SARL(Actor):
    """The adversary's action is a point of the box around the true observation, ``[n]`` numbers in [-1, 1].

    Args:
        victim: unused; there so that all actors are made alike.
    """

    name: ClassVar[str] = "sa-rl"
    victim: Any = None

    @property
    def needs_victim(self) -> bool:
        return False

    def action_space(self, shape: tuple[int, ...]) -> ActorSpace:
        return unit_box(math.prod(shape))

    def __call__(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        move = action.to(x.dtype).clamp(-1, 1).view(x.shape)
        if context.budget.bounded:
            return x + move * context.budget.spread(x, context.low, context.high)
        return (context.low + context.high) / 2 + move * (context.high - context.low) / 2
