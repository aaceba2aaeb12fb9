"""Rounding that does not leave a ball.

A sum ``x + r`` of floats is rounded to the nearest float, and so may lie further from ``x`` than ``r``. Whether it does
needs no wider floats: of ``s - x`` and ``s - r`` the one that takes away the larger summand is exact (Dekker 1971), and
the other, being rounded to nearest, never shows an excess that is not there.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

WHOLE = 2.0**53  # up to here float64 holds every integer
_ULP = 2 * torch.finfo(torch.float64).eps


def at_most(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of a dtype that do not exceed ``values``, which are float64."""
    near = values.to(dtype)
    return torch.where(near.double() > values, torch.nextafter(near, torch.full_like(near, -torch.inf)), near)


def at_least(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of a dtype that ``values``, which are float64, do not exceed."""
    return -at_most(-values, dtype)


@functools.lru_cache(maxsize=256)
def distance(
    eps: float, scale: float | tuple[float, ...] | None, whole: bool, shape: tuple[int, ...], dtype: torch.dtype,
    device: Any,
) -> Tensor:  # fmt: skip
    """``eps * scale`` rounded down to a dtype, or to whole levels: ``[]``, or ``shape`` for a scale of every feature.

    The product is that of float64. It may lie one bit below a level that was meant (0.29 * 100), which still counts.
    """
    exact = torch.tensor(1.0 if scale is None else scale, dtype=torch.float64) * eps
    if whole:
        exact = (exact if scale is None else exact * (1 + _ULP)).floor()
    return at_most(exact.view(shape) if isinstance(scale, tuple) else exact, dtype).to(device)


def around(x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest floats that are no further than ``r`` from ``x``, of the shape of ``x``.

    Args:
        x: finite values ``[B, *S]``.
        r: distances of at least 0, ``[*S]`` or ``[]``, of the same dtype.
    """
    upper, lower = x + r, x - r
    rest = upper - x
    over = rest > r
    beyond = torch.sub(upper, r, out=rest) > x
    over |= beyond
    torch.where(over, torch.nextafter(upper, x, out=rest), upper, out=upper)
    torch.gt(torch.sub(x, lower, out=rest), r, out=over)
    over |= torch.lt(torch.add(lower, r, out=rest), x, out=beyond)
    torch.where(over, torch.nextafter(lower, x, out=rest), lower, out=lower)
    return lower, upper
