"""The flip baseline of Weng et al. 2020 (section 4): every action turned to its opposite, within the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import ActionPerturbation


@dataclass(frozen=True)
class ActionFlip(ActionPerturbation):
    """Mirror the action in the middle of the action space (in zero where the space is unbounded).

    Discrete actions are numbered from the other end. An opposite that the environment's mask forbids is not taken.
    """

    name: ClassVar[str] = "action-flip"
    arrays: ClassVar[bool] = True

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        y = context.mirror - x
        if context.mask is None or x.dim() != 1:
            return y
        allowed = context.mask.gather(-1, (y - context.space[0]).long()[:, None]).squeeze(-1)
        return torch.where(allowed.bool(), y, x)
