"""Rewards of a training that are noisy, flipped, clipped or late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation, NativePerturbation, RewardPerturbation
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import check_choice, check_integer, check_number

# ----------------------------------------------------------------------------------------------------------------------
# Noise on rewards, within a budget around the true one.
# ----------------------------------------------------------------------------------------------------------------------


KINDS = ("uniform", "bernoulli", "gaussian")


@dataclass(frozen=True)
class RewardNoise(RewardPerturbation, BoundedPerturbation):
    """Noise on rewards.

    Args:
        kind: ``uniform`` over the budget, ``bernoulli`` (plus or minus the full radius), or ``gaussian`` (standard
            deviation one radius, drawn back into the budget).

    Raises:
        ValueRangeError: for an unknown kind.
    """

    name: ClassVar[str] = "reward-noise"
    arrays: ClassVar[bool] = True
    kind: str = "uniform"

    def __post_init__(self) -> None:
        check_choice("kind of reward noise", self.kind, KINDS)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return context.noise(self.kind)


# ----------------------------------------------------------------------------------------------------------------------
# What a channel or a careless designer does to rewards: another sign, an end of the scale, a late arrival.
# ----------------------------------------------------------------------------------------------------------------------


MOST_DELAY = 1000  # steps


@dataclass(frozen=True)
class RewardFlip(RewardPerturbation, NativePerturbation):
    """The sign of the reward is flipped; with ``p=0.1`` at a tenth of the steps."""

    name: ClassVar[str] = "reward-flip"
    arrays: ClassVar[bool] = True

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return -x


@dataclass(frozen=True)
class RewardClip(RewardPerturbation, NativePerturbation):
    """The reward is clipped to a range.

    Args:
        low, high: ends of the range.

    Raises:
        ValueRangeError: for ends that are no finite numbers, or the wrong way round.
    """

    name: ClassVar[str] = "reward-clip"
    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_number("low", self.low, -1e12, 1e12)
        check_number("high", self.high, -1e12, 1e12)
        if self.low > self.high:
            raise ValueRangeError(f"low must be at most high, got low={self.low}, high={self.high}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return x.clamp(self.low, self.high)


@dataclass(frozen=True)
class RewardDelay(RewardPerturbation, NativePerturbation):
    """The agent gets the reward of so many steps before, and 0 until there is one; an episode's last ones are lost.

    What is remembered are the steps that are attacked, so this is meant for every step (the timing ``always``).

    Args:
        steps: the delay, 1 to 1000.

    Raises:
        ValueRangeError: for any other number.
    """

    name: ClassVar[str] = "reward-delay"
    within: ClassVar[Budget | None] = Valid()
    steps: int = 1

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1, MOST_DELAY)

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """The rewards under way, oldest first, 0 before there were any."""
        return {"past": torch.zeros(len(x), self.steps, *x.shape[1:], dtype=x.dtype, device=x.device)}

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        memory = context.memory
        assert memory is not None
        past = memory["past"].to(x)
        memory["past"] = torch.cat([past[:, 1:], x.unsqueeze(1)], 1).to(memory["past"])
        return past[:, 0]
