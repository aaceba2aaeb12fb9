"""Rewards of a training that are noisy, flipped, clipped or late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation, NativePerturbation, RewardPerturbation
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.faults.actuators import NoiseKind
from adv_wrappers.faults.delays import Delay
from adv_wrappers.utils.validation import Limits

# ----------------------------------------------------------------------------------------------------------------------
# Noise on rewards, within a budget around the true one.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RewardNoise(RewardPerturbation, BoundedPerturbation):
    """Noise on rewards.

    Args:
        kind: ``uniform`` over the budget, ``bernoulli`` (plus or minus the full radius), or ``gaussian`` (standard
            deviation one radius, drawn back into the budget).
    """

    name: ClassVar[str] = "reward-noise"
    arrays: ClassVar[bool] = True
    kind: NoiseKind = "uniform"

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return context.noise(self.kind)


# ----------------------------------------------------------------------------------------------------------------------
# What a channel or a careless designer does to rewards: another sign, an end of the scale, a late arrival.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RewardFlip(RewardPerturbation, NativePerturbation):
    """The sign of the reward is flipped; with ``p=0.1`` at a tenth of the steps."""

    name: ClassVar[str] = "reward-flip"
    arrays: ClassVar[bool] = True

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return -x


End = Annotated[float, Limits(-1e12, 1e12)]


@dataclass(frozen=True)
class RewardClip(RewardPerturbation, NativePerturbation):
    """The reward is clipped to a range.

    Args:
        low, high: ends of the range.

    Raises:
        ValueRangeError: for ends that are the wrong way round.
    """

    name: ClassVar[str] = "reward-clip"
    low: End = -1.0
    high: End = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise ValueRangeError(f"low must be at most high, got low={self.low:g}, high={self.high:g}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return x.clamp(self.low, self.high)


@dataclass(frozen=True)
class RewardDelay(RewardPerturbation, Delay):
    """The agent gets the reward of so many steps before, and 0 until there is one; an episode's last ones are lost.

    What is remembered are the steps that are attacked, so this is meant for every step (the timing ``always``).

    Args:
        steps: the delay.
    """

    name: ClassVar[str] = "reward-delay"

    def before(self, x: Tensor, context: Context) -> Tensor:
        return torch.zeros_like(x)
