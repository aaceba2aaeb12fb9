"""Budgets of few features: at most ``k`` elements of a row may change, each within the space or a distance of its own.

``Sparse(k, Linf(eps))`` is O_max of Behzadan and Hsu (2019), the number of features of an observation that an adversary
may perturb, beside the distance that each of them may move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget, Draws, Linf, Valid
from adv_wrappers.core.numpy_and_torch_arithmetic import Scale, broad, flat_rows, largest
from adv_wrappers.core.types import Array, VictimLike
from adv_wrappers.errors import BudgetError
from adv_wrappers.utils.check_numbers import integer
from adv_wrappers.utils.frozen_dataclasses import set_fields


class FewFeatures(Budget):
    """At most ``k`` elements of a row may change, each as the budget ``within`` allows."""

    k: int
    within: Budget

    def __post_init__(self) -> None:
        set_fields(self, k=integer("k", self.k, 0, 2**63 - 1, floats=True, error=BudgetError))

    @property
    def is_zero(self) -> bool:
        return self.k == 0 or self.within.is_zero

    def check(self, low: Array, high: Array, grid: bool) -> None:
        self.within.check(low, high, grid)

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return self.within.box(x, low, high)

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return self.within.grid_box(x, low, high)

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        """The ``k`` largest changes, each counted in the feature's own unit, stay; all others are undone."""
        y = self.within.project(y, x, low, high, grid)
        unit = self.in_units(torch.ones_like(x))
        return torch.where(largest((y - x).abs() / torch.where(unit > 0, unit, 1.0), self.k), y, x)

    def direction(self, gradient: Tensor) -> Tensor:
        """One unit along each of the ``k`` features in which that gains most."""
        return torch.where(largest(self.in_units(gradient).abs(), self.k), self.within.direction(gradient), 0.0)

    def in_units(self, gradient: Tensor) -> Tensor:
        return self.within.in_units(gradient)

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.within.unit(low, high)

    def spread(self, x: Tensor, low: Tensor, high: Tensor) -> float | Tensor:
        return self.within.spread(x, low, high)

    def ascend(
        self,
        y: Tensor,
        gradient: Tensor,
        length: float | Tensor,
        x: Tensor,
        low: Tensor,
        high: Tensor,
        grid: bool,
        spend: bool = False,
    ) -> Tensor:
        """A step in the ``k`` features that gain most at the end of their range; all others return to the true value.

        What this step gains would favour features of little range, and those that were chosen before. A feature that
        takes the place of another begins at the share of its range that the row has reached: from the true value it
        would lose its place again before it gets anywhere.
        """
        sign, room = gradient.sign(), torch.where(gradient > 0, high - x, x - low)
        room = room.clamp(max=torch.finfo(room.dtype).max)  # 0 times infinity would be NaN
        top = broad(flat_rows(gradient).abs().amax(1, keepdim=True), gradient)
        gain = (gradient / torch.where(top > 0, top, 1.0)).abs() * room  # of tiny gradients, too
        changed = y != x
        # where nothing is to be gained, what has changed stays; NaN counts as the largest and is not lost
        chosen = largest(torch.where(gain == 0, changed.to(gain.dtype) - 1, gain), self.k)
        side = torch.where(y > x, high - x, x - low)
        reached = torch.where(changed & (side > 0), (y - x).abs() / side, 0.0)
        share = broad(flat_rows(reached).amax(1, keepdim=True), y).clamp(max=1.0)
        start = torch.where(changed, y, x + share * room * sign)
        return torch.where(chosen, self.within.ascend(start, gradient, length, x, low, high, grid, spend), x)

    def chosen(self, low: Tensor, high: Tensor, draws: Draws) -> Tensor:
        """``k`` elements drawn evenly among those that can change, bool ``[B, *S]``."""
        return largest(torch.where(high > low, draws.uniform(), -1.0), self.k)

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """As many elements as may change, drawn evenly, each uniform over its range."""
        y = self.within.draw(x, low, high, draws, grid)
        return torch.where(self.chosen(low, high, draws), y, x)


@dataclass(frozen=True)
class L0(FewFeatures):
    """At most ``k`` elements of a row may change, each within the space's own bounds.

    Raises:
        BudgetError: if ``k`` is not an integer of at least 0.
    """

    name: ClassVar[str] = "l0"
    bounded: ClassVar[bool] = False
    within: ClassVar[Budget] = Valid()  # type: ignore[misc]
    k: int

    def scaled(self, share: float, grid: bool = False) -> L0:
        return L0(round(share * self.k))


@dataclass(frozen=True)
class Sparse(FewFeatures):
    """At most ``k`` elements of a row may change, each of them within ``eps`` times its scale.

    Args:
        k: how many, at least 0.
        within: how far each may move, :class:`Linf` with or without a scale.

    Raises:
        BudgetError: if ``k`` is not an integer of at least 0, or ``within`` is no :class:`Linf`; at wrapping for what
            :class:`Linf` refuses.

    >>> x = torch.zeros(1, 3)
    >>> low, high = Sparse(1, Linf(0.5)).box(x, x - 9, x + 9)
    >>> Sparse(1, Linf(0.5)).project(torch.tensor([[0.1, -0.3, 0.2]]), x, low, high)
    tensor([[ 0.0000, -0.3000,  0.0000]])
    """

    name: ClassVar[str] = "sparse"
    k: int
    within: Linf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.within, Linf):
            raise BudgetError(
                f"Sparse needs how far each element may move, such as Sparse(2, Linf(0.1)), got {self.within!r:.80}"
            )

    @property
    def eps(self) -> float:
        """The radius of :attr:`within`."""
        return self.within.eps

    @property
    def scale(self) -> Scale:
        """The scale of :attr:`within`."""
        return self.within.scale

    def scaled(self, share: float, grid: bool = False) -> Sparse:
        """As many elements, each within ``share`` of its radius."""
        return replace(self, within=self.within.scaled(share, grid))

    def resolve(self, victim: VictimLike | None) -> Sparse:
        inner = self.within.resolve(victim)
        return self if inner is self.within else replace(self, within=inner)
