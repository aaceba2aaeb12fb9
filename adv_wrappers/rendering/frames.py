"""What all pictures share: their colours, frames of observations as grey levels, and the amplified difference.

Colours are texts that matplotlib reads; :func:`rgb` gives OpenCV the same. A grey level is a number from 0 to 255, and
:func:`to_pixels` rounds levels to uint8. Observations of floats are mapped to this range by the bounds of their space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.daylight.images import split
from adv_wrappers.errors import SpaceError

Pixels = NDArray[np.uint8]
GreyOrFloat = NDArray[np.uint8] | NDArray[np.float64]
INK = "#1f2430"  # text
MUTED = "#6b7280"  # text and lines that matter less
GRID = "#e5e7eb"
CLEAN = "#2563eb"  # the agent without an attack, and true values
ATTACKED = "#dc2626"
IDLE = "#c9cdd4"  # a threat that does not attack at this step
UNCHANGED = 128  # the grey of no change
GAINS = (1, 2, 5, 10, 20, 50, 100)


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, of a colour of this file.

    >>> from adv_wrappers.rendering.frames import CLEAN, rgb
    >>> rgb(CLEAN)
    (37, 99, 235)
    """
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


def to_numpy(value: object) -> NDArray[np.generic]:
    """The array of a leaf of an observation or an action, in host memory."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


class FrameReader:
    """Reads the frames of observations of one space.

    Args:
        space: a Box of uint8, or of floats with finite bounds, of at least two dimensions.

    Attributes:
        layout: the axes of the space, such as ``"FHW"`` (see :func:`adv_wrappers.core.image_layouts.layout_of`).
        low, high: the darkest and the brightest value of the space.

    Raises:
        SpaceError: for a space that holds no images.
    """

    def __init__(self, space: spaces.Space[object]) -> None:
        if not isinstance(space, spaces.Box) or len(space.shape) < 2:
            raise SpaceError(f"expected a space of images, got {space}")
        self.layout = layout_of(space.shape, None)
        sides = [space.shape[self.layout.index(axis)] for axis in "HW"]
        if min(sides) < 8:
            raise SpaceError(f"too small to be images: {space}")
        # what is dark and what is bright
        self.low, self.high = 0.0, 255.0
        if space.dtype != np.uint8:
            self.low, self.high = float(np.min(space.low)), float(np.max(space.high))
            if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
                raise SpaceError(f"images need finite bounds, which say what is dark and what is bright: {space}")

    def levels(self, observation: object) -> Sequence[GreyOrFloat]:
        """The frames of one observation, oldest first, as grey levels ``[H, W, 3]``; uint8 stays as it is."""
        array = np.array(to_numpy(observation), order="C")
        images = split(torch.from_numpy(array)[None], self.layout, colours=True)[0].numpy()
        if array.dtype != np.uint8:
            images = (images.astype(np.float64) - self.low) * (255 / (self.high - self.low))
        return [np.broadcast_to(image, (*image.shape[:2], 3)) for image in images]


def is_image(space: spaces.Space[object]) -> bool:
    """Whether :class:`FrameReader` can read observations of a space."""
    try:
        FrameReader(space)
    except SpaceError:
        return False
    return True


def to_pixels(levels: ArrayLike) -> Pixels:
    """Grey levels as uint8: rounded, and clipped to 0 to 255."""
    pixels: Pixels = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return pixels


def amplified_difference(true: ArrayLike, other: ArrayLike, gain: float) -> Pixels:
    """The grey levels of ``other`` minus those of ``true``, times ``gain``, around the middle grey: as ``true``."""
    return to_pixels(UNCHANGED + gain * (np.asarray(other, np.float64) - np.asarray(true, np.float64)))


def largest_change(true: ArrayLike, other: ArrayLike) -> float:
    """The largest change of a pixel, in grey levels."""
    return float(np.abs(np.asarray(other, np.float64) - np.asarray(true, np.float64)).max())


def gain_for(largest: float) -> int:
    """The largest of ``GAINS`` that shows a change of ``largest`` grey levels without clipping it, or 1."""
    return max((gain for gain in GAINS if gain * largest < UNCHANGED), default=1)


def enlarge(image: Pixels, factor: int) -> Pixels:
    """Every pixel as a square of ``factor`` pixels."""
    return image.repeat(factor, 0).repeat(factor, 1)


def factor_for(image: GreyOrFloat, size: int) -> int:
    """The smallest factor by which the longer side of an image has at least ``size`` pixels."""
    return max(1, math.ceil(size / int(max(image.shape[:2]))))
