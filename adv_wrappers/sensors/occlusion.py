"""Occlusion: a rectangle of the picture that shows nothing, such as dirt on a lens or something in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.spaces import Field, layout_of
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.utils.check_numbers import check_integer, check_number


@dataclass(frozen=True)
class Occlusion(NativePerturbation):
    """A rectangle of every picture is of one grey, at a place that is drawn for the episode or for every step.

    All frames of a stack and all colours are covered alike.

    Args:
        height, width: of the rectangle, pixels.
        value: the grey, in the unit of the observation, drawn into the space.
        per: ``episode`` or ``step``: how long it stays where it is.
        layout: which axis is what (see :func:`adv_wrappers.core.spaces.layout_of`); None infers it.

    Raises:
        ValueRangeError: for a size below one pixel, a value that is no number, and another ``per``.
        SpaceError: at wrapping, for observations that are no pictures, or smaller than the rectangle.
    """

    name: ClassVar[str] = "occlusion"
    height: int = 8
    width: int = 8
    value: float = 0.0
    per: str = "episode"
    layout: str | None = None

    def __post_init__(self) -> None:
        check_integer("height", self.height, 1)
        check_integer("width", self.width, 1)
        check_number("value", self.value)
        if self.per not in ("episode", "step"):
            raise ValueRangeError(f"per must be episode or step, got {self.per!r:.80}")

    def _sides(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The axes of height and width in an observation of this shape."""
        layout = layout_of(shape, self.layout)
        return layout.index("H"), layout.index("W")

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        rows, columns = (field.shape[axis] for axis in self._sides(field.shape))
        if self.height > rows or self.width > columns:
            size = f"{self.height}x{self.width}"
            raise SpaceError(f"{self.name} of {size} pixels does not fit a picture of {rows}x{columns}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        key = context.key if self.per == "step" else context.episode_key
        places = rng.uniform(rng.fold(key, 1), (2,), torch.float64).to(x.device).unbind(1)
        covered = torch.ones_like(x, dtype=torch.bool)
        for size, axis, place in zip((self.height, self.width), self._sides(context.shape), places, strict=True):
            length = context.shape[axis]
            first = torch.floor(place * (length - size + 1))[:, None]
            at = torch.arange(length, device=x.device)[None]
            sides = (length if other == axis else 1 for other in range(len(context.shape)))
            covered &= ((at >= first) & (at < first + size)).view(len(x), *sides)
        low, high = context.space
        grey = torch.full_like(low, self.value).clamp(low, high).to(x)
        return torch.where(covered, grey, x)
