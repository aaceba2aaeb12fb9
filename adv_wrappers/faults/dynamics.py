"""Physical parameters that differ from those of the training: drawn anew, or fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation, DynamicsPerturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.faults.actuators import NoiseKind
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.validation import Seed

# ----------------------------------------------------------------------------------------------------------------------
# Physical parameters at random: drawn for a run, for every episode, or for every step.
#
# The sources of Robust-Gymnasium (Gu et al. 2025, ICLR) on the robot and its environment are these, uniform or
# Gaussian, per episode or per step. Here a draw never leaves its budget.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DynamicsNoise(DynamicsPerturbation, BoundedPerturbation):
    """Random physical parameters.

    Args:
        kind: ``uniform`` over the budget, ``bernoulli`` (plus or minus the full radius), or ``gaussian`` (standard
            deviation one radius, drawn back into the budget).
        every: how long a draw holds: ``run`` (all episodes have the same one), ``episode`` or ``step``.
        seed: seeds the draw that holds for a run, of which two layers need different ones; the others follow the reset
            seed.
    """

    name: ClassVar[str] = "dynamics-noise"
    arrays: ClassVar[bool] = True
    kind: NoiseKind = "uniform"
    every: Literal["run", "episode", "step"] = "episode"
    seed: Seed = 0

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        if self.every == "step":
            return context.noise(self.kind)
        key: Any = context.episode_key
        if self.every == "run":
            root = rng.root(self.seed)
            key = rng.as_tensor(root, len(x), x.device) if isinstance(x, Tensor) else np.full(len(x), root, np.uint64)
        return context.noise(self.kind, rng.Draws(key, context.shape, context.dtype))


# ----------------------------------------------------------------------------------------------------------------------
# Physical parameters of given values: what a sweep over a mass plays, and what a search has found.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FixedDynamics(DynamicsPerturbation):
    """The parameters have these values at every step.

    Where no budget is given, every value that the simulator holds is allowed. Under a budget, which can grow while an
    agent trains, they are drawn back to within it.

    Args:
        values: one for all, or one for each in the order of ``at`` (of a kind such as ``mass``, in the order in which
            an error lists its parts; of a force x, y, z): factors of the environment's own (1.5 is half as much again),
            and forces in newtons.

    Raises:
        ValueRangeError: for values that are no finite numbers.
    """

    name: ClassVar[str] = "fixed-dynamics"
    within: ClassVar[Budget | None] = Valid()
    values: float | tuple[float, ...]

    def __post_init__(self) -> None:
        given = self.values if isinstance(self.values, (list, tuple)) else (self.values,)
        found = [finite_float(value) for value in given]
        if not found or None in found:
            raise ValueRangeError(f"values must be finite numbers (1.5;0.7 in a text), got {self.values!r:.80}")
        many = isinstance(self.values, (list, tuple))
        set_fields(self, values=tuple(found) if many else found[0])

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        size = len(self.values) if isinstance(self.values, tuple) else field.shape[0]
        if size != field.shape[0]:
            raise SpaceError(
                f"{self.name} has {size} values for {field.shape[0]} numbers (a force has x, y and z): give one for "
                f"all, or one for each"
            )
        if isinstance(within, Valid):
            values = torch.tensor(self.values, dtype=torch.float64).expand(field.shape).tolist()
            for value, low, high in zip(values, field.low.tolist(), field.high.tolist(), strict=True):
                if not low <= value <= high:
                    raise ValueRangeError(f"values must lie in [{low:g}, {high:g}] here, got {value:g}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return torch.tensor(self.values, dtype=x.dtype, device=x.device).expand_as(x)
