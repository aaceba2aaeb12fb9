"""What a layer keeps of its last step, for budgets in which a step depends on the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adv_wrappers.core.types import Flags, Space

TensorBox = tuple[Tensor, Tensor]


class LastStep:
    """The last step of every row, in one stack of a layer.

    Attributes:
        leaves: tensors ``[B, ...]``, in an order of the subclass, the last of them bool ``[B]``: the rows that had a
            step in this episode. None before the first step.
    """

    leaves: tuple[Tensor, ...] | None = None

    def __init__(self, before: LastStep | None = None) -> None:
        """Begin with what ``before`` kept: that of another budget, which the episode has had until now."""
        if before is not None and type(before) is type(self):
            self.__dict__.update(before.__dict__)

    def act(self, action: Any, space: Space) -> None:
        """An action of this space came in, of all rows."""

    def after(self, true: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        """What is kept of a step, without the last of the leaves.

        Args:
            true, shown: the value of the step as it came in and as it was passed on, ``[B, *S]``.
        """
        raise NotImplementedError

    def meet(self, x: Tensor, leaves: Sequence[Tensor], box: TensorBox, grid: bool) -> TensorBox:
        """The part of a box that the last step allows, or what of the box is nearest to that.

        Args:
            x: true values ``[B, *S]``.
            leaves: those of these rows.
            box: its bounds ``[B, *S]``, of the budget of a single step met with the space.
            grid: whether values are whole numbers.
        """
        raise NotImplementedError

    def remember(self, true: Tensor, shown: Tensor, rows: Flags = True) -> None:
        """Keep a step in the rows of a mask (bool ``[B]``; True for all)."""
        new = self.after(true, shown)
        mask = torch.as_tensor(rows, device=shown.device).expand(len(shown))
        if self.leaves is None:
            self.leaves = *(torch.zeros_like(leaf) for leaf in new), torch.zeros_like(mask)
        *old, known = self.leaves
        self.leaves = *(torch.where(wide(mask, b), b, a) for a, b in zip(old, new, strict=True)), known | mask

    def forget(self, rows: Flags | None = None) -> None:
        """A new episode begins in the rows of a mask; None for all."""
        if rows is None:
            self.leaves = None
        elif self.leaves is not None:
            *old, known = self.leaves
            self.leaves = *old, known & ~torch.as_tensor(rows, device=known.device)


def wide(mask: Tensor, like: Tensor) -> Tensor:
    """A mask ``[B]`` as ``[B, 1, ...]``, of as many dimensions as a batch has."""
    return mask.view(-1, *(1 for _ in like.shape[1:]))


def nearest_part(near: TensorBox, box: TensorBox, known: Tensor) -> TensorBox:
    """``box`` met with ``near`` in the rows that are known; where the two do not meet, what of ``box`` is nearest."""
    low, high = box
    lower, upper = (torch.clamp(end, low, high) for end in near)
    free = ~wide(known, low)
    return torch.where(free, low, lower), torch.where(free, high, upper)
