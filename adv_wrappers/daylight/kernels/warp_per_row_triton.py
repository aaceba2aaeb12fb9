# mypy: allow-untyped-decorators, disable-error-code="no-untyped-def"
"""Warps of which every row of a batch has its own, by Triton: maps are not made, but reckoned where they are needed.

In float64, in the order of ``affine_map`` and ``perspective_map`` and with no fused multiply-add, so to the same bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight import warp as plain
from adv_wrappers.daylight.images import aligned
from adv_wrappers.daylight.kernels.shift_triton import inside

_BLOCK = 256
_MOST = tl.constexpr(2147483647.0)
_WHOLE = tl.constexpr(6755399441055744.0)  # 1.5 * 2^52: a float64 of this size has no fraction


@triton.jit
def _rint(v):
    """The nearest integer, half to even, as far as 32 bits reach."""
    v = tl.minimum(tl.maximum(v, -_MOST - 1.0), _MOST)
    return ((v + _WHOLE) - _WHOLE).to(tl.int64)


@triton.jit
def _affine(m, column, row, FIRST: tl.constexpr, BILINEAR: tl.constexpr):
    """One coordinate of where a pixel comes from, in 1/32 pixels."""
    a, b, c = tl.load(m + FIRST), tl.load(m + FIRST + 1), tl.load(m + FIRST + 2)
    v = _rint((b * row + c) * 1024.0) + _rint(a * column * 1024.0)
    if BILINEAR:
        return (v + 16) >> 5
    return ((v + 512) >> 10) << 5


@triton.jit
def _projected(m, start, inner, row, FIRST: tl.constexpr):
    a, b, c = tl.load(m + FIRST), tl.load(m + FIRST + 1), tl.load(m + FIRST + 2)
    return (a * start + b * row + c) + a * inner


@triton.jit
def _neighbour(x, row, column, seen, height, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, BORDER: tl.constexpr):
    if BORDER == "zero":
        seen = seen & (column >= 0) & (column < WIDTH) & (row >= 0) & (row < height)
    pixel = inside(row, height, BORDER) * WIDTH + inside(column, WIDTH, BORDER)
    return tl.load(x + pixel * CHANNELS, seen, other=0).to(tl.int32)


@triton.jit
def _warp(
    x,
    out,
    matrices,
    pictures,
    height,
    together,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    LANES: tl.constexpr,
    AFFINE: tl.constexpr,
    BILINEAR: tl.constexpr,
    BORDER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``together`` columns are summed from where they start, in perspectives."""
    size = height * WIDTH * CHANNELS
    blocks = tl.cdiv(size, BLOCK)
    image = tl.program_id(0) // blocks
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    # the pixel of this number, and the matrix of its row
    column, row = at // CHANNELS % WIDTH, at // (CHANNELS * WIDTH)
    m = matrices + image // pictures * 9
    y = row.to(tl.float64)
    # where the pixel comes from, in 1/32 of a pixel
    if AFFINE:
        u = _affine(m, column.to(tl.float64), y, 0, BILINEAR)
        v = _affine(m, column.to(tl.float64), y, 3, BILINEAR)
    else:
        inner = (column % together).to(tl.float64)
        start = column.to(tl.float64) - inner
        w = _projected(m, start, inner, y, 6)
        w = tl.where(w != 0.0, (32.0 if BILINEAR else 1.0) / tl.where(w != 0.0, w, 1.0), 0.0)
        u, v = _rint(_projected(m, start, inner, y, 0) * w), _rint(_projected(m, start, inner, y, 3) * w)
        if not BILINEAR:
            u, v = u << 5, v << 5
    # whole pixels, and the five bits of the fraction
    column = tl.minimum(tl.maximum(u >> 5, -32768), 32767).to(tl.int32)
    row = tl.minimum(tl.maximum(v >> 5, -32768), 32767).to(tl.int32)
    f, g = (u & 31).to(tl.int32), (v & 31).to(tl.int32)
    base, seen = image.to(tl.int64) * size, at < size
    x = x + base + at % CHANNELS
    word = _neighbour(x, row, column, seen, height, WIDTH, CHANNELS, BORDER)
    # the mean of four neighbours by their weights, byte by byte of a word
    if BILINEAR:
        word_1 = _neighbour(x, row, column + 1, seen, height, WIDTH, CHANNELS, BORDER)
        word_2 = _neighbour(x, row + 1, column, seen, height, WIDTH, CHANNELS, BORDER)
        word_3 = _neighbour(x, row + 1, column + 1, seen, height, WIDTH, CHANNELS, BORDER)
        result = tl.zeros([BLOCK], tl.int32)
        for lane in tl.static_range(LANES):
            upper = (word >> 8 * lane & 255) * (32 - f) + (word_1 >> 8 * lane & 255) * f
            lower = (word_2 >> 8 * lane & 255) * (32 - f) + (word_3 >> 8 * lane & 255) * f
            result |= (upper * (32 - g) + lower * g + 512 >> 10) << 8 * lane
        word = result
    tl.store(out + base + at, word.to(out.dtype.element_ty), seen)


def warp(images: Tensor, matrices: Tensor, affine: bool, border: str, interpolation: str) -> Tensor:
    """Images seen through maps of their own.

    Args:
        images: uint8 ``[N, H, W, K]``.
        matrices: from destination to source, float64 ``[B, 9]``, one for each N / B images: nine numbers of a
            perspective, or six of an affine transform and three that are not read.
    """
    x = images.contiguous()
    result = torch.empty_like(x)
    out, lanes = result, 1
    if x.shape[-1] == 4 and aligned(x, 4):  # a pixel is one word
        x = x.view(torch.int32)
        out = out.view(torch.int32)
        lanes = 4
    count, height, width, channels = x.shape
    if out.numel():
        with torch.cuda.device_of(x):
            _warp[(count * triton.cdiv(height * width * channels, _BLOCK),)](
                x,
                out,
                matrices,
                count // len(matrices),
                height,
                plain.together(height, width),
                width,
                channels,
                lanes,
                affine,
                interpolation == "bilinear",
                border,
                _BLOCK,
                enable_fp_fusion=False,
            )
    return result


def trial(device: torch.device) -> None:
    """Raise unless these are the warps by the maps of the host."""
    turns = [(0.9, 0.3, -2.0, -0.2, 1.1, 1.5), (1.02, -0.33, 4.7, 0.21, 0.98, -1.25)]
    tilts = [
        (1.02, 0.013, -0.4, 0.007, 0.97, 0.3, 0.001, -0.003, 0.98),
        (0.9, 0.0, 3.3, 0.1, 1.1, 0.0, 0.0, 0.004, 1.1),
    ]
    for channels, border, interpolation in (
        (1, "zero", "bilinear"),
        (3, "reflect", "nearest"),
        (4, "wrap", "bilinear"),
    ):
        x = (torch.arange(2 * 9 * 84 * channels) * 7 % 251).to(torch.uint8).view(2, 9, 84, channels)
        for matrices, make in ((turns, plain.affine_map), (tilts, plain.perspective_map)):
            affine = matrices is turns
            given = [(*plain.inverted(m), 0.0, 0.0, 0.0) if affine else m for m in matrices]
            got = warp(
                x.to(device), torch.tensor(given, dtype=torch.float64, device=device), affine, border, interpolation
            )
            maps = [make(m, 9, 84, interpolation) for m in matrices]
            rows = [plain.warp(one[None], at, border, interpolation) for one, at in zip(x, maps, strict=True)]
            triton_loader.check_equal(f"warps by row, {border}", got.cpu(), torch.cat(rows))
