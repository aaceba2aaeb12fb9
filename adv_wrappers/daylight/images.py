"""Batches of plain images ``[N, H, W, K]``, made of observations whose layout is known or inferred, and back.

Only JPEG mixes colours, so only there the difference between the layouts ``CHW`` and ``FHW`` matters. What takes uint8
in host memory is in :mod:`adv_wrappers.daylight.opencv`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.core.spaces import finite
from adv_wrappers.errors import SpaceError, ValueRangeError

Limits = tuple[float, float]


def check_images(x: object) -> None:
    """Raise :class:`SpaceError` unless this is a tensor of uint8 or floats."""
    if not isinstance(x, Tensor):
        raise SpaceError(f"expected a tensor [B, ...], got {type(x).__name__}: torch.as_tensor(...) makes one")
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise SpaceError(f"expected uint8 or float images, got {x.dtype}")


def batched(x: Tensor, layout: str | None) -> tuple[Tensor, str, bool]:
    """``x`` as ``[B, *S]``, its layout, and whether it was one image without a batch (only with a given layout)."""
    check_images(x)
    single = layout is not None and x.dim() == len(layout)
    x = x[None] if single else x
    return x, layout_of(tuple(x.shape[1:]), layout), single


def split(x: Tensor, layout: str, colours: bool = False) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Images ``[N, H, W, K]`` of a batch ``[B, *S]``, and the function that puts images of that shape back.

    Args:
        x: batch in ``layout``.
        colours: keep the colours of a picture together (K = 3, or 1 for grey), instead of making whatever comes
            before the rows images of its own, which needs no copy.
    """
    axes, back, pictures, sizes = _plan(tuple(x.shape[1:]), layout, colours, x.is_cuda)
    moved = x if axes is None else x.permute(axes)
    shape, count = moved.shape, len(x) * pictures
    if axes is None:
        return moved.reshape(count, *sizes), lambda y: y.view(shape)
    return moved.reshape(count, *sizes), lambda y: y.view(shape).permute(back).contiguous()


def size_of(shape: tuple[int, ...], layout: str) -> tuple[int, int]:
    """Height and width of observations of this shape."""
    rows = layout.index("H")  # the columns follow in every layout
    return shape[rows], shape[rows + 1]


@functools.lru_cache(maxsize=256)
def _plan(
    shape: tuple[int, ...], layout: str, colours: bool, kernels: bool
) -> tuple[tuple[int, ...] | None, tuple[int, ...], int, tuple[int, int, int]]:
    """Order of the axes (None if they stay), the order back, pictures an observation, and the size of a picture."""
    size = dict(zip(layout, shape, strict=True))
    if colours:
        last = "C" if size.get("C") == 3 else ""
    else:
        last = layout[layout.index("W") + 1 :]
        if math.prod(size[letter] for letter in last) > 4 and not kernels:  # more than OpenCV takes at once
            last = ""
    first = "".join(letter for letter in layout if letter not in "HW" + last)
    axes = (0, *(1 + layout.index(letter) for letter in first + "HW" + last))
    back = tuple(axes.index(i) for i in range(len(axes)))
    pictures, channels = (math.prod(size[letter] for letter in letters) for letters in (first, last))
    return None if axes == back == tuple(range(len(axes))) else axes, back, pictures, (size["H"], size["W"], channels)


def aligned(x: Tensor, size: int) -> bool:
    """Whether bytes can be read ``size`` at once, as words."""
    return x.data_ptr() % size == 0 and x.storage_offset() % size == 0


def limits_of(x: Tensor, limits: Limits | None) -> Limits:
    """Darkest and brightest value: 0 and 255 for uint8; for floats the ones given, or 0 and 1.

    Raises:
        ValueRangeError: for limits that are no range, and others than 0 and 255 on uint8.
    """
    if x.dtype == torch.uint8:
        if limits not in (None, (0, 255)):
            raise ValueRangeError(f"uint8 images have the limits (0, 255), got {limits}")
        return 0.0, 255.0
    low, high = (0.0, 1.0) if limits is None else limits
    if limits is None and x.device.type == "cpu" and not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueRangeError(f"expected float images in [0, 1], got {x.min():g} to {x.max():g}: give their limits=")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueRangeError(f"limits must be two finite numbers, the darkest first, got {limits}")
    return float(low), float(high)


def as_images(x: object) -> Tensor:
    """A batch ``[B, *S]`` of uint8 or floats, a tensor or an array, as a detached tensor where it lies.

    Raises:
        SpaceError: for another type or dtype, and a batch without an image or a pixel.
        ValueRangeError: for values that are not finite.
    """
    if isinstance(x, np.ndarray) and (x.dtype == np.uint8 or x.dtype in (np.float16, np.float32, np.float64)):
        x = torch.from_numpy(np.array(x, order="C"))
    if not isinstance(x, Tensor) or (x.dtype != torch.uint8 and not x.is_floating_point()):
        raise SpaceError(
            f"expected images as a tensor or an array of uint8 or floats, got {type(x).__name__} of dtype "
            f"{getattr(x, 'dtype', None)}"
        )
    # images, at least one, of finite numbers
    if x.dim() < 2 or 0 in x.shape:
        raise SpaceError(f"expected a batch [B, ...] of at least one image and one pixel, got shape {tuple(x.shape)}")
    if x.is_floating_point() and not finite(x):
        raise ValueRangeError("images must be finite")
    return x.detach()
