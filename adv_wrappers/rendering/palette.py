"""The colours of all pictures, as matplotlib reads them; :func:`rgb` gives OpenCV the same."""

from __future__ import annotations

INK = "#1f2430"  # text
MUTED = "#6b7280"  # text and lines that matter less
GRID = "#e5e7eb"
CLEAN = "#2563eb"  # the agent without an attack, and true values
ATTACKED = "#dc2626"
IDLE = "#c9cdd4"  # a threat that does not attack at this step


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, 0 to 255, of a colour of this file.

    >>> from adv_wrappers.rendering.palette import CLEAN, rgb
    >>> rgb(CLEAN)
    (37, 99, 235)
    """
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue
