"""The budget L0: how many elements of a row may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget, Draws, number
from adv_wrappers.core.errors import BudgetError


@dataclass(frozen=True)
class L0(Budget):
    """At most ``k`` elements of a row may change, each within the space's own bounds.

    Raises:
        BudgetError: if ``k`` is not an integer of at least 0.
    """

    name: ClassVar[str] = "l0"
    bounded: ClassVar[bool] = False
    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or int(number("k", self.k)) != self.k:
            raise BudgetError(f"k must be a whole number of elements, got {self.k!r}")
        object.__setattr__(self, "k", int(self.k))

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(x, low), torch.maximum(x, high)

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        y = super().project(y, x, low, high, grid)
        change = (y - x).abs().reshape(len(x), -1)
        if self.k >= change.shape[1]:
            return y
        keep = torch.zeros_like(change, dtype=torch.bool)
        keep.scatter_(1, change.topk(self.k, dim=1).indices, True)
        return torch.where(keep.view(y.shape), y, x)

    def direction(self, gradient: Tensor) -> Tensor:
        """The gradient itself, its largest element one: so the projection keeps the elements that matter most."""
        top = gradient.abs().reshape(len(gradient), -1).amax(1).view(-1, *[1] * (gradient.dim() - 1))
        return gradient / torch.where(top > 0, top, 1.0)

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """``k`` elements chosen evenly, each uniform over the space."""
        y, order = super().draw(x, low, high, draws, grid), draws.uniform().reshape(len(x), -1)
        if self.k >= order.shape[1]:
            return y
        keep = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order.topk(self.k, dim=1).indices, True)
        return torch.where(keep.view(y.shape), y, x)
