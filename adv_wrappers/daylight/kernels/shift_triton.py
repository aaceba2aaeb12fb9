# mypy: allow-untyped-decorators, disable-error-code="no-untyped-def"
"""Shifts by Triton: every pixel fetched from where it was, by one move for all images or one a row of the batch."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight.images import aligned
from adv_wrappers.daylight.shift import shift as plain
from adv_wrappers.daylight.warp import BORDERS

_BLOCK = 1024
_PIXELS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a pixel that are moved as one


@triton.jit
def inside(where, size, BORDER: tl.constexpr):
    """Index in ``[0, size)``, as ``border_index``."""
    if BORDER == "wrap":
        where = where % size  # of the sign of the number divided
        where = tl.where(where < 0, where + size, where)
    elif BORDER == "reflect":
        turn = tl.maximum(2 * (size - 1), 1)
        where = where % turn
        where = tl.where(where < 0, where + turn, where)
        where = tl.where(where > size - 1, turn - where, where)
    return tl.minimum(tl.maximum(where, 0), size - 1)


@triton.jit
def _shift(
    x,
    out,
    moves,
    pictures,
    apart,
    height,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    BORDER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row of the batch has so many ``pictures``; the moves of rows, right and down, lie ``apart`` numbers apart."""
    size = height * WIDTH * CHANNELS
    blocks = tl.cdiv(size, BLOCK)
    image = tl.program_id(0) // blocks
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    move = moves + image // pictures * apart
    # the pixel that a number comes from, before the move
    column = at // CHANNELS % WIDTH - tl.load(move)
    row = at // (CHANNELS * WIDTH) - tl.load(move + 1)
    own = at < size
    seen = own
    if BORDER == "zero":
        seen = own & (column >= 0) & (column < WIDTH) & (row >= 0) & (row < height)
    column, row = inside(column, WIDTH, BORDER), inside(row, height, BORDER)
    base = image.to(tl.int64) * size
    value = tl.load(x + base + (row * WIDTH + column) * CHANNELS + at % CHANNELS, seen, other=0)
    tl.store(out + base + at, value, own)


def shift(images: Tensor, moves: Tensor, border: str) -> Tensor:
    """uint8 images ``[N, H, W, K]`` moved by int32 ``[1, 2]``, right and down, or ``[B, 2]``, one for each N / B."""
    x = images.contiguous()
    result = torch.empty_like(x)
    channels, out = x.shape[-1], result
    # a pixel moves as one word where it is as long as one
    if channels in _PIXELS and aligned(x, channels):
        x = x.view(_PIXELS[channels])
        out = out.view(_PIXELS[channels])
        channels = 1
    count, height, width = x.shape[:3]
    if out.numel():
        with torch.cuda.device_of(x):
            _shift[(count * triton.cdiv(height * width * channels, _BLOCK),)](
                x,
                out,
                moves,
                count // len(moves),
                2 * (len(moves) > 1),
                height,
                width,
                channels,
                border,
                _BLOCK,
                enable_fp_fusion=False,
            )
    return result


@functools.lru_cache(maxsize=64)
def move(dx: int, dy: int, device: torch.device) -> Tensor:
    """One move for :func:`shift`, kept on the device."""
    return torch.tensor([[dx, dy]], dtype=torch.int32, device=device)


def trial(device: torch.device) -> None:
    """Raise unless these are the plain version's shifts."""
    moves = torch.tensor([[2, -1], [-40, 3]], dtype=torch.int32)
    for channels in (1, 2, 3, 4):
        x = (torch.arange(2 * 21 * 34 * channels) * 7 % 251).to(torch.uint8).view(2, 21, 34, channels)
        for border in BORDERS:
            rows = [
                plain(one[None], *to, border=border, layout="HWF") for one, to in zip(x, moves.tolist(), strict=True)
            ]
            triton_loader.check_equal(
                f"shift, {border}", shift(x.to(device), moves.to(device), border).cpu(), torch.cat(rows)
            )
            one = shift(x.to(device), move(2, -1, device), border).cpu()
            triton_loader.check_equal(f"one shift, {border}", one[:1], rows[0])
