"""Noise and flips: the baselines that every attack has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation
from adv_wrappers.errors import ValueRangeError


@dataclass(frozen=True)
class Noise(BoundedPerturbation):
    """Random perturbation of observations.

    Args:
        kind: ``uniform`` over the budget (on an integer grid, over its integers), ``sign`` (every feature moves by the
            full radius, up or down), or ``gaussian`` (standard deviation one radius, drawn back into the budget).

    Raises:
        ValueRangeError: for an unknown kind.
    """

    name: ClassVar[str] = "noise"
    capturable: ClassVar[bool] = True
    arrays: ClassVar[bool] = True
    kind: str = "uniform"

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "sign", "gaussian"):
            raise ValueRangeError(f"kind of noise must be uniform, sign or gaussian, got {self.kind!r}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return context.noise(self.kind)


@dataclass(frozen=True)
class Flip(BoundedPerturbation):
    """Move every feature by the full radius towards its opposite, ``x - eps sign(x)`` (Weng et al. 2020, section 4).

    The paper says no more than that observations are flipped within the budget. Under l2 it is a step of one radius
    against the observation.
    """

    name: ClassVar[str] = "flip"
    capturable: ClassVar[bool] = True

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return context.ascend(x, -x, 1.0)
