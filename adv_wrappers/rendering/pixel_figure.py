"""Paper: a figure measured in pixels, on which pictures keep their pixels whole. Drawn without pyplot."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.rendering.panels import enlarge
from adv_wrappers.rendering.report_plot import kind_of
from adv_wrappers.utils.files import write

INK, MUTED, GRID, CLEAN, HIT = "#1f2430", "#6b7280", "#e5e7eb", "#2563eb", "#dc2626"
_DPI = 100
_RIMS = 0.002  # share of pixels whose colour may be exchanged for the nearest one of the palette


class Paper:
    """A white figure of so many pixels; the origin is the upper left corner."""

    def __init__(self, width: int, height: int) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
        FigureCanvasAgg(self.figure)

    def text(self, x: float, y: float, text: str, size: float, **style: Any) -> None:
        """Write; ``size`` is that of the letters in pixels, and (x, y) the upper left corner unless ``style`` says."""
        style = {"ha": "left", "va": "top", "color": INK, **style}
        self.figure.text(x / self.width, 1 - y / self.height, text, fontsize=size * 72 / _DPI, **style)

    def image(self, x: int, y: int, image: NDArray[np.uint8], factor: int = 1) -> None:
        """Put an image ``[H, W, 3]`` with its corner at (x, y), every pixel a square of ``factor`` pixels."""
        large = enlarge(image, factor)
        self.figure.figimage(large, x, self.height - y - large.shape[0], origin="upper")

    def ramp(self, x: int, y: int, size: tuple[int, int], colours: str) -> None:
        """A strip of a colour map, from its low end on the left."""
        width, height = size
        self.image(x, y, np.repeat(coloured(np.linspace(0, 1, width)[None], 0, 1, colours), height, 0))

    def save(self, path: str | Path) -> None:
        """Write a PNG; its folder is made."""
        save(self.figure, path)


def save(figure: Any, path: str | Path) -> None:
    """Write a figure as a compact PNG; its folder is made. Raises :class:`ValueRangeError` for a file of another kind.

    It gets a palette where 256 colours are all, or all but the shades on the rims of a few letters.
    """
    from PIL import Image

    kind_of(path, ("png",))
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    codes = pixels.astype(np.int32) @ np.array([65536, 256, 1], np.int32)
    found, index, counts = np.unique(codes, return_inverse=True, return_counts=True)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], 1)
    order = np.argsort(-counts, kind="stable")
    kept, rare = order[:256], order[256:]
    if counts[rare].sum() < _RIMS * codes.size:
        place = np.zeros(len(found), np.uint8)
        place[kept] = np.arange(len(kept))
        for one in rare:
            place[one] = int(np.abs(colours[kept] - colours[one]).sum(1).argmin())
        image = Image.fromarray(place[index].reshape(codes.shape))
        image = image.convert("P")
        image.putpalette(colours[kept].astype(np.uint8).tobytes())
    else:
        image = Image.fromarray(np.ascontiguousarray(pixels))
    data = io.BytesIO()
    image.save(data, format="PNG", optimize=True)
    write(Path(path), data.getvalue())


def coloured(values: NDArray[Any], low: float, high: float, colours: str) -> NDArray[np.uint8]:
    """Values as 64 colours of a map, uint8 ``[H, W, 3]``; equal limits are a range of one."""
    from matplotlib import colormaps

    share = np.rint(np.clip((values - low) / (high - low if high > low else 1.0), 0, 1) * 63) / 63
    found: NDArray[np.uint8] = colormaps[colours](share, bytes=True)[..., :3]
    return found
