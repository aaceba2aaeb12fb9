"""The base of the daylight transforms: parameters that are numbers, or ranges drawn once an episode or once a step.

A camera that hangs crooked by an unknown angle is ``Rotation((-5, 5))``: the angle is drawn from the layer's keys, so
it follows the reset seed, and is the same whatever the number of environments or the device. On CUDA brightness and
shift of uint8 are drawn on the device; every other range is drawn on the host, which waits for the device, because maps
are to be the same to the bit everywhere, and sines and cosines are not. Rotations and perspectives of uint8 then take
one kernel for all rows, the others one call for each value that was drawn.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.daylight.images import Limits, batched, limits_of
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.utils.frozen import set_fields

Range = float | tuple[float, float]
WholeRange = int | tuple[int, int]
Parameters = dict[str, Any]  # of ``ranged``, each a number


@dataclass(frozen=True)
class Transform(NativePerturbation):
    """A transform of images, in the dtype of the space.

    Args:
        layout: which axis of an observation is what (:func:`adv_wrappers.core.image_layouts.layout_of`); None infers.
        per: a parameter given as a range ``(low, high)`` is drawn once an ``episode`` or once a ``step``.

    Raises:
        ValueRangeError: for a parameter out of its range.
        SpaceError: at wrapping, for a space that holds no images with finite bounds.
    """

    ranged: ClassVar[tuple[str, ...]] = ()  # the parameters that may be ranges
    stride: ClassVar[float] = 0.0  # drawn values lie this far apart, from the low end on; 0 for any number

    layout: str | None = field(default=None, kw_only=True)
    per: Literal["episode", "step"] = field(default="episode", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.layout, (str, type(None))):
            raise ValueRangeError(f"layout is a word such as 'HWC', or None, got {self.layout!r:.80}")
        # a number, or two that are the ends of a range, each within its own limits
        for name in self.ranged:
            value = getattr(self, name)
            if isinstance(value, list):
                value = tuple(value)
                set_fields(self, **{name: value})
            ends = value if isinstance(value, tuple) else (value,)
            for end in ends:
                self.validate(**{name: end})
            if isinstance(value, tuple) and (len(value) != 2 or not value[0] <= value[1]):
                raise ValueRangeError(
                    f"{name} must be a number, or a range (low, high) with the low end first (low;high in a text), "
                    f"got {value!r}"
                )

    def validate(self, **parameter: object) -> None:
        """Raise :class:`ValueRangeError` for a parameter out of its range."""
        raise NotImplementedError

    def change(self, x: Any, layout: str, limits: Limits | None, **parameters: Any) -> Any:
        """The transform of a batch with the parameters of ``ranged``, each a number.

        Where ``arrays`` is True it takes arrays of uint8 beside tensors, does not write to them, and returns new ones.
        """
        raise NotImplementedError

    def without_ranges(self) -> Transform:
        """The transform to apply where there are no episodes: itself, if no parameter is a range.

        Raises:
            ValueRangeError: if a parameter has to be drawn.
        """
        for name in self.ranged:
            if isinstance(value := getattr(self, name), tuple):
                raise ValueRangeError(f"{name} must be a number outside episodes, got the range {value} of {self.name}")
        return self

    def numbers(self) -> Parameters:
        """The parameters of ``ranged``, for :meth:`change`."""
        return {name: getattr(self, name) for name in self.ranged}

    def by_row(self, x: Tensor, layout: str, context: Context) -> Tensor | None:
        """The transform of uint8 by a kernel that takes drawn parameters row by row; None where there is none."""
        return None

    def label(self, within: Budget) -> str:
        """The name; under any other budget than the space itself this is not the transform, but a clipped one."""
        return self.name if isinstance(within.frame, Valid) else f"clipped-{self.name}"

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        layout_of(field.shape, self.layout)
        if field.dtype != np.uint8 and field.dtype.kind != "f":
            raise SpaceError(f"{self.name} transforms uint8 or float images, got {field.dtype}")
        if field.dtype != np.uint8 and not field.bounded:
            raise SpaceError(f"{self.name} needs float images with finite bounds, which say what is dark and bright")

    def __call__(self, x: Any, context: Context) -> Any:  # arrays or tensors, in and out
        layout, limits = layout_of(tuple(x.shape[1:]), self.layout), None
        if isinstance(x, Tensor):
            if x.dtype != torch.uint8:
                low, high = context.space
                limits = (float(low.min()), float(high.max()))
            elif x.is_cuda and (y := self.by_row(x, layout, context)) is not None:
                return y
        # numbers are the same for all rows; drawn ones are applied to the rows that share them
        if (fixed := self.fixed) is not None:
            return self.change(x, layout, limits, **fixed)
        groups = self._groups(context)
        if len(groups) == 1:
            return self.change(x, layout, limits, **groups[0][0])
        out = (torch if isinstance(x, Tensor) else np).empty_like(x)
        for given, members in groups:
            out[members] = self.change(x[members], layout, limits, **given)
        return out

    def _groups(self, context: Context) -> list[tuple[Parameters, list[int]]]:
        """The drawn parameters, and which rows have them."""
        found: dict[tuple[tuple[str, object], ...], list[int]] = {}
        for i, row in enumerate(self.draw(context) or []):
            found.setdefault(tuple(row.items()), []).append(i)
        return [(dict(given), members) for given, members in found.items()]

    def draw_keys(self, context: Context) -> Any:
        """The keys ``[B]`` that parameters are drawn from: a tensor or an array, or one integer."""
        return context.episode_key if self.per == "episode" else context.key

    def draw(self, context: Context) -> list[Parameters] | None:
        """The parameters of every row, or None if they are fixed."""
        if self.fixed is not None:
            return None
        key = self.draw_keys(context)
        if isinstance(key, int):
            return [dict(zip(self.ranged, self.columns(key), strict=True))]
        key = key.cpu() if isinstance(key, Tensor) else key
        columns = [c.tolist() if isinstance(c, (Tensor, np.ndarray)) else [c] * len(key) for c in self.columns(key)]
        return [dict(zip(self.ranged, row, strict=True)) for row in zip(*columns, strict=True)]

    @property
    def drawn(self) -> bool:
        """Whether any parameter is a range."""
        return any(isinstance(value, tuple) for value in self.numbers().values())

    @functools.cached_property
    def fixed(self) -> Parameters | None:
        """The parameters, for :meth:`change`, of a transform that draws none; else None."""
        return None if self.drawn else self.numbers()

    def columns(self, key: Any) -> list[Any]:
        """The parameters of every row, float64 ``[B]`` of the kind of the keys; a number that is not drawn stays."""
        columns = []
        for i, value in enumerate(self.numbers().values()):
            if isinstance(value, tuple):
                # an even draw of the range, of whole strides where the parameter has them
                low, high = value
                u = rng.uniform_of(rng.fold(key, i + 1))
                span = high - low
                value = low + (u * (span // self.stride + 1) // 1 * self.stride if self.stride else u * span)
            columns.append(value)
        return columns


def compose(x: Tensor, *steps: Transform, layout: str | None = None, limits: Limits | None = None) -> Tensor:
    """``x`` after all steps, in their order.

    Args:
        x: uint8 or float images ``[B, *S]``, or one image with a given layout.
        steps: transforms such as ``Brightness(1.2, 40)`` and ``Rotation(3)``, all parameters numbers: ranges are drawn
            for episodes and steps, which a function has none of.
        layout: which axis is what, for the steps that do not say it themselves; None infers.
        limits: darkest and brightest value of float images, by default 0 and 1.

    Returns:
        New images of the same shape and dtype.

    Raises:
        ValueRangeError: for a step that is no transform, or whose parameters have to be drawn.
        SpaceError: for a shape that is no image.

    >>> from adv_wrappers.daylight import Brightness, Shift
    >>> compose(torch.tensor([[[1, 2, 3]]], dtype=torch.uint8), Brightness(2, 0), Shift(1), layout="HW")
    tensor([[[2, 2, 4]]], dtype=torch.uint8)
    """
    for step in steps:
        if not isinstance(step, Transform):
            raise ValueRangeError(f"steps must be transforms such as Rotation(3), got {step!r}")
    # one layout and one range of values for all of them
    steps = tuple(step.without_ranges() for step in steps)
    x, layout, single = batched(x, layout or next((step.layout for step in steps if step.layout), None))
    limits = limits_of(x, limits)
    y = x
    for step in steps:
        y = step.change(y, layout_of(tuple(x.shape[1:]), step.layout or layout), limits, **step.numbers())
    y = y.clone() if y is x else y
    return y[0] if single else y
