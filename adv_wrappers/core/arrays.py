"""Arithmetic that is written once for arrays and tensors, and rounding that does not leave a ball."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.types import Array, Batch, DType

T = TypeVar("T", Array, Tensor)

# of a tensor its device; of arrays whatever they say, which is nothing before numpy 2
Place: TypeAlias = torch.device | str | None

_ULP = 2 * torch.finfo(torch.float64).eps


def library(x: Batch) -> Any:
    """``torch`` for a tensor, ``numpy`` for an array: for the functions that have one name and meaning in both."""
    return torch if isinstance(x, Tensor) else np


def tensor_of(part: Batch, device: torch.device | None = None) -> Tensor:
    """An array (copied: it may be the environment's own memory) or a tensor, as a tensor; on ``device``, if any."""
    tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part, order="C"))
    return tensor if device is None else tensor.to(device)


def clamp(x: T, low: T, high: T, out: T | None = None) -> T:
    """``x`` between two bounds (``numpy.clip`` takes five times as long on a few numbers)."""
    if isinstance(x, Tensor):
        return torch.clamp(x, low, high, out=out)
    return np.minimum(np.maximum(x, low, out=out), high, out=out)


def round_(x: T) -> T:
    """``x`` rounded to integers, halves to even ones, in place."""
    return x.round_() if isinstance(x, Tensor) else np.rint(x, out=x)


