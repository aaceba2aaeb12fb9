"""Quantization: a sensor that reads whole multiples of a step, as a coarse encoder or converter does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation


@dataclass(frozen=True)
class Quantization(BoundedPerturbation):
    """Every feature is rounded to the nearest multiple of twice the budget's radius, and so is off by it at most."""

    name: ClassVar[str] = "quantization"

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        radius = context.budget.spread(x, *context.box)  # of every feature
        step = 2 * torch.as_tensor(radius, dtype=context.dtype, device=x.device)
        return torch.where(step > 0, torch.round(x / step) * step, x)
