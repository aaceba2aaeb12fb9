"""Random actions: rand-U and rand-B of Weng et al. 2020 (section 4), and a Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import ActionPerturbation, BoundedPerturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import ValueRangeError

NoiseKind = Literal["uniform", "bernoulli", "gaussian"]


@dataclass(frozen=True)
class ActionNoise(ActionPerturbation, BoundedPerturbation):
    """Random perturbation of actions.

    Args:
        kind: ``uniform`` over the budget (discrete actions: a random allowed action), ``bernoulli`` (plus or minus the
            full radius), or ``gaussian`` (standard deviation one radius, drawn back into the budget).

    Raises:
        ValueRangeError: for ``bernoulli`` and ``gaussian`` on discrete actions.
    """

    name: ClassVar[str] = "action-noise"
    arrays: ClassVar[bool] = True
    kind: NoiseKind = "uniform"

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.discrete and self.kind != "uniform":
            raise ValueRangeError(f"{self.kind} noise is for continuous actions; discrete ones take kind='uniform'")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        if context.mask is not None and x.dim() == 1:
            return _allowed(context, context.space[0])
        return context.noise(self.kind)


def _allowed(context: Context, first: Tensor) -> Tensor:
    """One of the allowed actions of every row, evenly."""
    assert context.mask is not None
    allowed = context.mask.to(torch.float64)
    below = allowed.cumsum(-1)
    u: Tensor = rng.uniform_of(rng.fold(context.key, 0)) * below[:, -1]
    return first + (below <= u[:, None]).sum(-1)