def at_most(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of a dtype that do not exceed ``values``, which are float64."""
    near = values.to(dtype)
    return torch.where(near.double() > values, torch.nextafter(near, torch.full_like(near, -torch.inf)), near)


def at_least(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of a dtype that ``values``, which are float64, do not exceed."""
    return -at_most(-values, dtype)


Scale = float | tuple[float, ...] | str | None


@functools.lru_cache(maxsize=256)
def radius(eps: float, scale: Scale, shape: tuple[int, ...], dtype: DType, device: Place) -> Any:
    """``eps * scale`` to the nearest number of a dtype: ``[]``, or ``shape`` for a scale of every feature.

    A tensor on ``device``; for a dtype of numpy an array, ``[]`` or ``[1, *shape]``.
    """
    exact = torch.tensor(1.0 if scale is None else scale, dtype=torch.float64) * eps  # numbers would cost more
    return _constant(exact.view(shape) if isinstance(scale, tuple) else exact, dtype, device)


@functools.lru_cache(maxsize=256)
def half_and_width(eps: float, scale: Scale, shape: tuple[int, ...], dtype: DType, device: Place) -> tuple[Any, Any]:
    """One half and twice the :func:`radius`: ``(u - half) * width`` lies in ``[-radius, radius)`` for u in [0, 1)."""
    return radius(0.5, None, (), dtype, device), radius(2 * eps, scale, shape, dtype, device)


@functools.lru_cache(maxsize=256)
def distance(eps: float, scale: Scale, whole: bool, shape: tuple[int, ...], dtype: DType, device: Place) -> Any:
    """``eps * scale`` rounded down to a dtype, or to whole levels: ``[]``, or ``shape`` for a scale of every feature.

    The product is that of float64. It may lie one bit below a level that was meant (0.29 * 100), which still counts.
    A tensor on ``device``; for a dtype of numpy an array, ``[]`` or ``[1, *shape]``.
    """
    exact = torch.tensor(1.0 if scale is None else scale, dtype=torch.float64) * eps
    if whole:
        exact = (exact if scale is None else exact * (1 + _ULP)).floor()
    kind = dtype if isinstance(dtype, torch.dtype) else torch.from_numpy(np.empty(0, dtype)).dtype
    return _constant(at_most(exact.view(shape) if isinstance(scale, tuple) else exact, kind), dtype, device)


def _constant(values: Tensor, dtype: DType, device: Place) -> Batch:
    if isinstance(dtype, torch.dtype):
        return values.to(device, dtype)
    array = values.numpy().astype(dtype)
    return array[None] if array.ndim else array  # numpy is slower where shapes differ


def around(x: T, r: T) -> tuple[T, T]:
    """The smallest and the largest floats that are no further than ``r`` from ``x``, of the shape of ``x``.

    Args:
        x: finite values ``[B, *S]``, a tensor or an array.
        r: distances of at least 0, ``[*S]`` or ``[]``, of the same kind and dtype.
    """
    xp = library(x)
    lower, upper = x - r, x + r
    # a sum is rounded to the nearest float; of both differences the one from the larger summand is exact (Dekker 1971)
    lower = xp.where((x - lower > r) | (lower + r < x), xp.nextafter(lower, x), lower)
    return lower, xp.where((upper - x > r) | (upper - r > x), xp.nextafter(upper, x), upper)


ROUNDING = 1e-15  # of a sum of squares in float64, relatively: what lengths are known to


def flat_rows(x: Tensor) -> Tensor:
    """``[B, *S]`` as ``[B, n]``."""
    return x.reshape(len(x), x.shape[1:].numel())


def broad(column: Tensor, x: Tensor) -> Tensor:
    """``[B]`` or ``[B, 1]`` to be broadcast over ``x`` ``[B, *S]``."""
    return column.view(-1, *[1] * (x.dim() - 1))


def largest(values: Tensor, k: int) -> Tensor:
    """Which ``k`` elements of every row are the largest, bool ``[B, *S]``; all of them where a row has no more.

    NaN counts as infinity. Of equal elements the first are taken: which ones ``topk`` takes depends on the device.
    """
    rows = flat_rows(values)
    if k >= rows.shape[1]:
        return torch.ones_like(values, dtype=torch.bool)
    if k == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    rows = torch.where(rows.isnan(), torch.inf, rows)
    least = rows.topk(k, dim=1).values[:, -1:]
    # of equals the first ones, as many as are left
    above, equal = rows > least, rows == least
    left = k - above.sum(1, keepdim=True)
    return (above | (equal & (equal.cumsum(1) <= left))).view(values.shape)


def row_norms(x: Tensor) -> Tensor:
    """Length of every row, to be broadcast over it."""
    return broad(torch.linalg.vector_norm(flat_rows(x), dim=1, keepdim=True), x)


def wide(x: Tensor) -> Tensor:
    """``x`` in float64, where its device has that."""
    return x if x.device.type == "mps" else x.double()


def shrunk(delta: Tensor, length: float | Tensor) -> Tensor:
    """``delta`` with the rows that are longer than ``length`` drawn back to it."""
    norms = row_norms(delta)
    return delta * torch.where(norms > length, length / norms, 1.0)


def whole_levels(delta: Tensor, length: float | Tensor) -> Tensor:
    """The whole numbers near ``delta`` in rows of at most ``length``.

    Every element is first rounded towards zero at the length allowed, then, in the order of what that took away, one
    further while that comes nearer to ``delta`` and the row can pay for it. Plain rounding would lose a change that is
    spread over many elements: each would be less than half a level.
    """
    exact = wide(delta)
    length = wide(length) if isinstance(length, Tensor) else length
    near = shrunk(exact, length)
    base = near.trunc()
    # which elements would gain by the next level, and what that costs of the length's square
    more = exact.round().abs() > base.abs()
    order = flat_rows(torch.where(more, (near - base).abs(), -1.0)).argsort(dim=1, descending=True, stable=True)
    price = flat_rows(torch.where(more, 2 * base.abs() + 1, 0.0)).gather(1, order)
    room = (length.reshape(-1, 1) if isinstance(length, Tensor) else length) ** 2
    # the nearest first, as long as the length suffices
    paid = (price.cumsum(1) <= room - flat_rows(base).square().sum(1, keepdim=True)).to(exact.dtype)
    whole = base + exact.sign() * more * torch.zeros_like(paid).scatter_(1, order, paid).view(delta.shape)
    return whole.to(delta.dtype)
