"""Warps by OpenCV 4.x's fixed-point rule, which rotation and perspective share; equal to the bit on any processor.

A map says where each pixel of the result comes from, in 1/32 of a pixel: ``coordinate >> 5`` and five bits of fraction.
A bilinear value is ``(sum of the four neighbours times (32 - f)(32 - g) * 32 + 2^14) >> 15``. Later versions of OpenCV
warp with float32 instead, whose last bit depends on the processor; their ``remap`` still takes fixed-point maps, so on
the host a map, computed once, is handed to it. Elsewhere the same four neighbours are gathered, by a kernel on CUDA
(``warp_triton``) and else by torch; what they need of a map stays on the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.core.engine.context import Context
from adv_wrappers.daylight.images import Limits, batched, limits_of, size_of, split
from adv_wrappers.daylight.opencv import HostImages, by_arrays, each
from adv_wrappers.daylight.transform import Transform
from adv_wrappers.utils.checks import check_choice

Border = Literal["replicate", "zero", "reflect", "wrap"]
Interpolation = Literal["bilinear", "nearest"]
BORDERS: tuple[Border, ...] = get_args(Border)
INTERPOLATIONS: tuple[Interpolation, ...] = get_args(Interpolation)
_FLAGS = {
    "replicate": cv2.BORDER_REPLICATE, "zero": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
}  # fmt: skip
_NONE: Any = None  # instead of fractions, for nearest
_BITS = 10  # fraction bits of affine coordinates before they are rounded to five

_CORNERS = {"bilinear": ((0, 0), (0, 1), (1, 0), (1, 1)), "nearest": ((0, 0),)}  # (down, right) of the neighbours

Matrix = tuple[float, ...]


class Map(NamedTuple):
    """Where each pixel comes from. A map is equal to itself alone: what devices keep of it is found by identity."""

    whole: NDArray[np.int16]  # [H, W, 2]: column and row
    fraction: NDArray[np.uint16]  # [H, W]: the row's fraction * 32 + the column's

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def border_index(where: Any, size: int, border: str) -> Any:
    """Indices inside ``[0, size)`` for integers (one, an array or a tensor); for ``zero`` they mean nothing outside."""
    if border == "wrap":
        return where % size
    if border == "reflect" and size > 1:
        turn = 2 * (size - 1)
        where = where % turn
        return where + (where > size - 1) * (turn - 2 * where)
    return where.clip(0, size - 1)


def _coded(x: NDArray[np.int64], y: NDArray[np.int64]) -> Map:
    """A map from coordinates in 1/32 pixels, saturated to int16 as OpenCV's are."""
    whole = np.stack([x >> 5, y >> 5], -1).clip(-32768, 32767).astype(np.int16)
    return Map(whole, ((y & 31) * 32 + (x & 31)).astype(np.uint16))


def inverted(matrix: Matrix) -> Matrix:
    """The affine transform back, ``[a, b, c, d, e, f]``."""
    a, b, c, d, e, f = matrix
    det = a * e - b * d
    det = 1 / det if det != 0 else 0.0
    a, b, d, e = e * det, b * -det, d * -det, a * det
    return a, b, -a * c - b * f, d, e, -d * c - e * f


def together(height: int, width: int) -> int:
    """Columns of a block, from whose start OpenCV sums perspective coordinates: the last bit follows it."""
    return min(1024 // min(16, height), width)


@functools.lru_cache(maxsize=256)
def affine_map(matrix: Matrix, height: int, width: int, interpolation: str) -> Map:
    """Map of the affine transform ``[a, b, c, d, e, f]`` (source to destination), as ``warpAffine`` inverts it."""
    a, b, c, d, e, f = inverted(matrix)
    scale = 1 << _BITS
    column, row = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)

    def fixed(v: Any) -> NDArray[np.int64]:
        return np.asarray(np.rint(v).clip(-(2.0**31), 2.0**31 - 1), dtype=np.int64)

    # in 1/1024 of a pixel, columns and rows rounded apart, as OpenCV does
    x = fixed((b * row + c) * scale)[:, None] + fixed(a * column * scale)[None]
    y = fixed((e * row + f) * scale)[:, None] + fixed(d * column * scale)[None]
    if interpolation == "nearest":
        half = scale // 2
        return _coded(((x + half) >> _BITS) << 5, ((y + half) >> _BITS) << 5)
    # rounded to 1/32 of a pixel
    half = scale // 64
    return _coded((x + half) >> (_BITS - 5), (y + half) >> (_BITS - 5))


@functools.lru_cache(maxsize=256)
def perspective_map(inverse: Matrix, height: int, width: int, interpolation: str) -> Map:
    """Map of a perspective transform whose INVERSE (destination to source) is given row by row, 9 numbers."""
    m = inverse
    row = np.arange(height, dtype=np.float64)[:, None]
    column = np.arange(width, dtype=np.float64)[None]
    # OpenCV sums columns from the beginning of their block, which the last bit depends on
    inner = column % together(height, width)
    start = column - inner
    x, y, w = ((m[i] * start + m[i + 1] * row + m[i + 2]) + m[i] * inner for i in (0, 3, 6))
    unit = 1.0 if interpolation == "nearest" else 32.0
    with np.errstate(divide="ignore"):
        w = np.where(w != 0, unit / w, 0.0)
    x, y = (np.rint((v * w).clip(-(2.0**31), 2.0**31 - 1)).astype(np.int64) for v in (x, y))
    return _coded(x << 5, y << 5) if interpolation == "nearest" else _coded(x, y)


