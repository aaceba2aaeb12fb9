"""One observation under several threats: what the pictures of :mod:`adv_wrappers.evaluation.sheet` show."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.errors import SpaceError
from adv_wrappers.evaluation import perceptual
from adv_wrappers.evaluation.spectrum import power_spectral_density, spectrum
from adv_wrappers.wrappers.panels import Frames

BANDS = {"low": (0.0, 1 / 6), "mid": (1 / 6, 1 / 3), "high": (1 / 3, 0.5)}  # cycles a pixel
FLOOR = 1e-3  # squared grey levels; less power than this is none


@dataclass(frozen=True)
class Look:
    """An observation, and what became of it under each threat.

    Attributes:
        title: where it comes from.
        space: of the observation.
        true: the observation.
        shown: the observation as each threat hands it out.
        names: of each threat, with its numbers as ``key=value``.
        layout: which axis of the observation is what; None infers.
        under: threats that the environment has itself, which the observation came through; captions, innermost first.
    """

    title: str
    space: spaces.Box
    true: NDArray[Any]
    shown: tuple[NDArray[Any], ...]
    names: tuple[tuple[str, tuple[str, ...]], ...]
    layout: str | None = None
    under: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """What the observation is called: ``original``, or ``as it comes`` where it came through threats."""
        return "as it comes" if self.under else "original"

    @property
    def stacked(self) -> bool:
        """Whether the observation is a stack of frames."""
        return "F" in Frames(self.space, self.layout).layout

    def frame(self, x: NDArray[Any]) -> NDArray[Any]:
        """The newest frame of an observation as grey levels 0 to 255, ``[H, W, 3]``."""
        return Frames(self.space, self.layout).levels(x)[-1]

    def spectrum(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Log-magnitude of the newest frame's Fourier transform, ``[H, W]``, frequency zero in the middle."""
        found: NDArray[np.float64] = spectrum(self.frame(x).astype(np.float64)[None], "HWC")[0].numpy()
        return found

    def density(self, x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Frequencies in cycles a pixel, and the power of the newest frame there, ``[R]`` each."""
        frequencies, power = power_spectral_density(self.frame(x).astype(np.float64)[None], "HWC")
        return frequencies.numpy(), power[0].numpy()

    def distances(self) -> list[dict[str, float | None]]:
        """``l2``, ``linf``, ``ssim`` and ``psnr`` of the whole observation, all its frames; a dictionary a threat.

        ``ssim`` is None for pictures that are smaller than its window.
        """
        frames, found = Frames(self.space, self.layout), []
        limits = None if self.space.dtype == np.uint8 else (frames.low, frames.high)
        for shown in self.shown:
            x, y = self.true[None], shown[None]
            row: dict[str, float | None] = {"l2": float(perceptual.l2(x, y)), "linf": float(perceptual.linf(x, y))}
            row["ssim"] = None
            with contextlib.suppress(SpaceError):
                row["ssim"] = float(perceptual.ssim(x, y, frames.layout, limits))
            row["psnr"] = float(perceptual.psnr(x, y, limits))
            found.append(row)
        return found

    def bands(self) -> list[dict[str, float]]:
        """By how much the power of the newest frame changed in each of ``BANDS``, in dB; a dictionary a threat.

        The mean over the rings of a band, of ten times the decimal logarithm of the ratio. Frequency zero, the mean
        brightness, is in none.
        """
        frequencies, power = self.density(self.true)
        found = []
        for shown in self.shown:
            ratio = np.maximum(self.density(shown)[1], FLOOR) / np.maximum(power, FLOOR)
            found.append({name: _mean_db(ratio, frequencies, *ends) for name, ends in BANDS.items()})
        return found


def _mean_db(ratio: NDArray[Any], frequencies: NDArray[Any], low: float, high: float) -> float:
    inside = (frequencies > low) & (frequencies <= high + 1e-9)
    return float(10 * np.log10(ratio[inside]).mean())
