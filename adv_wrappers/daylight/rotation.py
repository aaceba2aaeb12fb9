"""Rotation about the middle of the picture (daylight paper, section 3.3, table 3).

The paper leaves border and interpolation open: here the edge is replicated and values are bilinear unless asked
otherwise. The picture keeps its size. Equal to OpenCV 4.x's ``warpAffine`` of ``getRotationMatrix2D``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.accel import triton_kernels
from adv_wrappers.core.context import Context
from adv_wrappers.daylight.images import Limits, batched, limits_of, size_of, split
from adv_wrappers.daylight.opencv import HostImages
from adv_wrappers.daylight.transform import Range, Transform
from adv_wrappers.daylight.warp import (
    BORDERS,
    INTERPOLATIONS,
    Border,
    Interpolation,
    Map,
    Matrix,
    affine_map,
    inverted,
    warp,
    warp_of,
)
from adv_wrappers.utils.checks import check_choice, number


@functools.lru_cache(maxsize=256)
def rotation_matrix(degrees: float, center: tuple[float, float]) -> Matrix:
    """The affine matrix row by row; ``center`` is (column, row)."""
    turn = degrees * math.pi / 180
    cos, sin, (x, y) = math.cos(turn), math.sin(turn), center
    return cos, sin, (1 - cos) * x - sin * y, -sin, cos, sin * x + (1 - cos) * y


def rotate(
    x: Tensor,
    degrees: float,
    *,
    center: tuple[float, float] | None = None,
    border: str = "replicate",
    interpolation: str = "bilinear",
    layout: str | None = None,
    limits: Limits | None = None,
) -> Tensor:
    """``x`` turned counter-clockwise.

    Args:
        x: uint8 or float images ``[B, *S]``, or one image with a given layout.
        degrees: of the turn.
        center: (column, row) that stays in place; None for the middle, ``((W - 1) / 2, (H - 1) / 2)``.
        border: what enters: ``replicate`` (the edge), ``zero`` (the darkest value), ``reflect`` (mirrored, the edge
            itself not repeated) or ``wrap``.
        interpolation: ``bilinear`` or ``nearest``.
        layout: which axis is what; None infers.
        limits: darkest and brightest value of float images, by default 0 and 1.

    Returns:
        Images of the same shape and dtype; uint8 equal to OpenCV 4.x to the bit, on any device.

    Raises:
        ValueRangeError: for parameters that are not finite, and unknown words.
        SpaceError: for a shape that is no image.

    >>> import torch
    >>> rotate(torch.tensor([[[1, 2], [3, 4]]], dtype=torch.uint8), 90.0)
    tensor([[[2, 4],
             [1, 3]]], dtype=torch.uint8)
    """
    degrees = number("degrees", degrees, -1e9, 1e9)
    check_choice("border", border, BORDERS)
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    x, layout, single = batched(x, layout)
    dark, _ = limits_of(x, limits)
    if center is not None:
        column, row = center
        center = number("center", column), number("center", row)
    at = _map(degrees, center, *size_of(x.shape[1:], layout), interpolation)
    y = warp(x, at, border, interpolation, dark, layout)
    return y[0] if single else y


@functools.lru_cache(maxsize=256)
def _map(degrees: float, center: tuple[float, float] | None, height: int, width: int, interpolation: str) -> Map:
    matrix = rotation_matrix(degrees, _middle(height, width) if center is None else center)
    return affine_map(matrix, height, width, interpolation)


def _middle(height: int, width: int) -> tuple[float, float]:
    return (width - 1) / 2, (height - 1) / 2


@dataclass(frozen=True)
class Rotation(Transform):
    """Rotation about the middle, counter-clockwise.

    Args:
        degrees: of the turn, or a range of it.
        border, interpolation: see :func:`rotate`.
    """

    name: ClassVar[str] = "rotation"
    ranged: ClassVar[tuple[str, ...]] = ("degrees",)
    arrays: ClassVar[bool] = True
    degrees: Range = 3.0
    border: Border = "replicate"
    interpolation: Interpolation = "bilinear"

    def validate(self, **parameter: object) -> None:
        number("degrees", parameter["degrees"], -1e9, 1e9)

    def change(self, x: Tensor, layout: str, limits: Limits | None, **parameters: float) -> Tensor:
        return rotate(
            x, parameters["degrees"], border=self.border, interpolation=self.interpolation, layout=layout, limits=limits
        )

    def change_array(self, x: HostImages, layout: str, **parameters: float) -> HostImages:
        at = _map(float(parameters["degrees"]), None, *size_of(x.shape[1:], layout), self.interpolation)
        return warp_of(x, layout, at, self.border, self.interpolation)

    def by_row(self, x: Tensor, layout: str, context: Context) -> Tensor | None:
        fast = triton_kernels.twin("daylight.kernels.warp_per_row", x) if self.drawn else None
        rows = None if fast is None else self.draw(context)
        if fast is None or rows is None:
            return None
        images, back = split(x, layout)
        middle = _middle(*images.shape[1:3])
        matrices = [(*inverted(rotation_matrix(row["degrees"], middle)), 0.0, 0.0, 0.0) for row in rows]
        given = torch.tensor(matrices, dtype=torch.float64).to(x.device)
        return back(fast.warp(images, given, True, self.border, self.interpolation))
