"""Budgets: the feasible set around the true value, as a box to search, a projection, and a direction of ascent.

Every function takes batches ``[B, *S]`` of float tensors in the units of the space; ``low`` and ``high`` are the
space's own bounds ``[*S]``, already widened by the engine to contain the true value. On an integer grid the engine
passes ``grid=True``: boxes are rounded inwards, values to the nearest integer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.errors import BudgetError
from adv_wrappers.core.values import Value


class Draws(Protocol):
    """Random numbers of the shape and dtype of the batch; every call is a new draw."""

    def uniform(self) -> Tensor:
        """Uniform in [0, 1)."""

    def normal(self) -> Tensor:
        """Standard normal."""


class Budget(Value):
    """The feasible set around a true value."""

    bounded: ClassVar[bool] = True  # whether the set is bounded even where the space is not

    @property
    def elementwise(self) -> bool:
        """Whether an element's part of every function depends on that element alone, and not on where it stands."""
        return False

    def resolve(self, victim: Any) -> Budget:
        """This budget with what it borrows from the victim (its unit) filled in."""
        return self

    def check(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], grid: bool) -> None:
        """Raise :class:`BudgetError` if the budget makes no sense on a space with these bounds."""

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest box that contains the feasible set: what an attack searches, ``[B, *S]`` twice."""
        raise NotImplementedError

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`box` on an integer grid: around whole ``x``, rounded inwards to whole numbers."""
        lower, upper = self.box(x, low, high)
        return lower.ceil(), upper.floor()

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        """A feasible point for every row of ``y``; ``low`` and ``high`` are those of :meth:`box`."""
        y = torch.clamp(y, low, high)
        return y.round_() if grid else y

    def direction(self, gradient: Tensor) -> Tensor:
        """Steepest ascent for this geometry, of length one in the budget's unit."""
        return gradient.sign()

    def in_units(self, gradient: Tensor) -> Tensor:
        """The gradient with respect to features counted in the budget's own unit (its scale)."""
        return gradient

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        """What a step of length one means: the radius, or half the box where the space alone bounds the set."""
        return (high - low) / 2

    def spread(self, x: Tensor, low: Tensor, high: Tensor) -> float | Tensor:
        """Standard deviation of Gaussian noise, a feature: one radius."""
        return self.unit(low, high)

    def move(self, y: Tensor, gradient: Tensor, length: float | Tensor, grid: bool = False) -> Tensor:
        """``y`` moved by ``length`` (in the budget's unit, a number or ``[B, *S]``) along :meth:`direction`."""
        direction = self.direction(gradient)
        return y + length * direction if isinstance(length, Tensor) else torch.add(y, direction, alpha=length)

    def ascend(
        self, y: Tensor, gradient: Tensor, length: float | Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool,
        spend: bool = False,
    ) -> Tensor:  # fmt: skip
        """:meth:`move`, then :meth:`project`; ``spend`` allows to write over the gradient."""
        return self.project(self.move(y, gradient, length, grid), x, low, high, grid)

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """A random point of the set, uniform in the box (on the grid: uniform over its integers)."""
        u = draws.uniform()
        return low + (u * (high - low + 1)).floor_().clamp_(max=high - low) if grid else low + u * (high - low)


@dataclass(frozen=True)
class Valid(Budget):
    """Anything that the space itself allows. A gradient attack or noise needs the space to be bounded."""

    name: ClassVar[str] = "valid"
    bounded: ClassVar[bool] = False
    elementwise = True

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(x, low), torch.maximum(x, high)


_LARGEST = 1e38  # attacks compute in float32


def number(name: str, value: Any) -> float:
    """``value`` as a float; :class:`BudgetError` unless it is a finite number of at least 0, and float32 holds it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise BudgetError(f"{name} must be a number, got {value!r}")
    try:
        plain = float(value)
    except OverflowError:
        plain = math.inf
    if not 0 <= plain <= _LARGEST:
        raise BudgetError(f"{name} must be finite, at least 0 and no larger than {_LARGEST:g}, got {plain}")
    return plain


def below_one_level(eps: float) -> BudgetError:
    """The error of a radius with which nothing on an integer grid can change."""
    return BudgetError(
        f"eps={eps:g} is below one grey level on an integer space, so nothing could change: eps is in the units of the "
        f"observation (1/255 of the range of uint8 is eps=1). Raise eps, or make the space float with quantize=False"
    )
