"""Pictures drawn with OpenCV: captions above panels, and vectors as a line a feature or as curves."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from adv_wrappers.rendering.observation_pixels import ATTACKED, CLEAN, GRID, INK, MUTED, Pixels, rgb

MARGIN, LINE, NARROWEST = 8, 20, 176  # pixels: around panels, a line of text, the narrowest panel
MAX_FEATURES = 24  # that get a line each; a longer vector is drawn as curves
_FONT, _FONT_SCALE = cv2.FONT_HERSHEY_SIMPLEX, 0.43
_WIDTH, _HEIGHT = 460, 336  # pixels of a chart
_AXIS, _HALF = 350, 100  # column of no change, and columns to either side
_EDGE = 80  # columns from no change to the edge of the budget
FloatVector = NDArray[np.float64]


def blank(height: int, width: int) -> Pixels:
    """A white image."""
    return np.full((height, width, 3), 255, np.uint8)


def draw_text(image: Pixels, text: str, x: int, y: int, colour: str = INK, width: int | None = None) -> None:
    """Draw a line of text whose baseline is at ``y``, in place; what is wider than ``width`` is cut."""
    text = text.encode("ascii", "replace").decode()
    room = image.shape[1] - x if width is None else width
    if text_width(text) > room:
        while text and text_width(text + "...") > room:
            text = text[:-1]
        text += "..."
    cv2.putText(image, text, (x, y), _FONT, _FONT_SCALE, rgb(colour), 1, cv2.LINE_AA)


def text_width(text: str) -> int:
    """Pixels that a line of text takes."""
    return int(cv2.getTextSize(text, _FONT, _FONT_SCALE, 1)[0][0])


def compose_panels(
    header: Sequence[tuple[str | None, str]], panels: Sequence[tuple[str, Pixels]], vertical: bool
) -> Pixels:
    """Captions above panels.

    Args:
        header: a colour and a text for each line; a colour draws a dot before the line, None draws none.
        panels: title and picture of each panel.
        vertical: whether panels lie one below the other instead of side by side.

    Returns:
        A picture with an even number of rows and columns, as video codecs want it. The first panel begins at row
        ``MARGIN + LINE * (len(header) + 1)`` and column ``MARGIN``.
    """
    widths = [max(image.shape[1], NARROWEST) for _, image in panels]
    heights = [image.shape[0] + LINE for _, image in panels]
    if vertical:
        width, height = max(widths), sum(heights) + MARGIN * (len(panels) - 1)
    else:
        width, height = sum(widths) + MARGIN * (len(panels) - 1), max(heights)
    top = MARGIN + LINE * len(header)
    height, width = top + height + MARGIN, width + 2 * MARGIN
    out = blank(height + height % 2, width + width % 2)
    for i, (colour, text) in enumerate(header):
        baseline, x = MARGIN + LINE * i + 13, MARGIN
        if colour is not None:
            cv2.circle(out, (x + 5, baseline - 4), 5, rgb(colour), -1, cv2.LINE_AA)
            x += 18
        draw_text(out, text, x, baseline, width=out.shape[1] - x - MARGIN)
    x, y = MARGIN, top
    for (title, image), wide, high in zip(panels, widths, heights, strict=True):
        draw_text(out, title, x, y + 13, MUTED, wide)
        out[y + LINE : y + high, x : x + image.shape[1]] = image
        x, y = (x, y + high + MARGIN) if vertical else (x + wide + MARGIN, y)
    return out


class VectorChart:
    """Draws vectors: true values, perturbed values, and the change on the width of the budget.

    Ranges grow with what was drawn before, so that axes stand still in a video.
    """

    def __init__(self) -> None:
        self._largest_change = 1e-12  # the axis of features without a budget
        self._largest_value = 1e-12

    def draw(self, true: ArrayLike, perturbed: ArrayLike | None, radius: FloatVector | None) -> Pixels:
        """The picture of one observation, uint8 ``[H, W, 3]``.

        Args:
            true, perturbed: ``[n]``; without ``perturbed`` the true values alone are drawn.
            radius: how far the budget lets every feature move, infinite where it sets no limit; None if not known.
        """
        before = np.nan_to_num(np.array(true, np.float64))
        after = before if perturbed is None else np.nan_to_num(np.array(perturbed, np.float64))
        self._largest_change = max(self._largest_change, float(np.abs(after - before).max(initial=0)))
        peak = max(float(np.abs(before).max(initial=0)), float(np.abs(after).max(initial=0)))
        self._largest_value = max(self._largest_value, peak)
        if len(before) > MAX_FEATURES:
            return self._curves(before, after, perturbed is not None)
        out = blank(LINE * (len(before) + 1), _WIDTH)
        for text, x in (("true", 62), ("perturbed", 142), ("change", _AXIS - 22)):
            if perturbed is not None or text == "true":
                draw_text(out, text, x, 14, MUTED)
        for i, value in enumerate(before):
            middle = LINE * (i + 1) + LINE // 2
            draw_text(out, str(i), 20 - text_width(str(i)), middle + 5, MUTED)
            draw_text(out, f"{value:+.4g}", 40, middle + 5)
            if perturbed is None:
                continue
            moved = after[i] != value
            draw_text(out, f"{after[i]:+.4g}", 142, middle + 5, ATTACKED if moved else INK)
            self._axis(out, middle, after[i] - value, None if radius is None else float(radius[i]))
        return out

    def _axis(self, out: Pixels, middle: int, change: float, radius: float | None) -> None:
        unit = self._largest_change
        if radius is not None and 0 < radius < np.inf:
            unit = radius
            cv2.rectangle(out, (_AXIS - _EDGE, middle - 6), (_AXIS + _EDGE, middle + 6), rgb(GRID), -1)
        cv2.line(out, (_AXIS - _HALF, middle), (_AXIS + _HALF, middle), rgb(GRID), 1)
        cv2.line(out, (_AXIS, middle - 8), (_AXIS, middle + 8), rgb(MUTED), 1)
        place = _AXIS + int(np.clip(round(_EDGE * change / unit), -_HALF, _HALF))
        colour = rgb(ATTACKED if change else MUTED)
        cv2.line(out, (_AXIS, middle), (place, middle), colour, 3)
        cv2.circle(out, (place, middle), 4, colour, -1, cv2.LINE_AA)

    def _curves(self, before: FloatVector, after: FloatVector, both: bool) -> Pixels:
        """Values by feature, and below them the change."""
        out = blank(_HEIGHT, _WIDTH)
        x = np.linspace(8, _WIDTH - 8, len(before))

        def curve(values: FloatVector, middle: int, half: int, peak: float, colour: str, thickness: int) -> None:
            points = np.stack([x, middle - half * np.clip(values / peak, -1, 1)], 1)
            cv2.polylines(out, [np.rint(points).astype(np.int32)], False, rgb(colour), thickness, cv2.LINE_AA)

        for title, middle, half, peak in (
            ("values", 128, 100, self._largest_value),
            ("change", 282, 44, self._largest_change),
        ):
            cv2.line(out, (8, middle), (_WIDTH - 8, middle), rgb(GRID), 1)
            if title == "values" or both:
                draw_text(out, f"{title}, up to {peak:.3g}", 8, middle - half - 6, MUTED)
        curve(before, 128, 100, self._largest_value, CLEAN, 3)
        if both:
            curve(after, 128, 100, self._largest_value, ATTACKED, 1)
            curve(after - before, 282, 44, self._largest_change, ATTACKED, 1)
        draw_text(out, "true", _WIDTH - 150, 14, CLEAN)
        if both:
            draw_text(out, "perturbed", _WIDTH - 100, 14, ATTACKED)
        return out
