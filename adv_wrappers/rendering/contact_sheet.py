"""Pictures of perturbations, as in the daylight paper's figures 1 to 3: frames, spectra, power spectral density."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.side_by_side import BANDS, FLOOR, Look
from adv_wrappers.rendering.panels import change, gain_for, largest_change, picture
from adv_wrappers.rendering.pixel_figure import CLEAN, GRID, HIT, INK, MUTED, Paper, coloured, save

_CELL, _GAP, _EDGE = 168, 10, 14  # pixels: least longer side of a picture, between pictures, around them
_HEAD, _BODY, _SIDE = 19, 16, 46  # letters of names and of numbers, and the column of row labels
_MAP, _CHANGE = "magma", "RdBu_r"


def _lines(numbers: Sequence[str], width: int) -> list[str]:
    """Parameters in lines that fit the column, two at most."""
    letters = int(width / (_BODY * 0.56))
    found = textwrap.wrap(", ".join(numbers), letters, break_long_words=True) or [""]
    return found if len(found) <= 2 else [found[0], found[1][: max(letters - 3, 1)] + "..."]


def _factor(height: int, width: int) -> int:
    return max(1, round(_CELL / max(height, width)))


def sheet(look: Look, path: str | Path) -> None:
    """Write a PNG: a column for the original and each threat; the frame, its change, its spectrum, and what changed.

    An observation that came through threats of the environment's own is called ``as it comes``, and they are named.
    Below stand the distances of the whole observation (of all frames of a stack). The change of the spectrum is that
    of its logarithm, smoothed over neighbouring frequencies.

    Args:
        look: an observation under threats (see :func:`adv_wrappers.evaluation.side_by_side.look`).
        path: of the file; its folder is made.
    """
    true = look.frame(look.true)
    factor = _factor(*true.shape[:2])
    high, wide = true.shape[0] * factor, true.shape[1] * factor
    column = max(wide, 150)
    count = 1 + len(look.shown)
    first = [*(_lines(look.under, column) if look.under else []), "newest frame" if look.stacked else ""]
    heads = [first, *(_lines(numbers, column) for _, numbers in look.names)]
    top = _EDGE + 30 + _HEAD + 6 + max(len(lines) for lines in heads) * (_BODY + 4) + 6
    rows = [top, top + high + _GAP, top + 2 * high + _GAP + _BODY + 12, top + 3 * high + 2 * _GAP + _BODY + 12]
    height = rows[3] + high + 8 + 3 * (_BODY + 6) + _EDGE
    paper = Paper(2 * _EDGE + _SIDE + count * column + (count - 1) * _GAP, height)
    paper.text(_EDGE + _SIDE, _EDGE, look.title, _HEAD, fontweight="bold")
    for y, name in zip(rows, ("image", "change", "spectrum", "its change"), strict=True):
        paper.text(_EDGE + 14, y + high / 2, name, _BODY + 1, color=MUTED, rotation=90, va="center", ha="center")
    spectra = [look.spectrum(x) for x in (look.true, *look.shown)]
    brightest = max(float(one.max()) for one in spectra)
    blur = max(true.shape[:2]) / 60
    shifts = [cv2.GaussianBlur(one - spectra[0], (0, 0), blur) for one in spectra]
    most = max(float(np.quantile(np.abs(one), 0.998)) for one in shifts) or 1.0
    distances = look.distances()
    for i in range(count):
        x = _EDGE + _SIDE + i * (column + _GAP)
        name = look.origin if i == 0 else look.names[i - 1][0]
        size = min(_HEAD, column / (0.7 * len(name)))
        paper.text(x, _EDGE + 30 + _HEAD, name, size, va="bottom", fontweight="bold", color=INK if i else CLEAN)
        for j, line in enumerate(heads[i]):
            paper.text(x, _EDGE + 36 + _HEAD + j * (_BODY + 4), line, _BODY, color=MUTED)
        frame = true if i == 0 else look.frame(look.shown[i - 1])
        paper.image(x, rows[0], picture(frame), factor)
        paper.image(x, rows[2], coloured(spectra[i], 0, brightest, _MAP), factor)
        if i == 0:
            continue
        gain = gain_for(largest_change(true, frame))
        paper.image(x, rows[1], change(true, frame, gain), factor)
        paper.text(x, rows[1] + high + 3, f"x {gain}", _BODY, color=MUTED)
        paper.image(x, rows[3], coloured(shifts[i], -most, most, _CHANGE), factor)
        for j, line in enumerate(_distance(distances[i - 1])):
            paper.text(x, rows[3] + high + 8 + j * (_BODY + 6), line, _BODY)
    _legend(paper, rows, high, column, brightest, most)
    paper.save(path)


def _legend(paper: Paper, rows: list[int], high: int, wide: int, brightest: float, most: float) -> None:
    """In the column of the original, which has no change to show."""
    x, middle = _EDGE + _SIDE, rows[1] + high // 2
    paper.text(x, middle - 40, "grey: no change", _BODY, color=MUTED)
    paper.text(x, middle - 16, "black: darker", _BODY, color=MUTED)
    paper.text(x, middle + 8, "white: brighter", _BODY, color=MUTED)
    y = rows[3] + high // 2 - 66
    for label, low, top, colours in (
        ("log(1 + |F|)", "0", f"{brightest:.0f}", _MAP),
        ("its change", f"-{most:.1f}", f"+{most:.1f}", _CHANGE),
    ):
        paper.text(x, y, label, _BODY, color=MUTED)
        paper.ramp(x, y + 22, (wide - 16, 12), colours)
        paper.text(x, y + 38, low, _BODY - 2, color=MUTED)
        paper.text(x + wide - 16, y + 38, top, _BODY - 2, color=MUTED, ha="right")
        y += 74


def _distance(row: dict[str, float | None]) -> list[str]:
    l2, linf, ssim, psnr = (row[name] for name in ("l2", "linf", "ssim", "psnr"))
    if not l2:
        return ["no change"]
    last = f"PSNR {psnr:.1f} dB" if ssim is None else f"SSIM {ssim:.3f}"
    return [rf"$\ell_2$ {number(l2)}", rf"$\ell_\infty$ {number(linf or 0.0)}", last]


def number(value: float) -> str:
    """Four digits at most, all of those before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def decibels(value: float) -> str:
    """One decimal and the sign, that of zero being a plus."""
    return f"{round(value, 1) + 0.0:+.1f} dB"


