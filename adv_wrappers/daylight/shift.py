"""Shift: the picture moved by whole pixels (daylight paper, section 3.4, table 4).

``[t_i, t_j]`` is ``dx`` to the right and ``dy`` downwards. The paper does not say what enters at the border: here the
edge is replicated unless another border is asked for. Equal to ``cv2.warpAffine`` with an integer translation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.core.context import Context
from adv_wrappers.core.types import Batch
from adv_wrappers.daylight.images import Limits, batched, choice, limits_of, on_host, split
from adv_wrappers.daylight.opencv import Images
from adv_wrappers.daylight.passes import KernelStep, shift_step
from adv_wrappers.daylight.transform import Transform, WholeRange
from adv_wrappers.daylight.warp import BORDERS, border_index
from adv_wrappers.utils.numbers import integer

_FAR = 32767  # of OpenCV's maps
_PIXELS = {2: "int16", 4: "int32", 8: "int64"}  # bytes of a pixel that are moved as one; black is zero


def shift(
    x: Tensor, dx: int = 0, dy: int = 0, *, border: str = "replicate", layout: str | None = None,
    limits: Limits | None = None,
) -> Tensor:  # fmt: skip
    """``x`` moved ``dx`` pixels to the right and ``dy`` down.

    Args:
        x: uint8 or float images ``[B, *S]``, or one image with a given layout.
        dx, dy: whole pixels, also negative.
        border: what enters: ``replicate`` (the edge), ``zero`` (the darkest value), ``reflect`` (mirrored, the edge
            itself not repeated) or ``wrap`` (what left on the other side).
        layout: which axis is what; None infers.
        limits: darkest and brightest value of float images, by default 0 and 1.

    Raises:
        ValueRangeError: for parts of pixels, and an unknown border.
        SpaceError: for a shape that is no image.

    >>> shift(torch.tensor([[[1, 2, 3]]], dtype=torch.uint8), dx=1, layout="HW")
    tensor([[[1, 1, 2]]], dtype=torch.uint8)
    """
    dx, dy = integer("dx", dx, -_FAR, _FAR, floats=True), integer("dy", dy, -_FAR, _FAR, floats=True)
    choice("border", border, BORDERS)
    x, layout, single = batched(x, layout)
    dark, _ = limits_of(x, limits)
    fast = triton_loader.twin("daylight.kernels.shift", x) if x.dtype == torch.uint8 else None
    if fast is not None:
        images, back = split(x, layout)
        y = back(fast.shift(images, fast.move(dx, dy, x.device), border))
        return y[0] if single else y
    if on_host(x):
        y = torch.from_numpy(shift_of(x.numpy(), layout, dx, dy, border))
    else:
        y = _moved(x, layout, dx, dy, border, dark)
    return y[0] if single else y


def shift_of(x: Images, layout: str, dx: int, dy: int, border: str) -> Images:
    """The same of arrays: a batch of uint8."""
    return _moved(x, layout, dx, dy, border)  # type: ignore[no-any-return]


# What follows is written once for arrays and tensors.


def _moved(x: Batch, layout: str, dx: int, dy: int, border: str, dark: float = 0.0) -> Batch:
    """A batch moved, in new memory."""
    rows = 1 + layout.index("H")
    moves = ((rows + 1, dx), (rows, dy))
    if border in ("replicate", "zero") and all(abs(move) < x.shape[axis] for axis, move in moves) and 0 not in x.shape:
        return _at_once(_whole_pixels(x, layout), moves, border, dark).view(x.dtype)
    y = x
    for axis, move in moves:
        y = _along(y, axis, move, border, dark) if move else y
    if y is x:
        y = x.copy() if isinstance(x, np.ndarray) else x.clone()
    return y


def _whole_pixels(x: Batch, layout: str) -> Batch:
    """One piece of memory; uint8 frames or colours as numbers of their size, where there are such."""
    array, size = isinstance(x, np.ndarray), x.shape[-1]
    x = np.ascontiguousarray(x) if array else x.contiguous()
    if layout[-1] in "HW" or size not in _PIXELS or x.itemsize > 1:
        return x
    if array:
        return x.view(_PIXELS[size])
    return x.view(getattr(torch, _PIXELS[size])) if x.storage_offset() % size == 0 else x


def _empty(x: Batch) -> Batch:
    return np.empty(x.shape, x.dtype) if isinstance(x, np.ndarray) else torch.empty_like(x)


def _part(axis: int, start: int, count: int) -> tuple[slice, ...]:
    return *(slice(None),) * axis, slice(start, start + count)


def _at_once(x: Batch, moves: tuple[tuple[int, int], ...], border: str, dark: float) -> Batch:
    """All memory moved as one piece, which is right wherever a pixel stays; then what enters, columns before rows."""
    y = _empty(x)
    ahead = sum(move * math.prod(x.shape[axis + 1 :]) for axis, move in moves)
    start, stays = max(ahead, 0), math.prod(x.shape) - abs(ahead)
    y.reshape(-1)[start : start + stays] = x.reshape(-1)[start - ahead : start - ahead + stays]
    for axis, move in moves:
        if move:
            gap, far = abs(move), x.shape[axis] - abs(move)
            edge = _part(axis, gap if move > 0 else far - 1, 1)
            y[_part(axis, 0 if move > 0 else far, gap)] = dark if border == "zero" else y[edge]
    return y


def _along(x: Batch, axis: int, move: int, border: str, dark: float) -> Batch:
    """One copy of what stays, and what enters from the border."""
    size = x.shape[axis]
    gap = min(abs(move), size)
    start = 0 if move > 0 else size - gap
    entering, y = _part(axis, start, gap), _empty(x)
    y[_part(axis, gap if move > 0 else 0, size - gap)] = x[_part(axis, 0 if move > 0 else gap, size - gap)]
    if border == "zero":
        y[entering] = dark
    elif border == "replicate":
        y[entering] = x[_part(axis, 0 if move > 0 else size - 1, 1)]
    else:
        # numpy's numbers would be copied to the device of a tensor
        numbers = np.arange(gap) if isinstance(x, np.ndarray) else torch.arange(gap, device=x.device)
        y[entering] = x[(*(slice(None),) * axis, border_index(numbers + (start - move), size, border))]
    return y


@dataclass(frozen=True)
class Shift(Transform):
    """The picture moved by whole pixels.

    Args:
        dx, dy: pixels to the right and down, or ranges of them.
        border: what enters (see :func:`shift`).
    """

    name: ClassVar[str] = "shift"
    ranged: ClassVar[tuple[str, ...]] = ("dx", "dy")
    stride: ClassVar[float] = 1
    fusible: ClassVar[bool] = True
    dx: WholeRange = 1
    dy: WholeRange = 0
    border: str = "replicate"

    def __post_init__(self) -> None:
        choice("border", self.border, BORDERS)
        super().__post_init__()

    def validate(self, **parameter: object) -> None:
        for name, value in parameter.items():
            integer(name, value, -_FAR, _FAR, floats=True)

    def change(self, x: Tensor, layout: str, limits: Limits | None, **parameters: int) -> Tensor:
        return shift(x, **parameters, border=self.border, layout=layout, limits=limits)

    def change_array(self, x: Images, layout: str, **parameters: int) -> Images:
        return shift_of(x, layout, int(parameters["dx"]), int(parameters["dy"]), self.border)

    def kernel_steps(self, height: int, width: int) -> tuple[KernelStep, ...]:
        dx, dy = (integer(name, value, -_FAR, _FAR, floats=True) for name, value in self.numbers().items())
        return (shift_step(dx, dy, self.border, height, width),)

    def by_row(self, x: Tensor, layout: str, context: Context) -> Tensor | None:
        fast = triton_loader.twin("daylight.kernels.shift", x) if self.drawn else None
        if fast is None:
            return None
        key = self.draw_keys(context).to(x.device)
        moves = torch.zeros(len(x), 2, dtype=torch.int32, device=x.device)
        for i, column in enumerate(self.columns(key)):
            moves[:, i] = column
        images, back = split(x, layout)
        return back(fast.shift(images, moves, self.border))
