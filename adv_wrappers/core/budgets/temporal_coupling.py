"""Temporally coupled perturbations: what is changed at a step is near what was changed at the step before.

Liang et al. 2024, "Game-Theoretic Robust Reinforcement Learning Handles Temporally-Coupled Perturbations": an adversary
that can turn only so fast, such as a drifting sensor or a slow patch of light. The set is the meeting of two boxes, so
attacks search it, and the projection onto it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from adv_wrappers.core.budgets.budget import LastStep, Linf, OfFrames, TensorBox, nearest_part
from adv_wrappers.core.types import Array
from adv_wrappers.errors import BudgetError
from adv_wrappers.utils.validation import NotNegative


@dataclass(frozen=True)
class Coupled(OfFrames):
    """``within``, and at most ``change`` away from what was changed at the step before, feature by feature.

    The first step of an episode is free. A step that is not attacked changes nothing, and the next is near that. Where
    the space has no value that is near enough, the nearest in it is taken.

    Args:
        within: the budget of a single step, an :class:`Linf`.
        change: how far a perturbation may move from one step to the next, in the unit of ``within``; from twice its
            ``eps`` on it is no limit.

    Raises:
        BudgetError: for a ``within`` that is no Linf, a change that is no number or negative, and at wrapping for a
            change below one level of an integer space.
    """

    name: ClassVar[str] = "coupled"
    within: Linf
    change: NotNegative

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.within, Linf):
            raise BudgetError(f"Coupled needs an Linf, as in Coupled(Linf(0.1), change=0.02), got {self.within!r:.80}")

    @property
    def steps(self) -> Linf:
        """What may change from one step to the next, around what was changed before."""
        return replace(self.within, eps=self.change)

    @property
    def is_limit(self) -> bool:
        """Whether ``change`` allows less than ``within`` does."""
        return self.change < 2 * self.within.eps

    @property
    def own_words(self) -> dict[str, Any]:
        return {"change": self.change}

    def scaled(self, share: float, grid: bool = False) -> Self:
        return replace(self, within=self.within.scaled(share, grid), change=share * self.change)

    def last_step(self, before: LastStep | None) -> LastStep | None:
        return LastChange(self, before) if self.is_limit else None

    def check(self, low: Array, high: Array, grid: bool) -> None:
        self.within.check(low, high, grid)
        if self.is_limit:
            self.steps.check(low, high, grid)


class LastChange(LastStep):
    """What was changed at the last step of every row, ``[B, *S]``, in the dtype that is projected in."""

    def __init__(self, budget: Coupled, before: LastStep | None = None) -> None:
        super().__init__(before)
        self._steps = budget.steps

    def after(self, true: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        return (shown - true,)

    def meet(self, x: Tensor, leaves: Sequence[Tensor], box: TensorBox, grid: bool) -> TensorBox:
        last, known = leaves
        ends = torch.full_like(x, -torch.inf), torch.full_like(x, torch.inf)
        return nearest_part((self._steps.grid_box if grid else self._steps.box)(x + last, *ends), box, known)
