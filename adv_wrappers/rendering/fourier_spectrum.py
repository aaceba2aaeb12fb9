"""The Fourier spectrum of observations (Daylight, section 4, figures 1 and 2): which frequencies a perturbation moves.

The grey of a colour is its mean. Every frame of a stack has a spectrum, of which the mean is taken.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.daylight.images import as_images, split

BANDS = {"low": (0.0, 1 / 6), "mid": (1 / 6, 1 / 3), "high": (1 / 3, 0.5)}  # cycles a pixel
MIN_POWER = 1e-3  # squared grey levels; less power than this is none
Spectrum = NDArray[np.float64]


def spectrum(x: Tensor | NDArray[np.generic], layout: str | None = None) -> Tensor:
    """Log-magnitude of the 2-D discrete Fourier transform, ``log(1 + |F|)``: float64 ``[B, H, W]``.

    Frequency zero is in the middle, at ``[H // 2, W // 2]``, as ``torch.fft.fftshift`` has it.

    Args:
        x: images ``[B, *S]``, uint8 (0 to 255) or float (as they are), a tensor or an array; of stacks it is the mean
            of the frames' log-magnitudes.
        layout: which axis is what (see :func:`adv_wrappers.core.image_layouts.layout_of`); None infers it.

    Raises:
        SpaceError: for what are no images.
        ValueRangeError: for values that are not finite.

    >>> from adv_wrappers.rendering.fourier_spectrum import spectrum
    >>> spectrum(np.ones((1, 4, 4)))[0, 2].exp().round()
    tensor([ 1.,  1., 17.,  1.], dtype=torch.float64)
    """
    magnitude: Tensor = torch.fft.fft2(_grey(x, layout)).abs()
    centred: Tensor = torch.fft.fftshift(magnitude.log1p().mean(1), dim=(-2, -1))
    return centred


def power_spectral_density(x: Tensor | NDArray[np.generic], layout: str | None = None) -> tuple[Tensor, Tensor]:
    """Power a frequency, ``|F|^2 / (H W)``, averaged over all directions.

    The plane of frequencies is cut into rings around zero, one cycle in the shorter side of the picture wide. The
    first holds frequency zero alone; corners, beyond half a cycle a pixel, are in none. Summed over all frequencies
    instead of averaged, ``|F|^2 / (H W)`` is the sum of the squared pixels (Parseval).

    Args:
        x, layout: as for :func:`spectrum`; of a stack it is the mean of the frames' powers.

    Returns:
        The radii of the rings, in cycles a pixel from 0 to at most 0.5, float64 ``[R]`` with
        ``R = min(H, W) // 2 + 1``, and the power, float64 ``[B, R]``, in squared units of the pixels.

    Raises:
        SpaceError, ValueRangeError: as :func:`spectrum`.

    >>> from adv_wrappers.rendering.fourier_spectrum import power_spectral_density
    >>> frequencies, power = power_spectral_density(np.ones((1, 4, 4)))
    >>> frequencies.tolist(), power.tolist()
    ([0.0, 0.25, 0.5], [[16.0, 0.0, 0.0]])
    """
    grey = _grey(x, layout)
    height, width = grey.shape[2:]
    power = torch.fft.fft2(grey).abs().square().mean(1) / (height * width)
    # the ring that each frequency lies in
    size = min(height, width)
    down, across = (torch.fft.fftfreq(n, dtype=torch.float64, device=grey.device) for n in (height, width))
    radius = torch.sqrt(down[:, None] ** 2 + across[None, :] ** 2)
    ring = torch.floor(radius * size + 0.5).long()
    ring[ring == 0] = 1  # on a long side there may be frequencies that lie nearer to zero than half a ring
    ring[0, 0] = 0
    rings = size // 2 + 1
    ring = ring.clamp(max=rings).flatten()  # the last one collects the corners
    # the mean of every ring, without the corners
    counts = torch.bincount(ring, minlength=rings + 1)[:rings]
    sums = torch.zeros(len(power), rings + 1, dtype=torch.float64, device=grey.device)
    sums.index_add_(1, ring, power.flatten(1))
    return torch.arange(rings, dtype=torch.float64, device=grey.device) / size, sums[:, :rings] / counts


def band_changes(frequencies: Spectrum, power: Spectrum, perturbed: Spectrum) -> dict[str, float]:
    """By how much a perturbation changes the power in each of ``BANDS``, in dB.

    The mean over the rings of a band of ten times the decimal logarithm of the ratio. Frequency zero, the mean
    brightness, is in none.

    Args:
        frequencies: radii of the rings, in cycles a pixel, ``[R]``.
        power, perturbed: the power in each ring before and after, ``[R]``.
    """
    ratio = np.maximum(perturbed, MIN_POWER) / np.maximum(power, MIN_POWER)
    changes = {}
    for name, (low, high) in BANDS.items():
        inside = (frequencies > low) & (frequencies <= high + 1e-9)
        changes[name] = float(10 * np.log10(ratio[inside]).mean())
    return changes


def _grey(x: Tensor | NDArray[np.generic], layout: str | None) -> Tensor:
    """Grey frames, float64 ``[B, F, H, W]``."""
    images = as_images(x)
    pictures, _ = split(images, layout_of(tuple(images.shape[1:]), layout), colours=True)
    frames = pictures.double().mean(-1)
    return frames.view(len(images), -1, *frames.shape[1:])
