"""Stacks of frames seen by a camera that cannot rewrite its past: the budget Newest, and the memory behind it.

Around a frame stack a perturbation receives every frame several times over, and would change the past along with the
present. Under ``Newest`` a frame may be changed when it is shown first, and is afterwards shown as it was then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.arrays import broad
from adv_wrappers.core.budgets.budget import Budget, LastStep, OfFrames
from adv_wrappers.core.types import Array
from adv_wrappers.errors import BudgetError
from adv_wrappers.utils.validation import Integer


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


class FrameHistory(LastStep):
    """The last stack of every row, as it was received and as it was shown: tensors ``[B, *S]``."""

    def __init__(self, budget: Newest, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._axis = budget.along(shape) % len(shape) + 1  # rows come first
        self._size = budget.size

    def after(self, true: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        return true.clone(), shown.clone()  # which may be the environment's own memory

    def recall(self, stack: Tensor) -> tuple[Tensor, Tensor]:
        """``stack`` with its old frames as they were shown, and which elements are new, bool ``[B, *S]``."""
        if self.leaves is None:
            return stack, torch.ones_like(stack, dtype=torch.bool)
        *last, known = self.leaves
        true, shown, now = (self._frames(part) for part in (*last, stack))
        # one answer a row and frame: all bytes of it are what stood one place further on
        old = (true[:, 1:] == now[:, :-1]).flatten(2).all(-1) & known[:, None]
        seen, free = now.clone(), torch.ones_like(now, dtype=torch.bool)
        for i, rows in enumerate(old.unbind(1)):
            column = broad(rows, now[:, i])
            torch.where(column, shown[:, i + 1], now[:, i], out=seen[:, i])
            free[:, i] = ~column
        return self._stacked(seen), self._stacked(free)

    def _frames(self, stack: Tensor) -> Tensor:
        """Stacks as frames ``[B, F, ...]``."""
        frames: Tensor = stack.unflatten(self._axis, (-1, self._size)).movedim(self._axis, 1)
        return frames

    def _stacked(self, frames: Tensor) -> Tensor:
        """Frames as stacks ``[B, *S]``."""
        stack: Tensor = frames.movedim(1, self._axis).flatten(self._axis, self._axis + 1)
        return stack
