"""What JPEG loses: 8 x 8 blocks through the cosine transform, the quantiser and back, exactly as libjpeg-turbo does it.

The tables are those of ITU-T T.81, Annex K, scaled by the quality as in the Independent JPEG Group's library. The
transform is that library's accurate integer one (Loeffler, Ligtenberg and Moschytz 1989): constants of 13 bits, 2 more
bits kept between the two passes. A pass rounds nothing until its end, so it is ONE product with an integer matrix and
one shift. Integers are held in float64, whose products and sums of them are exact below 2^53 in any order, on every
device and whatever precision is allowed for float32; torch multiplies no integer matrices on a GPU.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

BLOCK = 8

BITS, KEPT = 13, 2  # of the constants; of the first pass's result below the unit

# sqrt(8) * 2^13 times the cosines. The library adds up rounded constants: hence the entries that are off by one.
COSINES = (
    (8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192),
    (11363, 9633, 6437, 2260, -2260, -6437, -9633, -11363),
    (10703, 4433, -4433, -10703, -10703, -4433, 4433, 10703),
    (9633, -2259, -11362, -6436, 6436, 11362, 2259, -9633),
    (8192, -8192, -8192, 8192, 8192, -8192, -8192, 8192),
    (6437, -11362, 2261, 9633, -9633, -2261, 11362, -6437),
    (4433, -10704, 10704, -4433, -4433, 10704, -10704, 4433),
    (2260, -6436, 9633, -11363, 11363, -9633, 6436, -2260),
)

_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)


def quantisers(quality: int, chroma: bool = False) -> Tensor:
    """The step of every coefficient, int64 ``[8, 8]``, vertical frequency first.

    >>> quantisers(30)[0].tolist()
    [27, 18, 17, 27, 40, 66, 85, 101]
    """
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((torch.tensor(_CHROMINANCE if chroma else _LUMINANCE) * percent + 50) // 100).clamp_(1, 255)


@functools.lru_cache(maxsize=16)
def _passes(device: torch.device) -> tuple[Tensor, ...]:
    """Matrices of the four passes and what is added before rounding down, both divided by the shift (exactly)."""
    cosines = torch.tensor(COSINES, dtype=torch.float64)
    half = torch.full((BLOCK,), 0.5, dtype=torch.float64)
    # Grey levels are coded from -128 on, which only the sum of a row sees.
    level = half - torch.tensor([128 * BLOCK << KEPT] + [0] * (BLOCK - 1), dtype=torch.float64)
    forward_rows = cosines.T / 2 ** (BITS - KEPT)
    forward_columns = cosines / 2 ** (BITS + KEPT)  # leaves the coefficients 8 times as large
    back_columns = cosines.T / 2 ** (BITS - KEPT)
    back_rows = cosines / 2 ** (BITS + KEPT + 3)
    passes = (forward_rows, level, forward_columns, back_columns, back_rows, half + 128)
    return tuple(one.contiguous().to(device) for one in passes)


@functools.lru_cache(maxsize=256)
def _steps(quality: int, chroma: bool, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Steps of one row of blocks ``[8, W]``, and their inverse for coefficients 8 times as large.

    Halves are rounded away from zero: a nudge of 2^-40 lifts them over the half, and is far too small for any other
    quotient (the next lies 1/2040 from a half).
    """
    steps = quantisers(quality, chroma).to(torch.float64).repeat(1, width // BLOCK)
    return steps.to(device), ((1 + 2.0**-40) / (8 * steps)).to(device)


def through_dct(planes: Tensor, quality: int, chroma: bool = False) -> Tensor:
    """Planes as they come back from quantised coefficients.

    Args:
        planes: float64 ``[..., H, W]``, whole numbers from 0 to 255; H and W multiples of 8.
        quality: 1 to 100.
        chroma: use the coarser table of the colour differences.

    >>> through_dct(torch.arange(64, dtype=torch.float64).view(8, 8), 50)[0].tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0]
    """
    forward_rows, level, forward_columns, back_columns, back_rows, unlevel = _passes(planes.device)
    width = planes.shape[-1]
    steps, inverse = _steps(quality, chroma, width, planes.device)
    x = torch.addmm(level, planes.reshape(-1, BLOCK), forward_rows).floor_()
    x = torch.matmul(forward_columns, x.view(-1, BLOCK, width)).add_(0.5).floor_()
    x.mul_(inverse).round_().mul_(steps)
    x = torch.matmul(back_columns, x).add_(0.5).floor_()
    x = torch.addmm(unlevel, x.view(-1, BLOCK), back_rows).floor_()
    return x.clamp_(0, 255).view(planes.shape)
