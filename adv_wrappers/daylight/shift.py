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

from adv_wrappers.accel import triton_kernels
from adv_wrappers.core.context import Context
from adv_wrappers.core.types import Array
from adv_wrappers.daylight.images import Limits, batched, limits_of, on_host, split
from adv_wrappers.daylight.opencv import HostImages
from adv_wrappers.daylight.transform import Transform, WholeRange
from adv_wrappers.daylight.warp import BORDERS, Border, border_index
from adv_wrappers.utils.checks import check_choice, integer

_FAR = 32767  # of OpenCV's maps
_FEW = 1 << 14  # pixels that enter: above this the loops of torch are faster than those of numpy, line by line
_PIXELS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a pixel that are moved as one; black is zero


def shift(
    x: Tensor,
    dx: int = 0,
    dy: int = 0,
    *,
    border: str = "replicate",
    layout: str | None = None,
    limits: Limits | None = None,
) -> Tensor:
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
    check_choice("border", border, BORDERS)
    x, layout, single = batched(x, layout)
    dark, _ = limits_of(x, limits)
    fast = triton_kernels.twin("daylight.kernels.shift", x) if x.dtype == torch.uint8 else None
    if fast is not None:
        images, back = split(x, layout)
        y = back(fast.shift(images, fast.move(dx, dy, x.device), border))
        return y[0] if single else y
    if on_host(x):
        y = torch.from_numpy(shift_of(x.numpy(), layout, dx, dy, border))
        return y[0] if single else y
    moves = ((1 + layout.index("W"), dx), (1 + layout.index("H"), dy))
    if border in ("replicate", "zero") and all(abs(move) < x.shape[axis] for axis, move in moves) and x.numel():
        pixels = x.contiguous()
        kind = _PIXELS.get(x.shape[-1]) if x.dtype == torch.uint8 and layout[-1] not in "HW" else None
        if kind is not None and pixels.storage_offset() % x.shape[-1] == 0:
            pixels = pixels.view(kind)
        y = _at_once(pixels, moves, border, dark).view(x.dtype)
    else:
        y = x
        for axis, move in moves:
            y = _along(y, axis, move, border, dark) if move else y
        y = y.clone() if y is x else y
    return y[0] if single else y


def _at_once(x: Tensor, moves: tuple[tuple[int, int], ...], border: str, dark: float) -> Tensor:
    """All memory moved as one piece, which is right wherever a pixel stays; then what enters, columns before rows."""
    y = torch.empty_like(x)
    ahead = sum(move * x.stride(axis) for axis, move in moves)
    stays = x.numel() - abs(ahead)
    y.view(-1).narrow(0, max(ahead, 0), stays).copy_(x.view(-1).narrow(0, max(-ahead, 0), stays))
    for axis, move in moves:
        if move:
            size, gap = x.shape[axis], abs(move)
            entering = y.narrow(axis, 0 if move > 0 else size - gap, gap)
            if border == "zero":
                entering.fill_(dark)
            else:
                entering.copy_(y.narrow(axis, gap if move > 0 else size - gap - 1, 1).expand_as(entering))
    return y


def _along(x: Tensor, axis: int, move: int, border: str, dark: float) -> Tensor:
    """One copy of what stays, and what enters from the border."""
    size = x.shape[axis]
    gap = min(abs(move), size)
    if border == "wrap":
        return torch.roll(x, move, axis)
    y = torch.empty_like(x)
    start = 0 if move > 0 else size - gap
    entering = y.narrow(axis, start, gap)
    if gap < size:
        y.narrow(axis, gap if move > 0 else 0, size - gap).copy_(x.narrow(axis, 0 if move > 0 else gap, size - gap))
    if border == "zero":
        entering.fill_(dark)
    elif border == "replicate":
        entering.copy_(x.narrow(axis, 0 if move > 0 else size - 1, 1).expand_as(entering))
    else:
        where = torch.arange(start, start + gap, device=x.device) - move
        entering.copy_(x.index_select(axis, border_index(where, size, border)))
    return y


def shift_of(x: HostImages, layout: str, dx: int, dy: int, border: str) -> HostImages:
    """The same of arrays: a batch of uint8."""
    pixels, size = np.ascontiguousarray(x), x.shape[-1]
    if layout[-1] not in "HW" and size in _PIXELS:
        pixels = pixels.view(f"i{size}")
    axis = 1 + layout.index("H")
    moves = ((axis + 1, dx), (axis, dy))
    if border in ("replicate", "zero") and all(abs(move) < pixels.shape[axis] for axis, move in moves) and x.size:
        y = _piece(pixels, moves, border)
    else:
        y = pixels
        for axis, move in moves:
            y = _lines(y, axis, move, border) if move else y
    return x.copy() if y is pixels else y.view(np.uint8)


def _piece(x: Array, moves: tuple[tuple[int, int], ...], border: str) -> Array:
    """As :func:`_at_once`."""
    y = np.empty(x.shape, x.dtype)
    ahead = sum(move * math.prod(x.shape[axis + 1 :]) for axis, move in moves)
    stays = x.size - abs(ahead)
    y.reshape(-1)[max(ahead, 0) :][:stays] = x.reshape(-1)[max(-ahead, 0) :][:stays]
    for axis, move in moves:
        size, gap = x.shape[axis], abs(move)
        start, edge = (0, gap) if move > 0 else (size - gap, size - gap - 1)
        if gap * x.size < _FEW * size:
            for i in range(start, start + gap):
                y[_at(axis, i)] = 0 if border == "zero" else y[_at(axis, edge)]
        else:
            pixels = torch.from_numpy(y)
            entering = pixels.narrow(axis, start, gap)
            entering.zero_() if border == "zero" else entering.copy_(pixels.narrow(axis, edge, 1))
    return y


def _lines(x: Array, axis: int, move: int, border: str) -> Array:
    """As :func:`_along`."""
    size = x.shape[axis]
    gap, y = min(abs(move), size), np.empty(x.shape, x.dtype)
    stay, came = slice(gap, size), slice(0, size - gap)
    y[_at(axis, stay if move > 0 else came)] = x[_at(axis, came if move > 0 else stay)]
    start = 0 if move > 0 else size - gap
    for i in range(start, start + gap):
        source = border_index(np.int64(i - move), size, border)
        y[_at(axis, i)] = 0 if border == "zero" else x[_at(axis, source)]
    return y


def _at(axis: int, where: int | slice) -> tuple[int | slice, ...]:
    return *(slice(None),) * axis, where


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
    arrays: ClassVar[bool] = True
    dx: WholeRange = 1
    dy: WholeRange = 0
    border: Border = "replicate"

    def validate(self, **parameter: object) -> None:
        for name, value in parameter.items():
            integer(name, value, -_FAR, _FAR, floats=True)

    def change(self, x: Tensor, layout: str, limits: Limits | None, **parameters: int) -> Tensor:
        return shift(x, **parameters, border=self.border, layout=layout, limits=limits)

    def change_array(self, x: HostImages, layout: str, **parameters: int) -> HostImages:
        return shift_of(x, layout, int(parameters["dx"]), int(parameters["dy"]), self.border)

    def by_row(self, x: Tensor, layout: str, context: Context) -> Tensor | None:
        fast = triton_kernels.twin("daylight.kernels.shift", x) if self.drawn else None
        if fast is None:
            return None
        key = self.draw_keys(context).to(x.device)
        moves = torch.zeros(len(x), 2, dtype=torch.int32, device=x.device)
        for i, column in enumerate(self.columns(key)):
            moves[:, i] = column
        images, back = split(x, layout)
        return back(fast.shift(images, moves, self.border))