def spectra(look: Look, path: str | Path) -> None:
    """Write a PNG: the power spectral density of the newest frame under each threat, against the original's.

    Below each name stands by how many dB the power changed in three bands. Frequency zero is left out.

    Args:
        look: an observation under threats.
        path: of the file; its folder is made.

    Raises:
        ValueRangeError: without a threat.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(look.shown)
    if count == 0:
        raise ValueRangeError("spectra need at least one threat")
    columns = min(count, 4 if count in (4, 7, 8) else 3)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(3.1 * columns, 2.5 * rows + 0.75), dpi=140, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(look.title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    frequencies, power = look.density(look.true)
    all_bands = look.bands()
    for place, axes in enumerate(grid.flat):
        if place >= count:
            axes.set_visible(False)
            continue
        (name, numbers), bands = look.names[place], all_bands[place]
        for values, colour in ((power, CLEAN), (look.density(look.shown[place])[1], HIT)):
            axes.semilogy(frequencies[1:], np.maximum(values[1:], FLOOR), color=colour, linewidth=1.3)
        title = name + (f": {', '.join(numbers)}" if numbers else "")
        axes.set_title(textwrap.shorten(title, 44, placeholder="..."), loc="left", fontsize=9.5, color=INK)
        for band, (low, high) in BANDS.items():
            if low:
                axes.axvline(low, color=GRID, linewidth=1, zorder=0)
            axes.text((low + high) / 2, 0.97, f"{band}\n{decibels(bands[band])}", ha="center", va="top",
                      fontsize=8, color=MUTED, transform=axes.get_xaxis_transform(), linespacing=1.3,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        _plain(axes)
    bottom, top = grid[0, 0].get_ylim()
    grid[0, 0].set_ylim(top=top * (top / bottom) ** 0.25)  # room for the bands
    figure.supxlabel("cycles a pixel", fontsize=9, color=MUTED)
    figure.supylabel("power", fontsize=9, color=MUTED)
    figure.legend(
        grid[0, 0].lines[:2], [look.origin, "perturbed"], loc="upper right", ncols=2, frameon=False, fontsize=9
    )
    save(figure, path)


def _plain(axes: Any) -> None:
    axes.tick_params(colors=MUTED, labelsize=8, length=0, which="both")
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(0, 0.5)
    axes.set_xticks([0, 1 / 6, 1 / 3, 1 / 2], ["0", "1/6", "1/3", "1/2"])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
