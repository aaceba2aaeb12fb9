"""Observations that are vectors, as pictures: a line a feature, or two curves where there are many."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from adv_wrappers.wrappers.panels import CLEAN, GRID, HIT, INK, LINE, MUTED, Image, canvas, length, write

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
