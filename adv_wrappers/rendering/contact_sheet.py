"""Pictures of one observation under several threats: frames, Fourier spectra and power spectral densities.

They are those of the daylight paper (figures 1 to 3), drawn from a :class:`ThreatComparison`, which
:func:`adv_wrappers.evaluation.perturbed_samples.compare_threats` makes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
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
from adv_wrappers.rendering.frames import (
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
from adv_wrappers.rendering.plots import bottom_spine_only, new_figure, save_figure, show_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    """

    title: str
    space: spaces.Box
    true: Array
    perturbed: tuple[Array, ...]
    names: tuple[tuple[str, tuple[str, ...]], ...]
    distances: tuple[Mapping[str, float | None], ...]

    @property
    def stacked(self) -> bool:
        """Whether the observation is a stack of frames."""
        return "F" in FrameReader(self.space).layout

    def frame(self, observation: Array) -> GreyOrFloat:
        """The newest frame of an observation as grey levels 0 to 255, ``[H, W, 3]``."""
        return FrameReader(self.space).levels(observation)[-1]

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


def draw_contact_sheet(comparison: ThreatComparison, path: str | Path) -> None:
    """Write a figure: a column for the original and each threat; the frame, its spectrum, and what changed.

    Below stand the distances of the whole observation (of all frames of a stack). The change of the spectrum is that
    of its logarithm, smoothed over neighbouring frequencies.

    Args:
        comparison: the observation under the threats.
        path: of the file, ``.png``, ``.svg`` or ``.pdf``; its folder is made.

    Raises:
        ValueRangeError: for a file of another format.
    """
    # the pictures and spectra, and one scale for all of a kind
    seen = [comparison.true, *comparison.perturbed]
    frames, spectra = [comparison.frame(x) for x in seen], [comparison.spectrum(x) for x in seen]
    blur = max(frames[0].shape[:2]) / 60
    shifts = [np.asarray(cv2.GaussianBlur(one - spectra[0], (0, 0), blur), np.float64) for one in spectra]
    most = max(float(np.quantile(np.abs(one), 0.998)) for one in shifts) or 1.0
    spectrum_scale = {"cmap": "magma", "vmin": 0.0, "vmax": max(float(one.max()) for one in spectra)}

    # a row for each kind of picture, a column for the original and each threat
    high, wide = frames[0].shape[:2]
    figure = new_figure(1.9 * len(seen) + 1.2, 4 * 1.8 * high / wide + 1.8, 120, "constrained")
    figure.suptitle(comparison.title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    grid = figure.subplots(4, len(seen), squeeze=False)
    for axes, name in zip(grid[:, 0], ("image", "change", "spectrum", "its change"), strict=True):
        axes.set_ylabel(name, color=MUTED, fontsize=9)
    heads = [("original", ("newest frame",) * comparison.stacked), *comparison.names]
    for i, ((name, numbers), frame) in enumerate(zip(heads, frames, strict=True)):
        # the frame and its spectrum
        head = textwrap.fill(", ".join(numbers), 24, break_long_words=True, max_lines=2, placeholder="...")
        grid[0, i].set_title(f"{name}\n{head}".strip(), loc="left", fontsize=9, color=INK if i else CLEAN)
        show_image(grid[0, i], to_pixels(frame))
        bright = show_image(grid[2, i], spectra[i], **spectrum_scale)
        if i == 0:  # which has no change to show
            for axes in (grid[1, 0], grid[3, 0]):
                show_image(axes, np.full((high, wide, 3), 255, np.uint8))
            words = "grey: no change\nblack: darker\nwhite: brighter"
            grid[1, 0].text(0, high / 2, words, color=MUTED, fontsize=8, va="center")
            continue
        # what changed in the picture, as much brighter as its own changes allow, and in the spectrum
        gain = gain_for(largest_change(frames[0], frame))
        show_image(grid[1, i], amplified_difference(frames[0], frame, gain))
        grid[1, i].set_xlabel(f"x {gain}", color=MUTED, fontsize=8, loc="left")
        moved = show_image(grid[3, i], shifts[i], cmap="RdBu_r", vmin=-most, vmax=most)
        below = "\n".join(_distance(comparison.distances[i - 1]))
        grid[3, i].set_xlabel(below, color=INK, fontsize=8, loc="left")
    # one scale for each row of spectra
    figure.colorbar(bright, ax=grid[2], label="log(1 + |F|)", shrink=0.9)
    if len(seen) > 1:
        figure.colorbar(moved, ax=grid[3], label="its change", shrink=0.9)
    save_figure(figure, path)


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
    # a panel for each threat, on the same axes
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
        # the original's density and the perturbed one
        (name, numbers), bands = comparison.names[place], all_bands[place]
        perturbed = comparison.density(comparison.perturbed[place])[1]
        for values, colour in ((power, CLEAN), (perturbed, ATTACKED)):
            axes.semilogy(frequencies[1:], np.maximum(values[1:], MIN_POWER), color=colour, linewidth=1.3)
        title = name + (f": {', '.join(numbers)}" if numbers else "")
        axes.set_title(textwrap.shorten(title, 44, placeholder="..."), loc="left", fontsize=9.5, color=INK)
        # how much each band changed, above the curves
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
    # one legend and one pair of labels for all panels
    figure.supxlabel("cycles a pixel", fontsize=9, color=MUTED)
    figure.supylabel("power", fontsize=9, color=MUTED)
    figure.legend(
        grid[0, 0].lines[:2],
        ["original", "perturbed"],
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
