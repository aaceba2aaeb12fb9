"""Rotation about the middle of the picture (daylight paper, section 3.3, table 3).

The paper leaves border and interpolation open: here the edge is replicated and values are bilinear unless asked
otherwise. The picture keeps its size. Equal to OpenCV 4.x's ``warpAffine`` of ``getRotationMatrix2D``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.daylight.images import Limits
from adv_wrappers.daylight.transform import Range
from adv_wrappers.daylight.warp import Border, Interpolation, Matrix, Warp, warped
from adv_wrappers.utils.checks import number


@functools.lru_cache(maxsize=256)
def rotation_matrix(degrees: float, center: tuple[float, float]) -> Matrix:
    """The affine matrix row by row; ``center`` is (column, row)."""
    turn = degrees * math.pi / 180
    cos, sin = math.cos(turn), math.sin(turn)
    x, y = center
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
    if center is not None:
        column, row = center
        center = number("center", column), number("center", row)

    def matrix_of(height: int, width: int) -> Matrix:
        return rotation_matrix(degrees, center or _middle(height, width))

    return warped(x, matrix_of, border, interpolation, layout, limits)


def _middle(height: int, width: int) -> tuple[float, float]:
    return (width - 1) / 2, (height - 1) / 2


@dataclass(frozen=True)
class Rotation(Warp):
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

    def matrix(self, height: int, width: int, **parameters: Any) -> Matrix:
        return rotation_matrix(float(parameters["degrees"]), _middle(height, width))
