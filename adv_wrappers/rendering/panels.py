"""What pictures of attacks are made of: frames of observations as grey levels, their amplified difference, captions.

Observations that are vectors, as pictures: a line a feature, or two curves where there are many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.spaces import layout_of
from adv_wrappers.daylight.images import split
from adv_wrappers.errors import SpaceError

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


MOST = 24  # features that get a line each
_WIDTH, _HEIGHT = 460, 336
_AXIS, _HALF = 350, 100  # column of no change, and columns to either side
_EDGE = 80  # columns from no change to the edge of the budget


class Bars:
    """Draws vectors; ranges grow with what was seen, so that they stand still in a video."""

    def __init__(self) -> None:
        self._span = 1e-12  # of what has no budget of its own
        self._peak = 1e-12

    def draw(self, true: NDArray[Any], shown: NDArray[Any] | None, radius: NDArray[Any] | None) -> Image:
        """The picture of one observation.

        Args:
            true, shown: ``[n]``; without ``shown`` the true values alone.
            radius: how far the budget lets every feature move, infinite where it sets no limit; None if not known.
        """
        true = np.nan_to_num(true.astype(np.float64))
        other = true if shown is None else np.nan_to_num(shown.astype(np.float64))
        self._span = max(self._span, float(np.abs(other - true).max(initial=0)))
        self._peak = max(self._peak, float(np.abs(true).max(initial=0)), float(np.abs(other).max(initial=0)))
        if len(true) > MOST:
            return self._curves(true, other, shown is not None)
        out = canvas(LINE * (len(true) + 1), _WIDTH)
        for text, x in (("true", 62), ("handed out", 142), ("change", _AXIS - 22)):
            if shown is not None or text == "true":
                write(out, text, x, 14, MUTED)
        for i, value in enumerate(true):
            middle = LINE * (i + 1) + LINE // 2
            write(out, str(i), 20 - length(str(i)), middle + 5, MUTED)
            write(out, f"{value:+.4g}", 40, middle + 5)
            if shown is None:
                continue
            moved = other[i] != value
            write(out, f"{other[i]:+.4g}", 142, middle + 5, HIT if moved else INK)
            self._axis(out, middle, other[i] - value, None if radius is None else float(radius[i]))
        return out

    def _axis(self, out: Image, middle: int, change: float, radius: float | None) -> None:
        unit = radius if radius is not None and 0 < radius < np.inf else self._span
        if radius is not None and 0 < radius < np.inf:
            cv2.rectangle(out, (_AXIS - _EDGE, middle - 6), (_AXIS + _EDGE, middle + 6), GRID, -1)
        cv2.line(out, (_AXIS - _HALF, middle), (_AXIS + _HALF, middle), GRID, 1)
        cv2.line(out, (_AXIS, middle - 8), (_AXIS, middle + 8), MUTED, 1)
        place = _AXIS + int(np.clip(round(_EDGE * change / unit), -_HALF, _HALF))
        colour = HIT if change else MUTED
        cv2.line(out, (_AXIS, middle), (place, middle), colour, 3)
        cv2.circle(out, (place, middle), 4, colour, -1, cv2.LINE_AA)

    def _curves(self, true: NDArray[Any], other: NDArray[Any], both: bool) -> Image:
        """Values by feature, and below them the change."""
        out = canvas(_HEIGHT, _WIDTH)
        x = np.linspace(8, _WIDTH - 8, len(true))

        def curve(values: NDArray[Any], middle: int, half: int, peak: float, colour: Any, thick: int) -> None:
            points = np.stack([x, middle - half * np.clip(values / peak, -1, 1)], 1)
            cv2.polylines(out, [np.rint(points).astype(np.int32)], False, colour, thick, cv2.LINE_AA)

        for middle, half, peak in ((128, 100, self._peak), (282, 44, self._span)):
            cv2.line(out, (8, middle), (_WIDTH - 8, middle), GRID, 1)
            if peak is self._peak or both:
                write(out, f"{'values' if half == 100 else 'change'}, up to {peak:.3g}", 8, middle - half - 6, MUTED)
        curve(true, 128, 100, self._peak, CLEAN, 3)
        if both:
            curve(other, 128, 100, self._peak, HIT, 1)
            curve(other - true, 282, 44, self._span, HIT, 1)
        write(out, "true", _WIDTH - 150, 14, CLEAN)
        if both:
            write(out, "handed out", _WIDTH - 100, 14, HIT)
        return out