def warp(x: Any, at: Map, border: str, interpolation: str, dark: float = 0.0, layout: str = "HWF") -> Any:
    """A batch in ``layout``, an array or a tensor, seen through a map; ``dark`` is what the border ``zero`` shows."""
    whole, fraction = at
    flag, how = _FLAGS[border], cv2.INTER_LINEAR
    if interpolation == "nearest":
        fraction, how = _NONE, cv2.INTER_NEAREST

    # OpenCV on the host, a kernel where there is one, and else torch
    def by_opencv(host: HostImages) -> HostImages:
        return each(
            host, layout, lambda source, place: cv2.remap(source, whole, fraction, how, place, flag), by_fours=True
        )

    y = by_arrays(by_opencv, x)
    if y is not None:
        return y
    images, back = split(x, layout)
    fast = triton_loader.twin("daylight.kernels.warp", images) if images.dtype == torch.uint8 else None
    if fast is not None:
        return back(fast.warp(images, at, border, interpolation))
    return back(_gather(images, at, border, interpolation, dark))


def _gather(images: Tensor, at: Map, border: str, interpolation: str, dark: float) -> Tensor:
    """Images ``[N, H, W, K]`` seen through a map by torch: four neighbours, their weights, one sum."""
    n, height, width, channels = images.shape
    indices, weights = _taps(at, border, interpolation, images.device)
    # uint8 in whole numbers, floats relative to the dark where the border shows it
    flat = images.reshape(n, height * width, channels)
    grid = images.dtype == torch.uint8
    kind = torch.int32 if grid else images.dtype
    total = torch.zeros(n, indices.shape[1], channels, dtype=kind, device=images.device)
    for index, weight in zip(indices, weights, strict=True):
        value = flat[:, index].to(kind)
        total += (value if grid or border != "zero" else value - dark) * weight.to(kind)[:, None]
    # weights sum to 2^15; whole numbers are rounded to the nearest
    if grid:
        total = total.add_(1 << 14).bitwise_right_shift_(15)
    else:
        total = total.div_(1 << 15).add_(dark if border == "zero" else 0.0)
    return total.to(images.dtype).view(n, height, width, channels)


def neighbours(at: Map, border: str, interpolation: str) -> NDArray[np.int64]:
    """Flat indices of the pixels behind each value, int64 ``[4, H * W]`` (one for nearest); -1 is the dark outside."""
    height, width = at.fraction.shape
    column, row = at.whole.reshape(-1, 2).astype(np.int64).T
    found = []
    # each of the four neighbours where the border puts it
    for down, right in _CORNERS[interpolation]:
        y, x = row + down, column + right
        index = border_index(y, height, border) * width + border_index(x, width, border)
        if border == "zero":
            index = np.where((x >= 0) & (x < width) & (y >= 0) & (y < height), index, -1)
        found.append(index)
    return np.stack(found)


@functools.lru_cache(maxsize=16)
def _taps(at: Map, border: str, interpolation: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """The neighbours' indices and their weights out of 2^15, int64 ``[4, H * W]`` (one for nearest)."""
    indices = neighbours(at, border, interpolation)
    fraction = at.fraction.reshape(-1).astype(np.int64)
    f, g = fraction & 31, fraction >> 5
    weights = np.stack(
        [(g if down else 32 - g) * (f if right else 32 - f) * 32 for down, right in _CORNERS[interpolation]]
    ) * (indices >= 0)
    return torch.from_numpy(indices.clip(0)).to(device), torch.from_numpy(weights).to(device)


def map_of(matrix: Matrix, height: int, width: int, interpolation: str) -> Map:
    """The map of an affine transform, 6 numbers from source to destination, or a perspective, 9 from there back."""
    made = affine_map if len(matrix) == 6 else perspective_map
    return made(matrix, height, width, interpolation)


def warped(
    x: Tensor,
    matrix_of: Callable[[int, int], Matrix],
    border: str,
    interpolation: str,
    layout: str | None,
    limits: Limits | None,
) -> Tensor:
    """Images, or one with a given layout, moved by the matrix for their height and width, as :func:`map_of` takes it.

    Raises:
        ValueRangeError: for an unknown border or interpolation.
        SpaceError: for a shape that is no image.
    """
    check_choice("border", border, BORDERS)
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    x, layout, single = batched(x, layout)
    dark, _ = limits_of(x, limits)
    size = size_of(x.shape[1:], layout)
    y: Tensor = warp(x, map_of(matrix_of(*size), *size, interpolation), border, interpolation, dark, layout)
    return y[0] if single else y


class Warp(Transform):
    """A transform that moves every pixel by a matrix: rotation and perspective."""

    border: Border
    interpolation: Interpolation

    def matrix(self, height: int, width: int, **parameters: Any) -> Matrix:
        """As :func:`map_of` takes it, for pictures of this size."""
        raise NotImplementedError

    def change(self, x: Any, layout: str, limits: Limits | None, **parameters: Any) -> Any:
        size = size_of(x.shape[1:], layout)
        at = map_of(self.matrix(*size, **parameters), *size, self.interpolation)
        dark = 0.0 if limits is None else limits[0]
        return warp(x, at, self.border, self.interpolation, dark, layout)

    def by_row(self, x: Tensor, layout: str, context: Context) -> Tensor | None:
        fast = triton_loader.twin("daylight.kernels.warp_per_row", x) if self.drawn else None
        rows = None if fast is None else self.draw(context)
        if fast is None or rows is None:
            return None
        images, back = split(x, layout)
        # every row's own map, backwards, from which the kernel reckons its pixels
        matrices = [self.matrix(*images.shape[1:3], **row) for row in rows]
        affine = len(matrices[0]) == 6
        backwards = [(*inverted(one), 0.0, 0.0, 0.0) if affine else one for one in matrices]
        given = torch.tensor(backwards, dtype=torch.float64).to(x.device)
        return back(fast.warp(images, given, affine, self.border, self.interpolation))
