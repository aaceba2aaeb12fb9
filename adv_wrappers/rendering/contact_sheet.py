"""Pictures of one observation under several threats: frames, Fourier spectra and power spectral densities.

They are those of the daylight paper (figures 1 to 3), drawn from a :class:`ThreatComparison`, which
:func:`adv_wrappers.evaluation.threat_comparison.compare_threats` makes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
from gymnasium import spaces

from adv_wrappers.core.types import Array
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.fourier_spectrum import (
    BANDS,
    MIN_POWER,
    Spectrum,
    band_changes,
    power_spectral_density,
    spectrum,
)
from adv_wrappers.rendering.pixels import (
    ATTACKED,
    CLEAN,
    GRID,
    INK,
    MUTED,
    FrameReader,
    GreyOrFloat,
    amplified_difference,
    gain_for,
    largest_change,
    to_pixels,
)
from adv_wrappers.rendering.plots import PixelFigure, bottom_spine_only, colour_mapped, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL, _GAP, _EDGE = 168, 10, 14  # pixels: least longer side of a picture, between pictures, around them
_HEAD, _BODY, _SIDE = 19, 16, 46  # letters of names and of numbers, and the column of row labels
_SPECTRUM, _CHANGE = "magma", "RdBu_r"  # colour maps


@dataclass(frozen=True)
class ThreatComparison:
    """One observation, and what becomes of it under each threat.

    Attributes:
        title: where the observation comes from.
        space: of the observation.
        true: the observation.
        perturbed: the observation as each threat hands it out.
        names: of each threat, the name and its numbers as ``key=value``.
        distances: from each perturbed observation to the true one, ``l2``, ``linf``, ``ssim`` and ``psnr`` of all
            frames together; ``ssim`` is None for images that are smaller than its window.
        layout: which axis of the observation is what; None infers it.
        under: threats that the environment has itself, which the observation came through; captions, innermost first.
    """

    title: str
    space: spaces.Box
    true: Array
    perturbed: tuple[Array, ...]
    names: tuple[tuple[str, tuple[str, ...]], ...]
    distances: tuple[Mapping[str, float | None], ...]
    layout: str | None = None
    under: tuple[str, ...] = ()

    @property
    def true_label(self) -> str:
        """What the observation is called: ``original``, or ``as it comes`` where it came through threats."""
        return "as it comes" if self.under else "original"

    @property
    def stacked(self) -> bool:
        """Whether the observation is a stack of frames."""
        return "F" in FrameReader(self.space, self.layout).layout

    def frame(self, observation: Array) -> GreyOrFloat:
        """The newest frame of an observation as grey levels 0 to 255, ``[H, W, 3]``."""
        return FrameReader(self.space, self.layout).levels(observation)[-1]

    def spectrum(self, observation: Array) -> Spectrum:
        """Log-magnitude of the newest frame's Fourier transform, ``[H, W]``, frequency zero in the middle."""
        found: Spectrum = spectrum(self.frame(observation).astype(np.float64)[None], "HWC")[0].numpy()
        return found

    def density(self, observation: Array) -> tuple[Spectrum, Spectrum]:
        """Frequencies in cycles a pixel, and the power of the newest frame there, ``[R]`` each."""
        frequencies, power = power_spectral_density(self.frame(observation).astype(np.float64)[None], "HWC")
        return frequencies.numpy(), power[0].numpy()

    def bands(self) -> list[dict[str, float]]:
        """The change of the newest frame's power in dB, by band (see :func:`band_changes`); a dictionary a threat."""
        frequencies, power = self.density(self.true)
        return [band_changes(frequencies, power, self.density(each)[1]) for each in self.perturbed]


def _lines(numbers: Sequence[str], width: int) -> list[str]:
    """Parameters in lines that fit the column, two at most."""
    letters = int(width / (_BODY * 0.56))
    found = textwrap.wrap(", ".join(numbers), letters, break_long_words=True) or [""]
    return found if len(found) <= 2 else [found[0], found[1][: max(letters - 3, 1)] + "..."]


