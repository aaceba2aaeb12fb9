"""Noise and flips: the baselines that every attack has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from adv_wrappers.core.arrays import library
from adv_wrappers.core.budgets.budget import Budget, FewFeatures
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import ValueRangeError


@dataclass(frozen=True)
class Noise(BoundedPerturbation):
    """Random perturbation of observations.

    Args:
        kind: ``uniform`` over the budget (on an integer grid, over its integers), ``sign`` (every feature moves by the
            full radius, up or down), or ``gaussian`` (standard deviation one radius, drawn back into the budget). Of
            Discrete, MultiDiscrete and MultiBinary observations ``uniform`` draws another value of every entry, or of
            the ``k`` entries of ``L0(k)``.

    Raises:
        ValueRangeError: for an unknown kind, and at wrapping for ``sign`` and ``gaussian`` on such observations.
    """

    name: ClassVar[str] = "noise"
    capturable: ClassVar[bool] = True
    arrays: ClassVar[bool] = True
    choices: ClassVar[bool] = True
    kind: Literal["uniform", "sign", "gaussian"] = "uniform"

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.discrete and self.kind != "uniform":
            raise ValueRangeError(
                f"{self.kind} noise moves values by distances; observations of {field.leaves[0]} take kind='uniform'"
            )

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return context.noise(self.kind) if context.choices is None else other_values(x, context)


def other_values(x: Tensor, context: Context) -> Tensor:
    """Every entry that the budget allows to change at another of its values, drawn evenly, ``[B, *S]``."""
    xp, (low, high) = library(x), context.box
    u, others = context.uniform(), high - low
    y = low + xp.minimum(xp.floor(u * others), xp.maximum(others - 1, 0 * others))
    y = xp.where(others > 0, y + (y >= x), x)  # of the others, those from the true value on are one further
    if isinstance(context.budget, FewFeatures):
        return torch.where(context.budget.chosen(low, high, context), y, x)
    return y  # type: ignore[no-any-return]


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
