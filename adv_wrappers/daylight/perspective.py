"""Perspective: the four corners move, straight lines stay straight (daylight paper, section 3.6 and A.5, table 6).

The paper gives the norm, the largest distance that a corner moves, and leaves open which corners move and where to.
Here a pattern says so: one side of the picture grows shorter, as when the camera tilts, each of its ends moving
``norm`` pixels along the side; or the four corners themselves are given. Equal to OpenCV 4.x's ``warpPerspective`` of
``getPerspectiveTransform``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from torch import Tensor

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.core.spaces import Field
from adv_wrappers.daylight.images import Limits
from adv_wrappers.daylight.transform import Range
from adv_wrappers.daylight.warp import Border, Interpolation, Matrix, Warp, warped
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import check_choice, number
from adv_wrappers.utils.frozen import set_fields

Corners = tuple[tuple[float, float], ...]  # moves of top left, top right, bottom right, bottom left: (right, down)


def scaled(corners: Corners, norm: float) -> Corners:
    """Every move times ``norm``."""
    return tuple((float(x) * norm, float(y) * norm) for x, y in corners)


@functools.lru_cache(maxsize=256)
def inverse_of(corners: Corners, height: int, width: int) -> tuple[float, ...]:
    """Matrix from destination to source, 9 numbers row by row, of the picture whose corners make these moves.

    Corners that do not move make the identity, also of a picture that is too narrow to have four.

    Raises:
        ValueRangeError: if the corners end up in no convex quadrangle, which no perspective makes of a picture.
    """
    if not any(map(any, corners)):
        return 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0
    # the four corners before and after, in single precision as OpenCV has them
    right, bottom = float(width - 1), float(height - 1)
    source = ((0.0, 0.0), (right, 0.0), (right, bottom), (0.0, bottom))
    target = tuple(
        (float(np.float32(x + dx)), float(np.float32(y + dy))) for (x, y), (dx, dy) in zip(source, corners, strict=True)
    )
    # convex: the way around the corners turns to the same side at each
    turns = [
        (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0])
        for a, b, c in zip(target, target[1:] + target[:1], target[2:] + target[:2], strict=True)
    ]
    if not all(turn > 0 for turn in turns):
        raise ValueRangeError(
            f"corners moved by {corners} form no convex quadrangle in a picture of {height} x {width} pixels: "
            f"they end up at {target}"
        )
    matrix = cv2.getPerspectiveTransform(np.array(source, np.float32), np.array(target, np.float32))
    return tuple(cv2.invert(matrix)[1].ravel().tolist())


# Moves of the corners top left, top right, bottom right and bottom left, (right, down), for a norm of one.
PATTERNS: dict[str, Corners] = {
    "top": ((1, 0), (-1, 0), (0, 0), (0, 0)),
    "bottom": ((0, 0), (0, 0), (-1, 0), (1, 0)),
    "left": ((0, 1), (0, 0), (0, 0), (0, -1)),
    "right": ((0, 0), (0, 1), (0, -1), (0, 0)),
}


def perspective(
    x: Tensor,
    norm: float = 1.0,
    *,
    pattern: str = "top",
    corners: Corners | None = None,
    border: str = "replicate",
    interpolation: str = "bilinear",
    layout: str | None = None,
    limits: Limits | None = None,
) -> Tensor:
    """``x`` with its corners moved.

    Args:
        x: uint8 or float images ``[B, *S]``, or one image with a given layout.
        norm: pixels that a corner of the pattern moves.
        pattern: the side that grows shorter: ``top``, ``bottom``, ``left`` or ``right``.
        corners: moves of the corners top left, top right, bottom right, bottom left, each (right, down) in pixels,
            instead of norm and pattern.
        border, interpolation, layout, limits: as in :func:`adv_wrappers.daylight.rotate`.

    Returns:
        Images of the same shape and dtype; uint8 equal to OpenCV 4.x to the bit, on any device.

    Raises:
        ValueRangeError: for numbers that are not finite, corners that form no convex quadrangle, and unknown words.
        SpaceError: for a shape that is no image.

    >>> import torch
    >>> x = torch.arange(9, dtype=torch.uint8).view(1, 3, 3)
    >>> bool((perspective(x, 0.0) == x).all())
    True
    """
    if corners is None:
        check_choice("pattern", pattern, PATTERNS)
        moves = _pattern(number("norm", norm, 0.0, 1e9), pattern)
    else:
        moves = check_corners(corners)
    return warped(x, functools.partial(inverse_of, moves), border, interpolation, layout, limits)


@functools.lru_cache(maxsize=256)
def _pattern(norm: float, pattern: str) -> Corners:
    """The moves of a pattern's corners."""
    return scaled(PATTERNS[pattern], norm)


def check_corners(corners: Any) -> Corners:
    """Four pairs of finite numbers; raises :class:`ValueRangeError` for anything else."""
    try:
        pairs = tuple((number("corners", x, -1e9, 1e9), number("corners", y, -1e9, 1e9)) for x, y in corners)
    except (TypeError, ValueError) as error:
        raise ValueRangeError(f"corners must be four moves (right, down), got {corners!r}") from error
    if len(pairs) != 4:
        raise ValueRangeError(f"corners must be four moves (right, down), got {len(pairs)}")
    return pairs


@dataclass(frozen=True)
class Perspective(Warp):
    """Perspective: the corners of the picture move by up to so many pixels.

    Args:
        distance: the paper's perspective norm, the largest move of a corner in pixels, or a range of it. (``norm``
            names the kind of a budget in every threat.)
        pattern: ``top``, ``bottom``, ``left`` or ``right``.
        corners: the four moves themselves (see :func:`perspective`); distance and pattern then have no say.
        border, interpolation: see :func:`adv_wrappers.daylight.rotate`.
    """

    name: ClassVar[str] = "perspective"
    ranged: ClassVar[tuple[str, ...]] = ("distance",)
    arrays: ClassVar[bool] = True
    distance: Range = 1.0
    pattern: Literal["top", "bottom", "left", "right"] = "top"
    corners: Corners | None = None
    border: Border = "replicate"
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if self.corners is not None:
            set_fields(self, corners=check_corners(self.corners))
        super().__post_init__()

    def validate(self, **parameter: object) -> None:
        number("distance", parameter["distance"], 0.0, 1e9)

    def check(self, field: Field, within: Budget) -> None:
        """Raise also for moves that are too wide for these pictures, which an episode would find out late."""
        super().check(field, within)
        layout = layout_of(field.shape, self.layout)
        height, width = (field.shape[layout.index(letter)] for letter in "HW")
        # the farthest move
        far = max(self.distance) if isinstance(self.distance, tuple) else self.distance
        if self.corners is not None or far > 0:
            inverse_of(self.corners or scaled(PATTERNS[self.pattern], far), height, width)

    def matrix(self, height: int, width: int, **parameters: Any) -> Matrix:
        return inverse_of(self.corners or _pattern(float(parameters["distance"]), self.pattern), height, width)
