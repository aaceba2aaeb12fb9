"""JPEG compression artifacts: pictures coded and decoded again (daylight paper, section 3.5, table 5).

The paper gives no quality, so it is a parameter, 30 by default; nor does it say whether frames or stacks are coded.
Here every grey frame of a stack is a JPEG of its own, and a colour axis makes one JPEG. Everything else is OpenCV's
default: the tables of Annex K, colour differences halved in both directions (4:2:0), libjpeg-turbo's accurate integer
transform and smooth spreading of the colours. On the host OpenCV is called; elsewhere Triton's kernels or torch do the
same to the bit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import cv2
import torch
from torch import Tensor

from adv_wrappers.accel import load_triton_kernels
from adv_wrappers.core.types import Array
from adv_wrappers.daylight.base_transform import Transform, WholeRange
from adv_wrappers.daylight.jpeg_colour import SUBSAMPLINGS, jpeg_torch
from adv_wrappers.daylight.observations_as_images import Limits, batched, choice, limits_of, on_host, split
from adv_wrappers.daylight.opencv_image_by_image import Call, HostImages, each
from adv_wrappers.utils.check_numbers import integer

_ORDERS = ("RGB", "BGR")
_FACTORS = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}


def jpeg(
    x: Tensor,
    quality: int = 30,
    *,
    subsampling: str = "4:2:0",
    order: str = "RGB",
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
    choice("subsampling", subsampling, tuple(SUBSAMPLINGS))
    choice("order", order, _ORDERS)
    x, layout, single = batched(x, layout)
    low, high = limits_of(x, limits)
    levels = x
    if x.dtype != torch.uint8:
        # In float32 at least: float16 does not hold the fractions of 255 that decide the rounding.
        exact = torch.promote_types(x.dtype, torch.float32)
        levels = ((x.to(exact) - low) / (high - low) * 255).round_().clamp_(0, 255).to(torch.uint8)
    y: Tensor
    kernels = load_triton_kernels.twin("daylight.kernels.jpeg", levels)
    if kernels is not None:
        y = kernels.round_trip(levels, layout, quality, subsampling, order)
    elif on_host(levels):
        y = torch.from_numpy(jpeg_of(levels.numpy(), layout, quality, subsampling, order))
    else:
        images, back = split(levels, layout, colours=True)
        y = back(jpeg_torch(images, quality, subsampling, order))
    if x.dtype != torch.uint8:
        y = (y.to(exact) / 255 * (high - low) + low).to(x.dtype).clamp_(low, high)
    return y[0] if single else y


def jpeg_of(x: HostImages, layout: str, quality: int, subsampling: str, order: str) -> HostImages:
    """The same of arrays: a batch of uint8, by OpenCV."""
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
    subsampling: str = "4:2:0"
    order: str = "RGB"

    def __post_init__(self) -> None:
        choice("subsampling", self.subsampling, tuple(SUBSAMPLINGS))
        choice("order", self.order, _ORDERS)
        super().__post_init__()

    def validate(self, **parameter: object) -> None:
        integer("quality", parameter["quality"], 1, 100, floats=True)

    def change(self, x: Tensor, layout: str, limits: Limits | None, **parameters: int) -> Tensor:
        return jpeg(
            x, parameters["quality"], subsampling=self.subsampling, order=self.order, layout=layout, limits=limits
        )

    def change_array(self, x: HostImages, layout: str, **parameters: int) -> HostImages:
        return jpeg_of(x, layout, int(parameters["quality"]), self.subsampling, self.order)
