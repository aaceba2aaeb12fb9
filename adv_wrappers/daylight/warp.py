"""Warps by OpenCV 4.x's fixed-point rule, which rotation and perspective share; equal to the bit on any processor.

A map says where each pixel of the result comes from, in 1/32 of a pixel: ``coordinate >> 5`` and five bits of fraction.
A bilinear value is ``(sum of the four neighbours times (32 - f)(32 - g) * 32 + 2^14) >> 15``. Later versions of OpenCV
warp with float32 instead, whose last bit depends on the processor; their ``remap`` still takes fixed-point maps, so on
the host a map, computed once, is handed to it. Elsewhere torch gathers the same four neighbours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.daylight.images import each, on_host

BORDERS = ("replicate", "zero", "reflect", "wrap")
INTERPOLATIONS = ("bilinear", "nearest")
_FLAGS = {
    "replicate": cv2.BORDER_REPLICATE, "zero": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
}  # fmt: skip
_NONE: Any = None  # instead of fractions, for nearest
_BITS = 10  # fraction bits of affine coordinates before they are rounded to five

Matrix = tuple[float, ...]
Map = tuple[NDArray[np.int16], NDArray[np.uint16]]  # [H, W, 2]: column and row; [H, W]: row fraction * 32 + column's


def border_index(where: Any, size: int, border: str) -> Any:
    """Indices inside ``[0, size)`` for any integers (an array or a tensor); for ``zero`` they mean nothing outside."""
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
    return whole, ((y & 31) * 32 + (x & 31)).astype(np.uint16)


@functools.lru_cache(maxsize=256)
def affine_map(matrix: Matrix, height: int, width: int, interpolation: str) -> Map:
    """Map of the affine transform ``[a, b, c, d, e, f]`` (source to destination), as ``warpAffine`` inverts it."""
    a, b, c, d, e, f = matrix
    det = a * e - b * d
    det = 1 / det if det != 0 else 0.0
    a, b, d, e = e * det, b * -det, d * -det, a * det
    c, f = -a * c - b * f, -d * c - e * f
    scale = 1 << _BITS
    column, row = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)

    def fixed(v: Any) -> NDArray[np.int64]:
        return np.asarray(np.rint(v).clip(-(2.0**31), 2.0**31 - 1), dtype=np.int64)

    x = fixed((b * row + c) * scale)[:, None] + fixed(a * column * scale)[None]
    y = fixed((e * row + f) * scale)[:, None] + fixed(d * column * scale)[None]
    if interpolation == "nearest":
        half = scale // 2
        return _coded(((x + half) >> _BITS) << 5, ((y + half) >> _BITS) << 5)
    half = scale // 64
    return _coded((x + half) >> (_BITS - 5), (y + half) >> (_BITS - 5))


@functools.lru_cache(maxsize=256)
def perspective_map(inverse: Matrix, height: int, width: int, interpolation: str) -> Map:
    """Map of a perspective transform whose INVERSE (destination to source) is given row by row, 9 numbers."""
    m = inverse
    block = min(1024 // min(16, height), width)  # OpenCV sums from the start of a block: the last bit follows it
    row = np.arange(height, dtype=np.float64)[:, None]
    column = np.arange(width, dtype=np.float64)[None]
    inner = column % block
    start = column - inner
    x, y, w = ((m[i] * start + m[i + 1] * row + m[i + 2]) + m[i] * inner for i in (0, 3, 6))
    unit = 1.0 if interpolation == "nearest" else 32.0
    with np.errstate(divide="ignore"):
        w = np.where(w != 0, unit / w, 0.0)
    x, y = (np.rint((v * w).clip(-(2.0**31), 2.0**31 - 1)).astype(np.int64) for v in (x, y))
    return _coded(x << 5, y << 5) if interpolation == "nearest" else _coded(x, y)


def warp(images: Tensor, at: Map, border: str, interpolation: str, dark: float = 0.0) -> Tensor:
    """Images ``[N, H, W, K]`` seen through a map; ``dark`` is what stands outside for the border ``zero``."""
    if not on_host(images):
        return _gather(images, at, border, interpolation, dark)
    whole, fraction = at
    flag = _FLAGS[border]
    if interpolation == "nearest":
        return _in_fours(images, lambda source, out: cv2.remap(source, whole, _NONE, cv2.INTER_NEAREST, out, flag))
    return _in_fours(images, lambda source, out: cv2.remap(source, whole, fraction, cv2.INTER_LINEAR, out, flag))


def _in_fours(images: Tensor, function: Callable[..., object]) -> Tensor:
    """The function on every image; four grey ones go as the channels of one, which takes half the time."""
    count = len(images) // 4 * 4
    if images.shape[-1] != 1 or not count:
        return each(images, function)
    planes = images.contiguous().numpy()[..., 0]
    out = np.empty_like(planes)
    together = np.empty((2, *planes.shape[1:], 4), np.uint8)
    for i in range(0, count, 4):
        cv2.merge(list(planes[i : i + 4]), together[0])
        function(*together)
        cv2.split(together[1], list(out[i : i + 4]))
    for one, into in zip(planes[count:], out[count:], strict=True):
        function(one, into)
    return torch.from_numpy(out).view(images.shape)


def _gather(images: Tensor, at: Map, border: str, interpolation: str, dark: float) -> Tensor:
    """The same by torch: four neighbours, their weights, one sum."""
    n, height, width, channels = images.shape
    indices, weights = _taps(at, height, width, border, interpolation, images.device)
    flat = images.reshape(n, height * width, channels)
    grid = images.dtype == torch.uint8
    kind = torch.int32 if grid else images.dtype
    total = torch.zeros(n, indices.shape[1], channels, dtype=kind, device=images.device)
    for index, weight in zip(indices, weights, strict=True):
        value = flat[:, index].to(kind)
        total += (value if grid or border != "zero" else value - dark) * weight.to(kind)[:, None]
    if grid:
        total = total.add_(1 << 14).bitwise_right_shift_(15)
    else:
        total = total.div_(1 << 15).add_(dark if border == "zero" else 0.0)
    return total.to(images.dtype).view(n, height, width, channels)


def _taps(at: Map, height: int, width: int, border: str, interpolation: str, device: torch.device) -> Any:
    """Flat indices of the neighbours, int64 ``[4, H * W]`` (one for nearest), and their weights out of 2^15."""
    whole, fraction = (torch.from_numpy(part.astype(np.int64)).to(device) for part in at)
    column, row = whole[..., 0].reshape(-1), whole[..., 1].reshape(-1)
    f, g = (fraction & 31).reshape(-1), (fraction >> 5).reshape(-1)
    indices, weights = [], []
    for down, right in ((0, 0),) if interpolation == "nearest" else ((0, 0), (0, 1), (1, 0), (1, 1)):
        y, x = row + down, column + right
        weight = (g if down else 32 - g) * (f if right else 32 - f) * 32
        if border == "zero":
            weight = weight * ((x >= 0) & (x < width) & (y >= 0) & (y < height))
        indices.append(border_index(y, height, border) * width + border_index(x, width, border))
        weights.append(weight)
    return torch.stack(indices), torch.stack(weights)