def draw_contact_sheet(comparison: ThreatComparison, path: str | Path) -> None:
    """Write a PNG: a column for the original and each threat; the frame, its change, its spectrum, and what changed.

    An observation that came through threats of the environment's own is called ``as it comes``, and they are named.
    Below stand the distances of the whole observation (of all frames of a stack). The change of the spectrum is that
    of its logarithm, smoothed over neighbouring frequencies.

    Args:
        comparison: the observation under the threats.
        path: of the file; its folder is made.
    """
    true = comparison.frame(comparison.true)
    factor = max(1, round(_CELL / max(true.shape[:2])))
    high, wide = true.shape[0] * factor, true.shape[1] * factor
    column = max(wide, 150)
    count = 1 + len(comparison.perturbed)
    first = [
        *(_lines(comparison.under, column) if comparison.under else []),
        "newest frame" if comparison.stacked else "",
    ]
    heads = [first, *(_lines(numbers, column) for _, numbers in comparison.names)]
    top = _EDGE + 30 + _HEAD + 6 + max(len(lines) for lines in heads) * (_BODY + 4) + 6
    rows = [top, top + high + _GAP, top + 2 * high + _GAP + _BODY + 12, top + 3 * high + 2 * _GAP + _BODY + 12]
    height = rows[3] + high + 8 + 3 * (_BODY + 6) + _EDGE
    figure = PixelFigure(2 * _EDGE + _SIDE + count * column + (count - 1) * _GAP, height)
    figure.text(_EDGE + _SIDE, _EDGE, comparison.title, _HEAD, fontweight="bold")
    for y, name in zip(rows, ("image", "change", "spectrum", "its change"), strict=True):
        figure.text(_EDGE + 14, y + high / 2, name, _BODY + 1, color=MUTED, rotation=90, va="center", ha="center")
    spectra = [comparison.spectrum(x) for x in (comparison.true, *comparison.perturbed)]
    brightest = max(float(one.max()) for one in spectra)
    blur = max(true.shape[:2]) / 60
    shifts = [np.asarray(cv2.GaussianBlur(one - spectra[0], (0, 0), blur), np.float64) for one in spectra]
    most = max(float(np.quantile(np.abs(one), 0.998)) for one in shifts) or 1.0
    for i in range(count):
        x = _EDGE + _SIDE + i * (column + _GAP)
        name = comparison.true_label if i == 0 else comparison.names[i - 1][0]
        size = min(_HEAD, column / (0.7 * len(name)))
        figure.text(x, _EDGE + 30 + _HEAD, name, size, va="bottom", fontweight="bold", color=INK if i else CLEAN)
        for j, line in enumerate(heads[i]):
            figure.text(x, _EDGE + 36 + _HEAD + j * (_BODY + 4), line, _BODY, color=MUTED)
        frame = true if i == 0 else comparison.frame(comparison.perturbed[i - 1])
        figure.image(x, rows[0], to_pixels(frame), factor)
        figure.image(x, rows[2], colour_mapped(spectra[i], 0, brightest, _SPECTRUM), factor)
        if i == 0:
            continue
        gain = gain_for(largest_change(true, frame))
        figure.image(x, rows[1], amplified_difference(true, frame, gain), factor)
        figure.text(x, rows[1] + high + 3, f"x {gain}", _BODY, color=MUTED)
        figure.image(x, rows[3], colour_mapped(shifts[i], -most, most, _CHANGE), factor)
        for j, line in enumerate(_distance(comparison.distances[i - 1])):
            figure.text(x, rows[3] + high + 8 + j * (_BODY + 6), line, _BODY)
    _legend(figure, rows, high, column, brightest, most)
    figure.save(path)


