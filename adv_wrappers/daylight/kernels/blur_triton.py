# mypy: allow-untyped-decorators, disable-error-code="no-untyped-def,assignment"
# Kernels take what the compiler makes of them; tuples grow in loops that are unrolled.
"""Median blur by Triton: rows of neighbours are sorted once for all windows that hold them, going down the picture."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight import blur as plain
from adv_wrappers.daylight.kernels.sorting_networks import MEDIAN, MIDDLE, SORTED

_BLOCK = 128
_ROWS, _THREADS = 12, 1 << 18  # so many rows a thread, where that leaves a large GPU so many threads


@triton.jit
def _exchange(values, i: tl.constexpr, j: tl.constexpr):
    low, high = tl.minimum(values[i], values[j]), tl.maximum(values[i], values[j])
    if i < j:
        return values[:i] + (low,) + values[i + 1 : j] + (high,) + values[j + 1 :]  # noqa: RUF005 - Triton's tuples
    else:
        return values[:j] + (high,) + values[j + 1 : i] + (low,) + values[i + 1 :]  # noqa: RUF005


@triton.jit
def _exchanged(values, NETWORK: tl.constexpr, COUNT: tl.constexpr):
    """The values after the exchanges of a network."""
    for e in tl.static_range(COUNT):
        values = _exchange(values, NETWORK[e][0], NETWORK[e][1])
    return values


@triton.jit
def _sorted_row(
    x,
    row,
    column,
    channel,
    height,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    SIZE: tl.constexpr,
    SORT: tl.constexpr,
    SORTS: tl.constexpr,
):
    """``SIZE`` levels around a column, in ascending order."""
    row = tl.minimum(tl.maximum(row, 0), height - 1)
    levels = ()
    for c in tl.static_range(SIZE):
        pixel = row * WIDTH + tl.minimum(tl.maximum(column + c - SIZE // 2, 0), WIDTH - 1)
        levels += (tl.load(x + pixel * CHANNELS + channel).to(tl.int32),)
    return _exchanged(levels, SORT, SORTS)


@triton.jit
def _median(
    x,
    out,
    height,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    SIZE: tl.constexpr,
    SORT: tl.constexpr,
    SORTS: tl.constexpr,
    PICK: tl.constexpr,
    PICKS: tl.constexpr,
    MIDDLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A thread goes down ``ROWS`` rows of a column, the last ``SIZE`` - 1 rows of neighbours in its registers."""
    line: tl.constexpr = WIDTH * CHANNELS
    blocks = tl.cdiv(tl.cdiv(height, ROWS) * line, BLOCK)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    base = (tl.program_id(0) // blocks).to(tl.int64) * height * line
    x, out = x + base, out + base
    top = at // line * ROWS
    column, channel = at % line // CHANNELS, at % CHANNELS
    # the sorted rows above the first window
    window = ()
    for r in tl.static_range(SIZE - 1):
        window += _sorted_row(x, top + r - SIZE // 2, column, channel, height, WIDTH, CHANNELS, SIZE, SORT, SORTS)
    # one row further down: its neighbours are sorted, the middle of the window is picked, and the oldest row leaves
    for r in range(ROWS):
        row = top + r
        lowest = _sorted_row(x, row + SIZE // 2, column, channel, height, WIDTH, CHANNELS, SIZE, SORT, SORTS)
        level = _exchanged(window + lowest, PICK, PICKS)[MIDDLE]
        tl.store(out + row * line + at % line, level.to(tl.uint8), row < height)
        window = window[SIZE:] + lowest


def median(images: Tensor, k: int, rows: int | None = None) -> Tensor:
    """The median of ``k`` x ``k`` pixels of uint8 images ``[N, H, W, K]``, borders replicated.

    Args:
        images: uint8 ``[N, H, W, K]``.
        k: 3, 5 or 7.
        rows: of the result that a thread computes; None for what suits their number.
    """
    images = images.contiguous()
    out = torch.empty_like(images)
    count, height, width, channels = images.shape
    rows = rows or (_ROWS if out.numel() > _ROWS * _THREADS else 2)
    blocks = triton.cdiv(triton.cdiv(height, rows) * width * channels, _BLOCK)
    if out.numel():
        with torch.cuda.device_of(images):
            _median[(count * blocks,)](
                images,
                out,
                height,
                width,
                channels,
                k,
                SORTED[k],
                len(SORTED[k]),
                MEDIAN[k],
                len(MEDIAN[k]),
                MIDDLE[k],
                rows,
                _BLOCK,
                enable_fp_fusion=False,
            )
    return out


def trial(device: torch.device) -> None:
    """Raise unless these are the plain version's medians."""
    rng = np.random.default_rng(0)
    for k, channels, rows in ((3, 1, 2), (3, 4, _ROWS), (5, 1, _ROWS), (7, 1, _ROWS)):
        x = torch.from_numpy(rng.integers(0, 256, (2, 13, 10, channels), np.uint8))
        triton_loader.check_equal(
            f"median {k}", median(x.to(device), k, rows=rows).cpu(), plain.median_blur(x, k, layout="HWF")
        )
