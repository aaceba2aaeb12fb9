"""Stacks of frames seen by a camera that cannot rewrite its past: the budget Newest, and the memory behind it.

Around a frame stack a perturbation receives every frame several times over, and would change the past along with the
present. Under ``Newest`` a frame may be changed when it is shown first, and is afterwards shown as it was then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget, OfFrames
from adv_wrappers.core.types import Array, Flags
from adv_wrappers.errors import BudgetError
from adv_wrappers.utils.limits import Integer


@dataclass(frozen=True)
class Newest(OfFrames):
    """``within``, for the newest frame of a stack; older frames stay as they were shown when they were new.

    A frame is known again by its bytes: one that was not in the stack before, one place further on, is new. So all of
    them are at the first step of an episode, and after an emulator has skipped ahead.

    Args:
        within: the budget of a new frame (of all new frames together, for L2 and L0).
        axis: of the frames in the observation, the newest last: 0 for Gymnasium's stacks, -1 for SB3's. None takes
            the first; or the last, where that is shorter.
        size: entries of that axis that make one frame (3 for colour frames stacked along their channels).

    Raises:
        BudgetError: without a budget, and at wrapping for a space whose ``axis`` holds no stack, or where nobody can
            tell whether it does: three entries may be colours.
    """

    name: ClassVar[str] = "newest"
    within: Budget
    axis: Integer | None = None
    size: Integer = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.within, Budget) or self.within.frame is not self.within:
            raise BudgetError(f"Newest needs the budget of a frame, such as Newest(Linf(1)), got {self.within!r}")

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """As the budget of a frame is."""
        return self.within.bounded

    @property
    def own_words(self) -> dict[str, Any] | None:
        return {"newest": True} if self.axis is None and self.size == 1 else None

    def along(self, shape: tuple[int, ...]) -> int:
        """The axis of the frames in observations of this shape."""
        if self.axis is not None:
            return self.axis
        axis = -1 if len(shape) == 3 and shape[-1] < shape[0] else 0
        sides = [size for i, size in enumerate(shape) if i != axis % len(shape)]
        picture = len(shape) == 2 and shape[0] >= shape[1]  # one picture without frames
        colours = len(shape) == 3 and (shape[axis] % 3 == 0 or shape[axis] > min(sides))
        if picture or colours:
            raise BudgetError(
                f"newest needs a stack of frames, and an observation of shape {shape} need not be one: say which axis "
                f"holds frames, and how many entries make one, as in within=Newest(..., axis=0, size=3)"
            )
        return axis

    def check(self, low: Array, high: Array, grid: bool) -> None:
        shape = low.shape
        axis = self.along(shape)
        length = shape[axis] if -len(shape) <= axis < len(shape) else 0
        if self.size < 1 or length % self.size or length // self.size < 2:
            raise BudgetError(
                f"Newest(axis={axis}, size={self.size}) needs a stack of at least two frames along that axis, "
                f"the observation has the shape {shape}"
            )
        self.within.check(low, high, grid)


def frames_of(budget: Budget) -> tuple[int | None, int] | None:
    """Axis and size of the frames that a budget tells apart; None for a budget that tells none apart."""
    return (budget.axis, budget.size) if isinstance(budget, Newest) else None


class FrameHistory:
    """The last stack of every row, as it was received and as it was shown: tensors ``[B, *S]``."""

    def __init__(self, budget: Newest, shape: tuple[int, ...]) -> None:
        axis = budget.along(shape)
        self._axis = axis + 1 if axis >= 0 else axis  # rows come first
        self._size = budget.size
        self._true: Tensor | None = None
        self._shown: Tensor | None = None
        self._known: Tensor | None = None  # rows in the midst of an episode

    def recall(self, stack: Tensor) -> tuple[Tensor, Tensor]:
        """``stack`` with its old frames as they were shown, and which elements are new, bool ``[B, *S]``."""
        if self._true is None or self._shown is None or self._known is None:
            return stack, torch.ones_like(stack, dtype=torch.bool)
        axis, length = self._axis, stack.shape[self._axis]
        if stack.device.type == "cpu" and bool(self._known.all()):  # as a rule one frame is new
            kept = length - self._size
            if torch.equal(self._true.narrow(axis, self._size, kept), stack.narrow(axis, 0, kept)):
                free = torch.zeros_like(stack, dtype=torch.bool)
                free.narrow(axis, kept, self._size).fill_(True)
                return torch.cat(
                    [self._shown.narrow(axis, self._size, kept), stack.narrow(axis, kept, self._size)], axis
                ), free
        frames = length // self._size
        rolled = torch.roll(self._true, -self._size, axis) == stack
        # one answer a row and frame: all bytes of it are what stood one place further on
        split = (frames, self._size)
        order = rolled.unflatten(axis, split).movedim(axis if axis > 0 else axis - 1, 1)
        old = order.flatten(2).all(-1)
        old[:, -1] = False
        old &= self._known[:, None]
        lead = (axis if axis > 0 else stack.dim() + axis) - 1
        wide = old.repeat_interleave(self._size, 1).view(
            len(stack), *[1] * lead, length, *[1] * (stack.dim() - lead - 2)
        )
        wide = wide.expand_as(stack)
        return torch.where(wide, torch.roll(self._shown, -self._size, axis), stack), ~wide

    def remember(self, true: Tensor, shown: Tensor, rows: Flags = True) -> None:
        """Keep both stacks in the rows of a mask (bool ``[B]``; True for all)."""
        if rows is True or self._true is None or self._shown is None or self._known is None:
            self._true, self._shown = true.clone(), shown.clone()
            self._known = torch.ones(len(true), dtype=torch.bool, device=true.device)
            if rows is not True:
                self._known &= torch.as_tensor(rows, device=true.device)
            return
        mask = torch.as_tensor(rows, device=true.device)
        wide = mask.view(-1, *[1] * (true.dim() - 1))
        self._true, self._shown = torch.where(wide, true, self._true), torch.where(wide, shown, self._shown)
        self._known = self._known | mask

    def forget(self, rows: Flags | None = None) -> None:
        """A new episode begins in the rows of a mask; None for all."""
        if rows is None:
            self._true = self._shown = self._known = None
        elif self._known is not None:
            self._known = self._known & ~torch.as_tensor(rows, device=self._known.device)
