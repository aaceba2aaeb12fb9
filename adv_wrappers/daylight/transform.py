"""The base of the daylight transforms: parameters that are numbers, or ranges drawn once an episode or once a step.

A camera that hangs crooked by an unknown angle is ``Rotation((-5, 5))``: the angle is drawn from the layer's keys, so
it follows the reset seed, and is the same whatever the number of environments or the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core import keys
from adv_wrappers.core.arrays import Field
from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import SpaceError, ValueRangeError
from adv_wrappers.core.frames import plain
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.daylight.images import Limits, choice, layout_of

Range = float | tuple[float, float]
WholeRange = int | tuple[int, int]


@dataclass(frozen=True)
class Transform(Perturbation):
    """A transform of images, in the dtype of the space.

    Args:
        layout: which axis of an observation is what (see :func:`adv_wrappers.daylight.images.layout_of`); None infers.
        per: a parameter given as a range ``(low, high)`` is drawn once an ``episode`` or once a ``step``.

    Raises:
        ValueRangeError: for a parameter out of its range.
        SpaceError: at wrapping, for a space that holds no images with finite bounds.
    """

    native: ClassVar[bool] = True
    within: ClassVar[Budget | None] = Valid()
    ranged: ClassVar[tuple[str, ...]] = ()  # the parameters that may be ranges
    stride: ClassVar[float] = 0.0  # drawn values lie this far apart, from the low end on; 0 for any number

    layout: str | None = field(default=None, kw_only=True)
    per: str = field(default="episode", kw_only=True)

    def __post_init__(self) -> None:
        choice("per", self.per, ("episode", "step"))
        for name in self.ranged:
            value = getattr(self, name)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, name, value)
            ends = value if isinstance(value, tuple) else (value,)
            for end in ends:
                self.validate(**{name: end})
            if isinstance(value, tuple) and (len(value) != 2 or not value[0] <= value[1]):
                raise ValueRangeError(
                    f"{name} must be a number, or a range (low, high) with the low end first (low;high in a text), "
                    f"got {value!r}"
                )

    def validate(self, **parameter: Any) -> None:
        """Raise :class:`ValueRangeError` for a parameter out of its range."""
        raise NotImplementedError

    def change(self, x: Tensor, layout: str, limits: Limits | None, **parameters: Any) -> Tensor:
        """The transform of a batch with the parameters of ``ranged``, each a number."""
        raise NotImplementedError

    def label(self, within: Budget) -> str:
        """The name; under any other budget than the space itself this is not the transform, but a clipped one."""
        return self.name if isinstance(plain(within), Valid) else f"clipped-{self.name}"

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        layout_of(field.shape, self.layout)
        if field.dtype != np.uint8 and field.dtype.kind != "f":
            raise SpaceError(f"{self.name} transforms uint8 or float images, got {field.dtype}")
        if field.dtype != np.uint8 and not field.bounded:
            raise SpaceError(f"{self.name} needs float images with finite bounds, which say what is dark and bright")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        layout, limits = layout_of(tuple(x.shape[1:]), self.layout), None
        if x.dtype != torch.uint8:
            low, high = context.space
            limits = (float(low.min()), float(high.max()))
        rows = self.draw(context)
        if rows is None:
            return self.change(x, layout, limits, **{name: getattr(self, name) for name in self.ranged})
        out = torch.empty_like(x)
        groups: dict[tuple[Any, ...], list[int]] = {}  # rows of equal parameters together
        for i, row in enumerate(rows):
            groups.setdefault(tuple(row.items()), []).append(i)
        for given, members in groups.items():
            which = torch.tensor(members, device=x.device)
            out[which] = self.change(x[which], layout, limits, **dict(given))
        return out

    def drawn_from(self, context: Context) -> Tensor:
        """The keys ``[B]`` that parameters are drawn from, on the host."""
        key = context.episode_key if self.per == "episode" else context.key
        return key.cpu()

    def draw(self, context: Context) -> list[dict[str, Any]] | None:
        """The parameters of every row, or None if they are fixed."""
        ranges = {name: getattr(self, name) for name in self.ranged}
        if not any(isinstance(value, tuple) for value in ranges.values()):
            return None
        key = self.drawn_from(context)
        columns = []
        for i, value in enumerate(ranges.values()):
            if isinstance(value, tuple):
                low, high = value
                u = keys.uniform_of(keys.fold(key, i + 1))
                steps = (
                    (u * ((high - low) // self.stride + 1)).floor() * self.stride if self.stride else u * (high - low)
                )
                columns.append((low + steps).tolist())
            else:
                columns.append([value] * len(key))
        return [dict(zip(ranges, row, strict=True)) for row in zip(*columns, strict=True)]
