"""Offsets of sensors: a bias that stays the same throughout an episode, and a drift that grows with its steps.

Directions are drawn once an episode, a fair sign for every feature (under l2 a direction on the sphere), and are as
large as the budget allows: real sensors are specified by the largest offset that they may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation
from adv_wrappers.utils.check_numbers import check_integer


def _offset(x: Tensor, context: Context, fraction: float | Tensor) -> Tensor:
    direction = rng.normal(context.episode_key, context.shape, context.dtype).to(x.device)
    return context.ascend(x, direction, fraction)


@dataclass(frozen=True)
class SensorBias(BoundedPerturbation):
    """Every sensor is off by the budget's radius, in a direction that is drawn for the episode."""

    name: ClassVar[str] = "sensor-bias"

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return _offset(x, context, 1.0)


@dataclass(frozen=True)
class SensorDrift(BoundedPerturbation):
    """Sensors drift: the offset grows evenly from 0 at the reset to the budget's radius, and stays there.

    Args:
        steps: of the episode, after which the whole radius is reached.

    Raises:
        ValueRangeError: for less than one step.
    """

    name: ClassVar[str] = "sensor-drift"
    steps: int = 500

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        done = torch.as_tensor(context.t, device=x.device).expand(len(x)).to(context.dtype) / self.steps
        done = done.clamp(max=1.0).view(-1, *(1 for _ in context.shape))
        return torch.where(done > 0, _offset(x, context, done), x)
