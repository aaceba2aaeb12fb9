"""Figures of matplotlib without pyplot: no state is shared, no display is needed, and files are the same every time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.observation_pixels import GRID, INK, Pixels, enlarge
from adv_wrappers.utils.files import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
_UNDATED: dict[str, dict[str, str | None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_DPI = 100
_RARE = 0.002  # share of pixels whose colour may be exchanged for the nearest one of the palette


def new_figure(width: float, height: float, dpi: int, layout: Literal["constrained"] | None = None) -> Figure:
    """A white figure with a canvas.

    Args:
        width, height: in inches.
        dpi: pixels an inch.
        layout: matplotlib's layout engine; None leaves axes where they are put.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure


def bottom_spine_only(axes: Axes) -> None:
    """Leave of the frame of axes its lower line, in the colour of the grid, and draw the grid below the data."""
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)


def format_of(path: str | Path, formats: Sequence[str] = FORMATS) -> str:
    """The format of a picture by the name of its file; raises :class:`ValueRangeError` for one that is not written."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in formats:
        *most, last = (f".{one}" for one in formats)
        known = f"{', '.join(most)} or {last}" if most else last
        raise ValueRangeError(f"a picture is written as {known}, got {str(path)!r}")
    return suffix


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as ``.png``, ``.svg`` or ``.pdf``; the same figure gives the same bytes.

    Raises:
        ValueRangeError: for a file of another format.
    """
    import matplotlib

    kind, data = format_of(path), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "adv_wrappers"}):
        figure.savefig(data, format=kind, metadata=_UNDATED[kind])
    write(Path(path), data.getvalue())


def save_png(figure: Figure, path: str | Path) -> None:
    """Write a figure as a compact PNG; its folder is made.

    It gets a palette where 256 colours are all, or all but the shades on the edges of a few letters.

    Raises:
        ValueRangeError: for a file of another format.
    """
    from PIL import Image

    format_of(path, ("png",))
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]  # of the Agg canvas
    codes = pixels.astype(np.int32) @ np.array([65536, 256, 1], np.int32)
    found, index, counts = np.unique(codes, return_inverse=True, return_counts=True)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], 1)
    order = np.argsort(-counts, kind="stable")
    common, rare = order[:256], order[256:]
    if counts[rare].sum() < _RARE * codes.size:
        place = np.zeros(len(found), np.uint8)
        place[common] = np.arange(len(common))
        for one in rare:
            place[one] = int(np.abs(colours[common] - colours[one]).sum(1).argmin())
        image = Image.fromarray(place[index].reshape(codes.shape))
        image = image.convert("P")
        image.putpalette(colours[common].astype(np.uint8).tobytes())
    else:
        image = Image.fromarray(np.ascontiguousarray(pixels))
    data = io.BytesIO()
    image.save(data, format="PNG", optimize=True)
    write(Path(path), data.getvalue())


class PixelFigure:
    """A white figure measured in pixels, on which images keep their pixels whole; the origin is the upper left corner.

    Args:
        width, height: in pixels.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure = new_figure(width / _DPI, height / _DPI, _DPI)

    def text(self, x: float, y: float, text: str, size: float, **style: str | float) -> None:
        """Write a text.

        Args:
            x, y: in pixels, its upper left corner unless ``style`` says otherwise.
            text: what is written.
            size: of the letters, in pixels.
            **style: of ``matplotlib.figure.Figure.text``, such as ``ha``, ``va``, ``color`` or ``rotation``.
        """
        style = {"ha": "left", "va": "top", "color": INK, **style}
        self.figure.text(x / self.width, 1 - y / self.height, text, fontsize=size * 72 / _DPI, **style)  # type: ignore[arg-type]

    def image(self, x: int, y: int, image: Pixels, factor: int = 1) -> None:
        """Put an image ``[H, W, 3]`` with its corner at (x, y), every pixel a square of ``factor`` pixels."""
        large = enlarge(image, factor)
        self.figure.figimage(large, x, self.height - y - large.shape[0], origin="upper")

    def colour_bar(self, x: int, y: int, size: tuple[int, int], colours: str) -> None:
        """A strip of a colour map, width and height ``size``, from its low end on the left."""
        width, height = size
        self.image(x, y, np.repeat(colour_mapped(np.linspace(0, 1, width)[None], 0, 1, colours), height, 0))

    def save(self, path: str | Path) -> None:
        """Write a PNG; its folder is made."""
        save_png(self.figure, path)


def colour_mapped(values: NDArray[np.float64], low: float, high: float, colours: str) -> Pixels:
    """Values as 64 colours of a colour map, uint8 ``[H, W, 3]``; equal limits are a range of one."""
    from matplotlib import colormaps

    share = np.rint(np.clip((values - low) / (high - low if high > low else 1.0), 0, 1) * 63) / 63
    found: Pixels = colormaps[colours](share, bytes=True)[..., :3]
    return found
