"""JPEG compression artifacts: pictures coded and decoded again (daylight paper, section 3.5, table 5).

The paper gives no quality, so it is a parameter, 30 by default; nor does it say whether frames or stacks are coded.
Here every grey frame of a stack is a JPEG of its own, and a colour axis makes one JPEG. Everything else is OpenCV's
default: the tables of Annex K, colour differences halved in both directions (4:2:0), libjpeg-turbo's accurate
integer transform and smooth spreading of the colours. OpenCV is called, for pictures on a device on the host, unless
Triton's kernels run there, which do the same to the bit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import cv2
import torch
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.core.types import Array
from adv_wrappers.daylight.images import Limits, batched, limits_of
from adv_wrappers.daylight.opencv import Call, HostImages, by_arrays, each
from adv_wrappers.daylight.transform import Transform, WholeRange
from adv_wrappers.utils.checks import check_choice, integer

# ----------------------------------------------------------------------------------------------------------------------
# What libjpeg-turbo computes with, for the kernels: the tables of ITU-T T.81, Annex K, scaled by the quality as in the
# Independent JPEG Group's library, and that library's accurate integer transform (Loeffler, Ligtenberg and Moschytz
# 1989): constants of 13 bits, 2 more bits kept between the two passes.
# ----------------------------------------------------------------------------------------------------------------------


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


Subsampling = Literal["4:2:0", "4:2:2", "4:4:4"]
SUBSAMPLINGS: dict[str, tuple[int, int]] = {
    "4:2:0": (2, 2),
    "4:2:2": (1, 2),
    "4:4:4": (1, 1),
}  # rows and columns of one colour difference

# JFIF's weights times 2^16, rounded: of R, G, B in brightness, blue and red; of blue and red in R, G, B.
TO_YCC = ((19595, 38470, 7471), (-11059, -21709, 32768), (32768, -27439, -5329))
TO_RGB = ((0, 91881), (-22554, -46802), (116130, 0))

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
    # OpenCV, or Triton's kernels where they run, which are the same to the bit
    y = by_arrays(lambda host: by_opencv(host, layout, quality, subsampling, order), x)
    if y is not None:
        return y
    kernels = triton_loader.twin("daylight.kernels.jpeg", x)
    if kernels is not None:
        return kernels.round_trip(x, layout, quality, subsampling, order)
    return torch.from_numpy(by_opencv(x.cpu().numpy(), layout, quality, subsampling, order)).to(x.device)


def by_opencv(x: HostImages, layout: str, quality: int, subsampling: str, order: str) -> HostImages:
    """The same of uint8 in host memory."""
    return each(x, layout, _coder(quality, subsampling, order), coloured=True)


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
