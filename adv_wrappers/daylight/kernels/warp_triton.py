# mypy: allow-untyped-decorators, disable-error-code="no-untyped-def"
"""Warps by Triton: every pixel of the result is one of the image's, or a mean of four, as a map names them.

Indices depend on no image: a program reads them once for several images.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight import warp as plain
from adv_wrappers.daylight.images import aligned

_BLOCK = 256
_IMAGES, _PROGRAMS = 8, 1 << 12  # so many images a program, where that leaves a large GPU so many programs


@triton.jit
def _level(word, LANE: tl.constexpr):
    return (word >> (8 * LANE)) & 255


@triton.jit
def _gather(
    x,
    out,
    indices,
    fractions,
    images,
    pixels,
    CHANNELS: tl.constexpr,
    LANES: tl.constexpr,
    BLENDED: tl.constexpr,
    PER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``PER`` images a program, ``CHANNELS`` numbers a pixel, of ``LANES`` bytes each."""
    blocks = tl.cdiv(pixels * CHANNELS, BLOCK)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < pixels * CHANNELS
    pixel, channel = at // CHANNELS, at % CHANNELS
    # what the map says of this pixel, which is read once for all images of the program
    index = tl.load(indices + pixel, inside, other=-1)
    if BLENDED:
        index_1 = tl.load(indices + pixels + pixel, inside, other=-1)
        index_2 = tl.load(indices + 2 * pixels + pixel, inside, other=-1)
        index_3 = tl.load(indices + 3 * pixels + pixel, inside, other=-1)
        fraction = tl.load(fractions + pixel, inside, other=0).to(tl.int32)
        f, g = fraction & 31, fraction >> 5
    first = tl.program_id(0) // blocks * PER
    for i in range(PER):
        if first + i < images:
            base = (first + i).to(tl.int64) * pixels * CHANNELS
            source = x + base + channel
            word = tl.load(source + index * CHANNELS, index >= 0, other=0).to(tl.int32)  # outside it is dark
            if BLENDED:
                word_1 = tl.load(source + index_1 * CHANNELS, index_1 >= 0, other=0).to(tl.int32)
                word_2 = tl.load(source + index_2 * CHANNELS, index_2 >= 0, other=0).to(tl.int32)
                word_3 = tl.load(source + index_3 * CHANNELS, index_3 >= 0, other=0).to(tl.int32)
            result = tl.zeros([BLOCK], tl.int32)
            for lane in tl.static_range(LANES):
                level = _level(word, lane)
                if BLENDED:
                    upper = level * (32 - f) + _level(word_1, lane) * f
                    lower = _level(word_2, lane) * (32 - f) + _level(word_3, lane) * f
                    level = (upper * (32 - g) + lower * g + 512) >> 10  # all weights hold a factor of 32
                result |= level << (8 * lane)
            tl.store(out + base + at, result.to(out.dtype.element_ty), inside)


def gather(images: Tensor, indices: Tensor, fractions: Tensor | None, per: int | None = None) -> Tensor:
    """New images, uint8 ``[N, H, W, K]``, of these.

    Args:
        images: uint8 ``[N, H, W, K]``.
        indices: flat indices of pixels, int32 ``[1, H * W]``, or ``[4, H * W]`` for the four neighbours; -1 is the
            dark outside.
        fractions: int16 ``[H * W]``, the row's times 32 plus the column's; None for one neighbour.
        per: images a program; None for what suits their number.
    """
    images = images.contiguous()
    count, height, width, channels = images.shape
    x, out = images, torch.empty_like(images)
    lanes, target = 1, out
    if channels == 4 and aligned(images, 4):  # a pixel is one word
        x = images.view(torch.int32)
        target = out.view(torch.int32)
        channels = 1
        lanes = 4
    # several images a program where there are enough of them to keep the device busy
    blocks = triton.cdiv(height * width * channels, _BLOCK)
    per = per or (_IMAGES if count * blocks > _IMAGES * _PROGRAMS else 1)
    if out.numel():
        with torch.cuda.device_of(images):
            _gather[(blocks * triton.cdiv(count, per),)](
                x,
                target,
                indices,
                fractions,
                count,
                height * width,
                channels,
                lanes,
                fractions is not None,
                per,
                _BLOCK,
                enable_fp_fusion=False,
            )
    return out


@functools.lru_cache(maxsize=64)
def _gathered(at: plain.Map, border: str, interpolation: str, device: torch.device) -> tuple[Tensor, Tensor | None]:
    indices = torch.from_numpy(plain.neighbours(at, border, interpolation).astype(np.int32)).to(device)
    if interpolation == "nearest":
        return indices, None
    return indices, torch.from_numpy(at.fraction.reshape(-1).astype(np.int16)).to(device)


def warp(images: Tensor, at: plain.Map, border: str, interpolation: str) -> Tensor:
    """As :func:`adv_wrappers.daylight.warp.warp`, of uint8 images."""
    return gather(images, *_gathered(at, border, interpolation, images.device))


def trial(device: torch.device) -> None:
    """Raise unless these are the plain version's warps."""
    rng = np.random.default_rng(0)
    matrix = (0.9, 0.3, -2.0, -0.2, 1.1, 1.5)
    for channels in (1, 3, 4):
        x = torch.from_numpy(rng.integers(0, 256, (3, 9, 34, channels), np.uint8))
        for border, interpolation in (("zero", "bilinear"), ("reflect", "bilinear"), ("zero", "nearest")):
            at = plain.affine_map(matrix, 9, 34, interpolation)
            expected = plain.warp(x, at, border, interpolation)
            triton_loader.check_equal("warp", warp(x.to(device), at, border, interpolation).cpu(), expected)
        at = plain.affine_map(matrix, 9, 34, "bilinear")
        several = gather(x.to(device), *_gathered(at, "wrap", "bilinear", device), _IMAGES).cpu()
        triton_loader.check_equal("several images", several, plain.warp(x, at, "wrap", "bilinear"))
