"""Noise on rewards, within a budget around the true one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation, RewardPerturbation
from adv_wrappers.errors import ValueRangeError

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
        if self.kind not in KINDS:
            raise ValueRangeError(f"kind of reward noise must be {', '.join(KINDS)}, got {self.kind!r}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return context.noise(self.kind)
