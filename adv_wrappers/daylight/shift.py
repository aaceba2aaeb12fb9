"""Shift: the picture moved by whole pixels (daylight paper, section 3.4, table 4).

``[t_i, t_j]`` is ``dx`` to the right and ``dy`` downwards. The paper does not say what enters at the border: here the
edge is replicated unless another border is asked for. Equal to ``cv2.warpAffine`` with an integer translation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.core.engine.context import Context
from adv_wrappers.daylight.images import Limits, batched, limits_of, split
from adv_wrappers.daylight.opencv import by_arrays
from adv_wrappers.daylight.transform import Transform, WholeRange
from adv_wrappers.daylight.warp import BORDERS, Border, border_index
from adv_wrappers.utils.checks import check_choice, integer

_FAR = 32767  # of OpenCV's maps


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
    y: Tensor = _moved(x, layout, dx, dy, border, limits_of(x, limits)[0])
    return y[0] if single else y


def _moved(x: Any, layout: str, dx: int, dy: int, border: str, dark: float) -> Any:
    """A batch, an array or a tensor, moved; ``dark`` is what the border ``zero`` shows."""
    y = by_arrays(lambda host: _by_memory(host, layout, dx, dy, border, 0), x)
    if y is not None:
        return y
    fast = triton_loader.twin("daylight.kernels.shift", x) if x.dtype == torch.uint8 else None
    if fast is None:
        return _by_memory(x.contiguous(), layout, dx, dy, border, dark)
    images, back = split(x, layout)
    return back(fast.shift(images, fast.move(dx, dy, x.device), border))


def _by_memory(x: Any, layout: str, dx: int, dy: int, border: str, dark: float) -> Any:
    """The same by copies of memory, of arrays by numpy and of tensors by torch."""
    library: Any = torch if isinstance(x, Tensor) else np
    pixels, size = x if isinstance(x, Tensor) else np.ascontiguousarray(x), x.shape[-1]
    aligned = library is np or x.storage_offset() % size == 0
    if x.dtype == library.uint8 and layout[-1] not in "HW" and size in (2, 4, 8) and aligned:
        pixels = pixels.view(getattr(library, f"int{8 * size}"))  # all that a pixel holds is moved as one
    axis = 1 + layout.index("H")
    moves = ((axis + 1, dx), (axis, dy))
    if border in ("replicate", "zero") and all(abs(move) < pixels.shape[axis] for axis, move in moves) and len(x):
        return _at_once(library, pixels, moves, border, dark).view(x.dtype)
    for axis, move in moves:
        pixels = _along(library, pixels, axis, move, border, dark)
    return pixels.view(x.dtype)


def _at_once(library: Any, x: Any, moves: tuple[tuple[int, int], ...], border: str, dark: float) -> Any:
    """All memory moved as one piece, which is right wherever a pixel stays; then what enters, columns before rows."""
    y = library.empty_like(x)
    ahead = sum(move * math.prod(x.shape[axis + 1 :]) for axis, move in moves)
    stays = math.prod(x.shape) - abs(ahead)
    y.reshape(-1)[max(ahead, 0) :][:stays] = x.reshape(-1)[max(-ahead, 0) :][:stays]
    for axis, move in moves:
        size, gap = x.shape[axis], abs(move)
        first, edge = (0, gap) if move > 0 else (size - gap, size - gap - 1)
        for i in range(first, first + gap):  # numpy takes thrice as long for all of them together
            y[_at(axis, i)] = dark if border == "zero" else y[_at(axis, edge)]
    return y


def _along(library: Any, x: Any, axis: int, move: int, border: str, dark: float) -> Any:
    """Every line along an axis from where the border says it comes."""
    size = x.shape[axis]
    where = np.arange(size) - move
    index = border_index(where, size, border)
    y = x[_at(axis, index if library is np else torch.from_numpy(index).to(x.device))]
    if border == "zero":
        y[_at(axis, slice(max(size - abs(move), 0), size) if move < 0 else slice(0, move))] = dark
    return y


def _at(axis: int, where: Any) -> tuple[Any, ...]:
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

    def change(self, x: Any, layout: str, limits: Limits | None, **parameters: int) -> Any:
        dark = 0.0 if limits is None else limits[0]
        return _moved(x, layout, int(parameters["dx"]), int(parameters["dy"]), self.border, dark)

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
