"""What pictures of attacks are made of: frames of observations as grey levels, their amplified difference, captions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.errors import SpaceError
from adv_wrappers.core.layouts import layout_of
from adv_wrappers.daylight.images import split

Image = NDArray[np.uint8]
Colour = tuple[int, int, int]
INK: Colour = (31, 36, 48)
MUTED: Colour = (107, 114, 128)
HIT: Colour = (220, 38, 38)
CLEAN: Colour = (37, 99, 235)
GRID: Colour = (229, 231, 235)
MIDDLE = 128  # the grey of no change
GAINS = (1, 2, 5, 10, 20, 50, 100)
MARGIN, LINE, NARROWEST = 8, 20, 176  # pixels: around panels, a line of text, the narrowest panel
_FONT, _SIZE = cv2.FONT_HERSHEY_SIMPLEX, 0.43


def host(value: Any) -> NDArray[Any]:
    """An array of whatever an environment hands out."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


class Frames:
    """The images of one space.

    Args:
        space: a Box of uint8 or of floats with finite bounds.
        layout: which axis is what; None infers.

    Raises:
        SpaceError: for a space that holds no images.
    """

    def __init__(self, space: spaces.Space[Any], layout: str | None = None) -> None:
        if not isinstance(space, spaces.Box) or len(space.shape) < 2:
            raise SpaceError(f"expected a space of images, got {space}")
        self.layout = layout_of(space.shape, layout)
        sides = [space.shape[self.layout.index(axis)] for axis in "HW"]
        if layout is None and min(sides) < 8:
            raise SpaceError(f"too small to be images: {space}; give layout= if they are")
        self.low, self.high = 0.0, 255.0
        if space.dtype != np.uint8:
            self.low, self.high = float(np.min(space.low)), float(np.max(space.high))
            if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
                raise SpaceError(f"images need finite bounds, which say what is dark and what is bright: {space}")

    def levels(self, x: Any) -> list[NDArray[Any]]:
        """Frames of one observation, oldest first, ``[H, W, 3]`` each; grey levels 0 to 255, of uint8 unchanged."""
        array = np.array(host(x), order="C")
        images = split(torch.from_numpy(array)[None], self.layout, colours=True)[0].numpy()
        if array.dtype != np.uint8:
            images = (images.astype(np.float64) - self.low) * (255 / (self.high - self.low))
        return [np.broadcast_to(image, (*image.shape[:2], 3)) for image in images]


def is_image(space: spaces.Space[Any], layout: str | None = None) -> bool:
    """Whether :class:`Frames` can read it."""
    try:
        Frames(space, layout)
    except SpaceError:
        return False
    return True


def picture(levels: NDArray[Any]) -> Image:
    """Grey levels as they are looked at."""
    shown: Image = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return shown


def change(true: NDArray[Any], other: NDArray[Any], gain: float) -> Image:
    """``other`` minus ``true``, ``gain`` times, around the middle grey."""
    return picture(MIDDLE + gain * (other.astype(np.float64) - true.astype(np.float64)))


def largest_change(true: NDArray[Any], other: NDArray[Any]) -> float:
    """Of a pixel, in grey levels."""
    return float(np.abs(other.astype(np.float64) - true.astype(np.float64)).max())


def gain_for(largest: float) -> int:
    """The largest of ``GAINS`` that shows a change of so many grey levels without clipping it, or 1."""
    return max((gain for gain in GAINS if gain * largest < MIDDLE), default=1)


def enlarge(image: Image, factor: int) -> Image:
    """Every pixel as a square of ``factor`` pixels."""
    return image.repeat(factor, 0).repeat(factor, 1)


def factor_for(image: NDArray[Any], size: int) -> int:
    """The factor that makes the longer side at least ``size``."""
    return max(1, math.ceil(size / int(max(image.shape[:2]))))


def canvas(height: int, width: int) -> Image:
    """White paper."""
    return np.full((height, width, 3), 255, np.uint8)


def write(on: Image, text: str, x: int, y: int, colour: Colour = INK, width: int | None = None) -> None:
    """Write a line whose baseline is at ``y``; what is wider than ``width`` is cut."""
    text = text.encode("ascii", "replace").decode()
    room = on.shape[1] - x if width is None else width
    if length(text) > room:
        while text and length(text + "...") > room:
            text = text[:-1]
        text += "..."
    cv2.putText(on, text, (x, y), _FONT, _SIZE, colour, 1, cv2.LINE_AA)


def length(text: str) -> int:
    """Of a text, in pixels."""
    return int(cv2.getTextSize(text, _FONT, _SIZE, 1)[0][0])


def compose(header: Sequence[tuple[Colour | None, str]], panels: Sequence[tuple[str, Image]], down: bool) -> Image:
    """Captions above panels.

    Args:
        header: lines; a colour draws a dot before the line.
        panels: title and picture of each.
        down: one panel below the other instead of side by side.

    Returns:
        A picture with an even number of rows and columns, as video codecs want it. The first panel begins at row
        ``MARGIN + LINE * (len(header) + 1)`` and column ``MARGIN``.
    """
    widths = [max(image.shape[1], NARROWEST) for _, image in panels]
    heights = [image.shape[0] + LINE for _, image in panels]
    if down:
        width, height = max(widths), sum(heights) + MARGIN * (len(panels) - 1)
    else:
        width, height = sum(widths) + MARGIN * (len(panels) - 1), max(heights)
    top = MARGIN + LINE * len(header)
    height, width = top + height + MARGIN, width + 2 * MARGIN
    out = canvas(height + height % 2, width + width % 2)
    for i, (colour, text) in enumerate(header):
        base, x = MARGIN + LINE * i + 13, MARGIN
        if colour is not None:
            cv2.circle(out, (x + 5, base - 4), 5, colour, -1, cv2.LINE_AA)
            x += 18
        write(out, text, x, base, width=out.shape[1] - x - MARGIN)
    x, y = MARGIN, top
    for (title, image), wide, high in zip(panels, widths, heights, strict=True):
        write(out, title, x, y + 13, MUTED, wide)
        out[y + LINE : y + high, x : x + image.shape[1]] = image
        x, y = (x, y + high + MARGIN) if down else (x + wide + MARGIN, y)
    return out