def _legend(figure: PixelFigure, rows: list[int], high: int, wide: int, brightest: float, most: float) -> None:
    """In the column of the original, which has no change to show."""
    x, middle = _EDGE + _SIDE, rows[1] + high // 2
    figure.text(x, middle - 40, "grey: no change", _BODY, color=MUTED)
    figure.text(x, middle - 16, "black: darker", _BODY, color=MUTED)
    figure.text(x, middle + 8, "white: brighter", _BODY, color=MUTED)
    y = rows[3] + high // 2 - 66
    for label, low, top, colours in (
        ("log(1 + |F|)", "0", f"{brightest:.0f}", _SPECTRUM),
        ("its change", f"-{most:.1f}", f"+{most:.1f}", _CHANGE),
    ):
        figure.text(x, y, label, _BODY, color=MUTED)
        figure.colour_bar(x, y + 22, (wide - 16, 12), colours)
        figure.text(x, y + 38, low, _BODY - 2, color=MUTED)
        figure.text(x + wide - 16, y + 38, top, _BODY - 2, color=MUTED, ha="right")
        y += 74


def _distance(row: Mapping[str, float | None]) -> list[str]:
    l2, linf, ssim, psnr = (row[name] for name in ("l2", "linf", "ssim", "psnr"))
    if not l2:
        return ["no change"]
    last = f"PSNR {psnr:.1f} dB" if ssim is None else f"SSIM {ssim:.3f}"
    return [rf"$\ell_2$ {distance_text(l2)}", rf"$\ell_\infty$ {distance_text(linf or 0.0)}", last]


def distance_text(value: float) -> str:
    """Four digits at most, all of those before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def decibels(value: float) -> str:
    """One decimal and the sign, that of zero being a plus."""
    return f"{round(value, 1) + 0.0:+.1f} dB"


def draw_spectra(comparison: ThreatComparison, path: str | Path) -> None:
    """Write a figure: the power spectral density of the newest frame under each threat, against the original's.

    Below each name stands by how many dB the power changed in three bands. Frequency zero is left out.

    Args:
        comparison: the observation under the threats, of which there must be one.
        path: of the file; its folder is made.

    Raises:
        ValueRangeError: without a threat.
    """
    count = len(comparison.perturbed)
    if count == 0:
        raise ValueRangeError("spectra need at least one threat")
    columns = min(count, 4 if count in (4, 7, 8) else 3)
    rows = math.ceil(count / columns)
    figure = new_figure(3.1 * columns, 2.5 * rows + 0.75, 140, "constrained")
    figure.suptitle(comparison.title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    frequencies, power = comparison.density(comparison.true)
    all_bands = comparison.bands()
    for place, axes in enumerate(grid.flat):
        if place >= count:
            axes.set_visible(False)
            continue
        (name, numbers), bands = comparison.names[place], all_bands[place]
        perturbed = comparison.density(comparison.perturbed[place])[1]
        for values, colour in ((power, CLEAN), (perturbed, ATTACKED)):
            axes.semilogy(frequencies[1:], np.maximum(values[1:], MIN_POWER), color=colour, linewidth=1.3)
        title = name + (f": {', '.join(numbers)}" if numbers else "")
        axes.set_title(textwrap.shorten(title, 44, placeholder="..."), loc="left", fontsize=9.5, color=INK)
        for band, (low, high) in BANDS.items():
            if low:
                axes.axvline(low, color=GRID, linewidth=1, zorder=0)
            axes.text(
                (low + high) / 2,
                0.97,
                f"{band}\n{decibels(bands[band])}",
                ha="center",
                va="top",
                fontsize=8,
                color=MUTED,
                transform=axes.get_xaxis_transform(),
                linespacing=1.3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
        _frequency_axis(axes)
    bottom, top = grid[0, 0].get_ylim()
    grid[0, 0].set_ylim(top=top * (top / bottom) ** 0.25)  # room for the bands
    figure.supxlabel("cycles a pixel", fontsize=9, color=MUTED)
    figure.supylabel("power", fontsize=9, color=MUTED)
    figure.legend(
        grid[0, 0].lines[:2],
        [comparison.true_label, "perturbed"],
        loc="upper right",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    save_figure(figure, path)


def _frequency_axis(axes: Axes) -> None:
    axes.tick_params(colors=MUTED, labelsize=8, length=0, which="both")
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_xlim(0, 0.5)
    axes.set_xticks([0, 1 / 6, 1 / 3, 1 / 2], ["0", "1/6", "1/3", "1/2"])
    bottom_spine_only(axes)
