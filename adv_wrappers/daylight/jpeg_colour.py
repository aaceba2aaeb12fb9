"""JPEG on any device: what libjpeg-turbo does to pictures, as batched torch operations that equal it to the bit.

Colours go to brightness and two colour differences in 16-bit fixed point, the differences are averaged over 2 x 2 or
2 x 1 pixels, every plane goes through :mod:`adv_wrappers.daylight.jpeg_dct`, and the differences are spread again by a
triangle filter. Each step is a linear map with one rounding at its end, held in float64 for the reason given there.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional

from adv_wrappers.daylight.jpeg_dct import BLOCK, through_dct

SUBSAMPLINGS = {"4:2:0": (2, 2), "4:2:2": (1, 2), "4:4:4": (1, 1)}  # rows and columns of one colour difference

# Values in memory at once: on the host few enough to stay in its caches.
_AT_ONCE = {"cpu": 1 << 17}
_ELSEWHERE = 1 << 24

# JFIF's weights times 2^16, rounded: of R, G, B in brightness, blue and red; of blue and red in R, G, B.
TO_YCC = ((19595, 38470, 7471), (-11059, -21709, 32768), (32768, -27439, -5329))
TO_RGB = ((0, 91881), (-22554, -46802), (116130, 0))


@functools.lru_cache(maxsize=16)
def _colours(device: torch.device) -> tuple[Tensor, ...]:
    """Both matrices, and what is added before rounding down, divided by 2^16."""
    one = 2.0**-16
    to_ycc, to_rgb = (torch.tensor(m, dtype=torch.float64) * one for m in (TO_YCC, TO_RGB))
    add_ycc = torch.tensor([[0.5], [128.5 - one], [128.5 - one]], dtype=torch.float64)
    add_rgb = 0.5 - 128 * to_rgb.sum(1, keepdim=True)
    return tuple(part.to(device) for part in (to_ycc, add_ycc, to_rgb, add_rgb))


@functools.lru_cache(maxsize=64)
def _alternating(even: float, odd: float, width: int, device: torch.device) -> Tensor:
    """``even, odd, even, ...``: rounding that leans neither way on average."""
    return torch.tensor([even, odd], dtype=torch.float64).repeat((width + 1) // 2)[:width].to(device)


def _padded(planes: Tensor, rows: int, columns: int) -> Tensor:
    """``[A, B, H, W]`` with the last row and column repeated up to multiples of these."""
    below, right = -planes.shape[2] % rows, -planes.shape[3] % columns
    return functional.pad(planes, (0, right, 0, below), mode="replicate") if below or right else planes


def jpeg_torch(images: Tensor, quality: int, subsampling: str, order: str) -> Tensor:
    """uint8 images ``[N, H, W, K]`` as JPEG leaves them; K is 3 or 1.

    Args:
        images: on any device.
        quality: 1 to 100.
        subsampling: one of ``SUBSAMPLINGS``; without a meaning for grey images.
        order: ``RGB`` or ``BGR``, of the three colours.
    """
    out = torch.empty(images.shape, dtype=torch.uint8, device=images.device)
    step = max(1, _AT_ONCE.get(images.device.type, _ELSEWHERE) // max(1, images[0:1].numel()))
    for start in range(0, len(images), step):
        some, into = images[start : start + step], out[start : start + step]
        if images.shape[-1] == 1:
            into[..., 0] = _grey(some[..., 0], quality)
        else:
            into.copy_(_colour(some.flip(-1) if order == "BGR" else some, quality, SUBSAMPLINGS[subsampling], order))
    return out


def _grey(images: Tensor, quality: int) -> Tensor:
    planes = _padded(images.to(torch.float64)[None], BLOCK, BLOCK)
    return through_dct(planes, quality)[0, :, : images.shape[1], : images.shape[2]]


def _colour(images: Tensor, quality: int, factors: tuple[int, int], order: str) -> Tensor:
    n, height, width, _ = images.shape
    down, across = factors
    to_ycc, add_ycc, to_rgb, add_rgb = _colours(images.device)
    # Columns are repeated before the average and rows after it, save the one that makes their number even.
    rgb = _padded(images.permute(3, 0, 1, 2).to(torch.float64), down, BLOCK * across)
    ycc = torch.addmm(add_ycc, to_ycc, rgb.reshape(3, -1)).floor_().view(rgb.shape)
    luma = through_dct(_padded(ycc[:1], BLOCK, BLOCK), quality)[0, :, :height, :width]
    chroma = _averaged(ycc[1:], factors)
    rows, columns = chroma.shape[2], -(-width // across)
    chroma = through_dct(_padded(chroma, BLOCK, BLOCK), quality, chroma=True)[:, :, :rows, :columns]
    chroma = _spread(chroma, factors)[:, :, :height, :width]
    rgb = torch.addmm(add_rgb, to_rgb, chroma.reshape(2, -1)).floor_().view(3, n, height, width)
    rgb = rgb.add_(luma).clamp_(0, 255).permute(1, 2, 3, 0)
    return rgb.flip(-1) if order == "BGR" else rgb


def _averaged(planes: Tensor, factors: tuple[int, int]) -> Tensor:
    if factors == (1, 1):
        return planes
    even, odd = (0.25, 0.5) if factors == (2, 2) else (0.0, 0.5)
    means = functional.avg_pool2d(planes, factors)
    return means.add_(_alternating(even, odd, means.shape[-1], planes.device)).floor_()


def _spread(planes: Tensor, factors: tuple[int, int]) -> Tensor:
    """Weights 3/4 and 1/4 of the nearest two along an axis; the library repeats values in pictures that are tiny."""
    if factors == (1, 1):
        return planes
    if planes.shape[-1] <= 2:
        return planes.repeat_interleave(factors[0], 2).repeat_interleave(2, 3)
    even, odd = (8 / 16, 7 / 16) if factors == (2, 2) else (1 / 4, 2 / 4)
    spread = functional.interpolate(planes, scale_factor=factors, mode="bilinear")
    return spread.add_(_alternating(even, odd, spread.shape[-1], planes.device)).floor_()
