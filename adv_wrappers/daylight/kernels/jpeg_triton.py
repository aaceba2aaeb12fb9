# mypy: allow-untyped-decorators, disable-error-code="assignment,misc"
# Triton's tuples grow in loops that are unrolled; to mypy they stay what they begin as.
"""JPEG as Triton kernels: the twin of :mod:`adv_wrappers.daylight.jpeg`, equal to it to the bit.

Grey pictures of any layout take the one kernel of ``dct_triton``, which reads and writes every byte once. Colours take
four, since a difference is spread over neighbours in other blocks: to brightness and differences (at 4:2:0, 3 bytes of
a pixel read and 1.5 written), each of the two through the blocks' kernel in place (1.5 and 1.5), and back (1.5 and 3).
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight.jpeg import SUBSAMPLINGS, TO_RGB, TO_YCC, by_opencv
from adv_wrappers.daylight.kernels.dct_triton import through

_TO_YCC, _TO_RGB = tl.constexpr(TO_YCC), tl.constexpr(TO_RGB)
_ROWS, _COLUMNS = 16, 32  # of a program
_MOST = 1 << 29  # blocks in a launch, counted in int32


@triton.jit
def _tile(height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Picture, rows ``[ROWS, 1]`` and columns ``[1, COLUMNS]`` of a program."""
    down, across = tl.cdiv(height, ROWS), tl.cdiv(width, COLUMNS)
    at = tl.program_id(0)
    row = at // across % down * ROWS + tl.arange(0, ROWS)[:, None]
    return (at // (across * down)).to(tl.int64), row, at % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]


@triton.jit
def _mixed(rgb, U: tl.constexpr, ADD: tl.constexpr):  # type: ignore[no-untyped-def]
    return (rgb[0] * _TO_YCC[U][0] + rgb[1] * _TO_YCC[U][1] + rgb[2] * _TO_YCC[U][2] + ADD) >> 16


@triton.jit(do_not_specialize=["height", "width", "rows", "columns", "red", "green", "blue"])
def to_ycc_kernel(  # type: ignore[no-untyped-def]
    x,
    luma,
    chroma,
    height,
    width,
    rows,
    columns,
    red,
    green,
    blue,
    PIXEL: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Brightness ``[N, H, W]`` and averaged differences ``[N, 2, rows, columns]``; a program has a tile of the latter.

    ``red``, ``green`` and ``blue`` are offsets, ``PIXEL`` the distance of two pixels.
    """
    picture, row, column = _tile(rows, columns, ROWS, COLUMNS)
    x += picture * height * width * 3
    luma += picture * height * width
    chroma += picture * rows * columns * 2
    # 0 and 1, or 1 and 2: rounding that leans neither way. Nothing where nothing is averaged.
    bias = (column % 2 + DOWN // 2) * (ACROSS // 2)
    u, v = bias, bias
    for i in tl.static_range(DOWN):
        for j in tl.static_range(ACROSS):
            y, at = row * DOWN + i, column * ACROSS + j
            # Columns are repeated before the average, and of the rows the one that makes their number even.
            line = x + tl.minimum(y, height - 1).to(tl.int64) * width * PIXEL
            pixel = line + tl.minimum(at, width - 1) * PIXEL
            rgb = ()
            for offset in tl.static_range(3):
                rgb += (tl.load(pixel + (red if offset == 0 else green if offset == 1 else blue)).to(tl.int32),)
            inside = (y < height) & (at < width)
            tl.store(luma + y.to(tl.int64) * width + at, _mixed(rgb, 0, 1 << 15).to(tl.uint8), mask=inside)
            u += _mixed(rgb, 1, (257 << 15) - 1)
            v += _mixed(rgb, 2, (257 << 15) - 1)
    # the mean of the differences
    inside = (row < rows) & (column < columns)
    chroma += row.to(tl.int64) * columns + column
    tl.store(chroma, (u >> (DOWN * ACROSS) // 2).to(tl.uint8), mask=inside)
    tl.store(chroma + rows.to(tl.int64) * columns, (v >> (DOWN * ACROSS) // 2).to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["height", "width", "rows", "columns", "last", "red", "green", "blue"])
def to_rgb_kernel(  # type: ignore[no-untyped-def]
    luma,
    chroma,
    out,
    height,
    width,
    rows,
    columns,
    last,
    red,
    green,
    blue,
    PIXEL: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    SMOOTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Colours of a tile of pixels; ``last`` is the last column of the differences that belongs to the picture."""
    picture, row, column = _tile(height, width, ROWS, COLUMNS)
    inside = (row < height) & (column < width)
    out += picture * height * width * 3 + row.to(tl.int64) * width * PIXEL + column * PIXEL
    y = tl.load(luma + picture * height * width + row.to(tl.int64) * width + column, mask=inside, other=0).to(tl.int32)
    # the nearest averaged differences to both sides and above and below, of which three quarters and one quarter are
    # taken
    near = tl.minimum(column // ACROSS, last)
    far = tl.minimum(tl.maximum(near + column % 2 * 2 - 1, 0), last)
    above = tl.minimum(row // DOWN, rows - 1).to(tl.int64)
    below = tl.minimum(tl.maximum(row // DOWN + row % 2 * 2 - 1, 0), rows - 1).to(tl.int64)
    differences = ()
    for k in tl.static_range(2):
        plane = chroma + (picture * 2 + k) * rows * columns
        value = tl.load(plane + above * columns + near).to(tl.int32)
        if SMOOTH:
            side = tl.load(plane + above * columns + far).to(tl.int32)
            if DOWN == 2:
                value = value * 3 + tl.load(plane + below * columns + near).to(tl.int32)
                side = side * 3 + tl.load(plane + below * columns + far).to(tl.int32)
                value = (value * 3 + side + 8 - column % 2) >> 4
            else:
                value = (value * 3 + side + 1 + column % 2) >> 2
        differences += (value - 128,)
    # colours from brightness and differences
    for k in tl.static_range(3):
        part = y + ((differences[0] * _TO_RGB[k][0] + differences[1] * _TO_RGB[k][1] + (1 << 15)) >> 16)
        offset = red if k == 0 else green if k == 1 else blue
        tl.store(out + offset, tl.minimum(tl.maximum(part, 0), 255).to(tl.uint8), mask=inside)


def _colour(
    x: Tensor, out: Tensor, shape: tuple[int, int, int], planar: bool, quality: int, subsampling: str, order: str
) -> None:
    count, height, width = shape
    down, across = SUBSAMPLINGS[subsampling]
    rows, columns = triton.cdiv(height, down), triton.cdiv(width, 8 * across) * 8
    # brightness of every pixel, and both differences where they are averaged, filled up to whole blocks
    luma = torch.empty(count * height * width, dtype=torch.uint8, device=x.device)
    chroma = torch.empty(count * 2 * rows * columns, dtype=torch.uint8, device=x.device)
    # how far apart two pixels are in memory, and two colours of one
    pixel, apart = (1, height * width) if planar else (3, 1)
    offsets = (0, apart, 2 * apart) if order == "RGB" else (2 * apart, apart, 0)

    def tiles(height: int, width: int) -> tuple[int]:
        return (count * triton.cdiv(height, _ROWS) * triton.cdiv(width, _COLUMNS),)

    to_ycc_kernel[tiles(rows, columns)](
        x,
        luma,
        chroma,
        height,
        width,
        rows,
        columns,
        *offsets,
        pixel,
        down,
        across,
        _ROWS,
        _COLUMNS,
        enable_fp_fusion=False,
    )
    # each through the blocks' kernel, in place
    through(luma, luma, (count, height, width, 1), quality)
    through(chroma, chroma, (count * 2, rows, columns, 1), quality, chroma=True)
    last = triton.cdiv(width, across) - 1
    smooth = across == 2 and last >= 2  # the library repeats values in pictures that are tiny
    to_rgb_kernel[tiles(height, width)](
        luma,
        chroma,
        out,
        height,
        width,
        rows,
        columns,
        last,
        *offsets,
        pixel,
        down,
        across,
        smooth,
        _ROWS,
        _COLUMNS,
        enable_fp_fusion=False,
    )


def round_trip(levels: Tensor, layout: str, quality: int, subsampling: str, order: str) -> Tensor:
    """uint8 ``[B, *S]`` in ``layout`` as JPEG leaves it (see :func:`adv_wrappers.daylight.jpeg.jpeg`)."""
    x = levels.contiguous()
    out = torch.empty_like(x)
    rows = 1 + layout.index("H")
    before = x.shape[:rows]
    height, width = x.shape[rows : rows + 2]
    after = x.shape[rows + 2 :]
    colours = "C" in layout and x.shape[1 + layout.index("C")] == 3
    planar = colours and not after
    count, inner = math.prod(before) // (3 if planar else 1), math.prod(after)
    if count == 0:
        return out
    # as many pictures in one launch as a grid may have blocks
    size = x.numel() // count
    step = max(1, _MOST // (triton.cdiv(height, 8) * triton.cdiv(width, 8) * inner))
    with torch.cuda.device_of(x):  # kernels start on the current device
        for start in range(0, count, step):
            some = min(step, count - start)
            source, into = (t.view(-1)[start * size :] for t in (x, out))
            if colours:
                _colour(source, into, (some, height, width), planar, quality, subsampling, order)
            else:
                through(source, into, (some, height, width, inner), quality)
    return out


def trial(device: torch.device) -> None:
    """Raise unless the kernels give what OpenCV gives on ``device``."""
    generator = torch.Generator().manual_seed(0)
    cases = [
        ("HW", (13, 9), 5),
        ("HWF", (17, 24, 4), 30),
        ("HWC", (17, 23, 3), 75),
        ("CHW", (3, 16, 33), 100),
        ("HWC", (5, 3, 3), 30),
    ]
    for layout, shape, quality in cases:
        x = torch.randint(0, 256, (2, *shape), generator=generator, dtype=torch.uint8).to(device)
        for subsampling in SUBSAMPLINGS if "C" in layout else ("4:4:4",):
            expected = torch.from_numpy(by_opencv(x.cpu().numpy(), layout, quality, subsampling, "RGB")).to(device)
            got = round_trip(x, layout, quality, subsampling, "RGB")
            triton_loader.check_equal(f"JPEG {subsampling} of {layout}", got, expected)
