"""JPEG compression artifacts: pictures coded and decoded again (daylight paper, section 3.5, table 5).

The paper gives no quality, so it is a parameter, 30 by default; nor does it say whether frames or stacks are coded.
Here every grey frame of a stack is a JPEG of its own, and a colour axis makes one JPEG. Everything else is OpenCV's
default: the tables of Annex K, colour differences halved in both directions (4:2:0), libjpeg-turbo's accurate
integer transform and smooth spreading of the colours. On the host OpenCV is called; elsewhere Triton's kernels or
torch do the same to the bit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import cv2
import torch
from torch import Tensor
from torch.nn import functional

from adv_wrappers.accel import triton_loader
from adv_wrappers.core.types import Array
from adv_wrappers.daylight.images import Limits, batched, limits_of, split
from adv_wrappers.daylight.opencv import Call, HostImages, by_arrays, each
from adv_wrappers.daylight.transform import Transform, WholeRange
from adv_wrappers.utils.checks import check_choice, integer

# ----------------------------------------------------------------------------------------------------------------------
# What JPEG loses: 8 x 8 blocks through the cosine transform, the quantiser and back, exactly as libjpeg-turbo does it.
#
# The tables are those of ITU-T T.81, Annex K, scaled by the quality as in the Independent JPEG Group's library. The
# transform is that library's accurate integer one (Loeffler, Ligtenberg and Moschytz 1989): constants of 13 bits, 2
# more bits kept between the two passes. A pass rounds nothing until its end, so it is ONE product with an integer
# matrix and one shift. Integers are held in float64, whose products and sums of them are exact below 2^53 in any
# order, on every device and whatever precision is allowed for float32; torch multiplies no integer matrices on a GPU.
# ----------------------------------------------------------------------------------------------------------------------


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
    # rows, then columns, each rounded as the library's integer transform does
    x = torch.addmm(level, planes.reshape(-1, BLOCK), forward_rows).floor_()
    x = torch.matmul(forward_columns, x.view(-1, BLOCK, width)).add_(0.5).floor_()
    x.mul_(inverse).round_().mul_(steps)
    # and back: columns, then rows
    x = torch.matmul(back_columns, x).add_(0.5).floor_()
    x = torch.addmm(unlevel, x.view(-1, BLOCK), back_rows).floor_()
    return x.clamp_(0, 255).view(planes.shape)


# ----------------------------------------------------------------------------------------------------------------------
# JPEG on any device: what libjpeg-turbo does to pictures, as batched torch operations that equal it to the bit.
#
# Colours go to brightness and two colour differences in 16-bit fixed point, the differences are averaged over 2 x 2 or
# 2 x 1 pixels, every plane goes through :func:`through_dct`, and the differences are spread again by a
# triangle filter. Each step is a linear map with one rounding at its end, held in float64 for the reason given there.
# ----------------------------------------------------------------------------------------------------------------------


Subsampling = Literal["4:2:0", "4:2:2", "4:4:4"]
SUBSAMPLINGS: dict[str, tuple[int, int]] = {
    "4:2:0": (2, 2),
    "4:2:2": (1, 2),
    "4:4:4": (1, 1),
}  # rows and columns of one colour difference

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
    # brightness block by block; the two differences are averaged before, and spread over their pixels after
    luma = through_dct(_padded(ycc[:1], BLOCK, BLOCK), quality)[0, :, :height, :width]
    chroma = _averaged(ycc[1:], factors)
    rows, columns = chroma.shape[2], -(-width // across)
    chroma = through_dct(_padded(chroma, BLOCK, BLOCK), quality, chroma=True)[:, :, :rows, :columns]
    chroma = _spread(chroma, factors)[:, :, :height, :width]
    # back to colours, in whole numbers as libjpeg has them
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


Order = Literal["RGB", "BGR"]
_FACTORS = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}


def jpeg(
    x: Tensor,
    quality: int = 30,
    *,
    subsampling: Subsampling = "4:2:0",
    order: Order = "RGB",
    layout: str | None = None,
    limits: Limits | None = None,
) -> Tensor:
    """``x`` as it comes back from a JPEG file.

    Args:
        x: uint8 or float images ``[B, *S]``, or one image with a given layout. Colours (a ``C`` axis of three) are
            coded together, every other picture on its own in grey.
        quality: 1 (worst) to 100.
        subsampling: resolution of the colours: ``4:2:0`` (halved both ways), ``4:2:2`` (halved along rows) or
            ``4:4:4`` (whole). Without a meaning for grey pictures.
        order: of the colours, ``RGB`` as environments give them or ``BGR`` as OpenCV does.
        layout: which axis is what; None infers.
        limits: darkest and brightest value of float images, by default 0 and 1. These are rounded (half to even) to
            the 256 grey levels that a JPEG codes.

    Returns:
        Images of the same shape and dtype; uint8 equal to ``cv2.imdecode`` of ``cv2.imencode`` to the bit.

    Raises:
        ValueRangeError: for another quality, subsampling or order.
        SpaceError: for a shape that is no image.

    >>> jpeg(torch.tensor([[0, 20, 40, 60]], dtype=torch.uint8), 10, layout="HW")
    tensor([[ 3, 17, 39, 59]], dtype=torch.uint8)
    """
    quality = integer("quality", quality, 1, 100, floats=True)
    check_choice("subsampling", subsampling, SUBSAMPLINGS)
    check_choice("order", order, get_args(Order))
    x, layout, single = batched(x, layout)
    y: Tensor = _coded(x, layout, limits_of(x, limits), quality, subsampling, order)
    return y[0] if single else y


def _coded(x: Any, layout: str, limits: Limits, quality: int, subsampling: str, order: str) -> Any:
    """A batch, an array or a tensor, through JPEG; limits are of floats."""
    if isinstance(x, Tensor) and x.is_floating_point():
        low, high = limits
        # In float32 at least: float16 does not hold the fractions of 255 that decide the rounding.
        exact = torch.promote_types(x.dtype, torch.float32)
        levels = ((x.to(exact) - low) / (high - low) * 255).round_().clamp_(0, 255).to(torch.uint8)
        y = _coded(levels, layout, limits, quality, subsampling, order)
        return (y.to(exact) / 255 * (high - low) + low).to(x.dtype).clamp_(low, high)
    # OpenCV on the host, Triton's kernels where they run, and else torch: all the same to the bit
    coder = _coder(quality, subsampling, order)
    y = by_arrays(lambda host: each(host, layout, coder, coloured=True), x)
    if y is not None:
        return y
    kernels = triton_loader.twin("daylight.kernels.jpeg", x)
    if kernels is not None:
        return kernels.round_trip(x, layout, quality, subsampling, order)
    images, back = split(x, layout, colours=True)
    return back(jpeg_torch(images, quality, subsampling, order))


@functools.lru_cache(maxsize=256)
def _coder(quality: int, subsampling: str, order: str) -> Call:
    grey = [cv2.IMWRITE_JPEG_QUALITY, quality]
    colours = [*grey, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _FACTORS[subsampling]]

    def code(source: HostImages, place: HostImages) -> Array:
        if source.ndim == 2:
            return _through_file(grey, cv2.IMREAD_GRAYSCALE, source)
        if order == "BGR":
            return _through_file(colours, cv2.IMREAD_COLOR, source)
        cv2.cvtColor(source, cv2.COLOR_RGB2BGR, place)  # the result's memory is free until the picture is decoded
        # Into place with the colours turned: a decoder that gives RGB would leave a copy to make, which costs the same.
        return cv2.cvtColor(_through_file(colours, cv2.IMREAD_COLOR, place), cv2.COLOR_BGR2RGB, place)

    return code


def _through_file(settings: list[int], kind: int, source: HostImages) -> Array:
    return cv2.imdecode(cv2.imencode(".jpg", source, settings)[1], kind)  # type: ignore[return-value]


@dataclass(frozen=True)
class JPEG(Transform):
    """JPEG compression artifacts: the pictures coded at a quality, and decoded again.

    Args:
        quality: 1 (worst) to 100, or a range of it.
        subsampling: resolution of the colours, ``4:2:0``, ``4:2:2`` or ``4:4:4`` (see :func:`jpeg`).
        order: of the colours, ``RGB`` or ``BGR``.
    """

    name: ClassVar[str] = "jpeg"
    ranged: ClassVar[tuple[str, ...]] = ("quality",)
    stride: ClassVar[float] = 1
    arrays: ClassVar[bool] = True
    quality: WholeRange = 30
    subsampling: Subsampling = "4:2:0"
    order: Order = "RGB"

    def validate(self, **parameter: object) -> None:
        integer("quality", parameter["quality"], 1, 100, floats=True)

    def change(self, x: Any, layout: str, limits: Limits | None, **parameters: int) -> Any:
        return _coded(x, layout, limits or (0.0, 255.0), int(parameters["quality"]), self.subsampling, self.order)
