"""Median blur: every pixel becomes the median of its k x k neighbourhood (daylight paper, section 3.2, table 2).

The border is replicated and every colour or frame is blurred on its own, as ``cv2.medianBlur`` does; on the host that
function is called, on CUDA a kernel (``blur_triton``), elsewhere neighbours are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import cv2
import torch
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight.images import Limits, batched, split
from adv_wrappers.daylight.opencv import HostImages, by_arrays, each
from adv_wrappers.daylight.transform import Transform, WholeRange
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import integer

_AT_ONCE = 1 << 24  # neighbours held in memory at once


def _size(k: object) -> int:
    k = integer("k", k, 3, 7, floats=True)
    if k % 2 == 0:
        raise ValueRangeError(f"k must be 3, 5 or 7, got {k}")
    return k


def median_blur(x: Tensor, k: int, *, layout: str | None = None) -> Tensor:
    """The median of the ``k`` x ``k`` pixels around every pixel, borders replicated.

    Args:
        x: uint8 or float images ``[B, *S]``, or one image with a given layout.
        k: 3, 5 or 7.
        layout: which axis is what; None infers.

    Returns:
        Images of the same shape and dtype; uint8 equal to ``cv2.medianBlur`` to the bit.

    Raises:
        ValueRangeError: for another ``k``.
        SpaceError: for a shape that is no image.

    >>> x = torch.zeros(1, 3, 3, dtype=torch.uint8)
    >>> x[0, 1, 1] = 255
    >>> int(median_blur(x, 3).max())
    0
    """
    k = _size(k)
    x, layout, single = batched(x, layout)
    y: Tensor = _blurred(x, layout, k)
    return y[0] if single else y


def _blurred(x: Any, layout: str, k: int) -> Any:
    """A batch, an array or a tensor, blurred; OpenCV takes one, three or four channels."""

    def by_opencv(host: HostImages) -> HostImages:
        return each(host, layout, lambda source, place: cv2.medianBlur(source, k, place), channels=(1, 3, 4))

    y = by_arrays(by_opencv, x)
    if y is not None:
        return y
    images, back = split(x, layout)
    fast = triton_loader.twin("daylight.kernels.blur", images) if images.dtype == torch.uint8 else None
    return back(_median(images, k) if fast is None else fast.median(images, k))


def _median(images: Tensor, k: int) -> Tensor:
    """The same by torch, ``[N, H, W, K]``."""
    n, height, width, channels = images.shape
    rows, columns = (
        torch.arange(-(k // 2), size + k // 2, device=images.device).clamp_(0, size - 1) for size in (height, width)
    )
    out = torch.empty_like(images)
    # as many images at once as fit into memory with all their neighbours
    step = max(1, _AT_ONCE // (height * width * channels * k * k))
    for start in range(0, n, step):
        padded = images[start : start + step][:, rows][:, :, columns]
        near = [padded[:, i : i + height, j : j + width] for i in range(k) for j in range(k)]
        out[start : start + step] = torch.stack(near, -1).median(-1).values
    return out


@dataclass(frozen=True)
class MedianBlur(Transform):
    """Median blur of k x k pixels.

    Args:
        k: 3, 5 or 7, or a range of these.
    """

    name: ClassVar[str] = "median-blur"
    ranged: ClassVar[tuple[str, ...]] = ("k",)
    stride: ClassVar[float] = 2
    arrays: ClassVar[bool] = True
    k: WholeRange = 3

    def validate(self, **parameter: object) -> None:
        _size(parameter["k"])

    def change(self, x: Any, layout: str, limits: Limits | None, **parameters: int) -> Any:
        return _blurred(x, layout, int(parameters["k"]))
