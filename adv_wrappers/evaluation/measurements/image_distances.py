"""Distances between images: how far a perturbed observation is from the true one, in pixels and as seen.

Every function takes two batches ``[B, *S]`` of one shape and dtype, uint8 or float, tensors or numpy arrays, and
returns one float64 number a row, ``[B]``, on the device of the first. What a row holds (see
:func:`adv_wrappers.core.image_layouts.layout_of`) may be a stack of frames: ``l2``, ``linf`` and ``psnr`` take all its
pixels together, as budgets do, and ``ssim`` is the mean over its frames and colours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.arrays import flat_rows
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.daylight.images import Limits, as_images, limits_of, split
from adv_wrappers.errors import SpaceError

WINDOW, SIGMA = 11, 1.5  # pixels; the window of SSIM and the standard deviation of its weights
K1, K2 = 0.01, 0.03  # SSIM's constants, as shares of the range of the values

ObservationBatch = Tensor | NDArray[np.generic]  # [B, *S], uint8 or floats


def pair(x: ObservationBatch, y: ObservationBatch) -> tuple[Tensor, Tensor]:
    """Two batches as tensors on one device.

    Raises:
        SpaceError: for shapes or dtypes that differ, batches without a value, and dtypes other than uint8 and floats.
        ValueRangeError: for values that are not finite.
    """
    a, b = as_images(x), as_images(y)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise SpaceError(
            f"expected two batches of one shape and dtype, got {tuple(a.shape)} of {a.dtype} and {tuple(b.shape)} of "
            f"{b.dtype}"
        )
    return a, b.to(a.device)


def planes(x: Tensor, layout: str) -> Tensor:
    """Every frame and colour of a batch as a grey picture of its own: ``[B, P, H, W]`` in the batch's dtype."""
    images, _ = split(x, layout)
    return images.permute(0, 3, 1, 2).reshape(len(x), -1, *images.shape[1:3])


def l2(x: ObservationBatch, y: ObservationBatch) -> Tensor:
    """Euclidean distance over all pixels of a row, in the units of the pixels: float64 ``[B]``.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`.

    >>> from adv_wrappers.evaluation.measurements.image_distances import l2
    >>> l2(np.zeros((1, 2, 2), np.uint8), np.full((1, 2, 2), 3, np.uint8))
    tensor([6.], dtype=torch.float64)
    """
    a, b = pair(x, y)
    return flat_rows(a.double() - b.double()).square().sum(1).sqrt()


def linf(x: ObservationBatch, y: ObservationBatch) -> Tensor:
    """The largest change of a pixel of a row, in the units of the pixels: float64 ``[B]``.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`.
    """
    a, b = pair(x, y)
    return flat_rows(a.double() - b.double()).abs().amax(1)


def psnr(x: ObservationBatch, y: ObservationBatch, limits: Limits | None = None) -> Tensor:
    """Peak signal-to-noise ratio in dB, ``10 log10(range^2 / MSE)``: float64 ``[B]``, infinite for equal rows.

    The mean squared error is that of all pixels of a row, so one frame of a stack that did not change does not make
    the ratio infinite.

    Args:
        x, y: ``[B, *S]``.
        limits: darkest and brightest value of floats, by default 0 and 1; uint8 has 0 and 255.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`, and for limits that are no range.
    """
    a, b = pair(x, y)
    low, high = limits_of(a, limits)
    error = flat_rows(a.double() - b.double()).square().mean(1)
    return 10 * torch.log10((high - low) ** 2 / error)


def ssim(x: ObservationBatch, y: ObservationBatch, layout: str | None = None, limits: Limits | None = None) -> Tensor:
    """Structural similarity (Wang et al. 2004, equation 13), 1 for equal images: float64 ``[B]``.

    Means, variances and the covariance are weighted by an 11 x 11 Gaussian window with a standard deviation of 1.5
    pixels, at every place where the whole window lies inside the picture; C1 = (0.01 range)^2, C2 = (0.03 range)^2.
    Every frame and colour is a grey picture of its own, and a row's number is the mean over them.

    Args:
        x, y: ``[B, *S]``.
        layout: which axis is what (see :func:`adv_wrappers.core.image_layouts.layout_of`); None infers it.
        limits: darkest and brightest value of floats, by default 0 and 1; uint8 has 0 and 255. Values count from the
            darkest, or the luminance term would divide by nothing on a range such as -1 to 1.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`; for shapes that are no image, or smaller than the window.
    """
    a, b = pair(x, y)
    low, high = limits_of(a, limits)
    found = layout_of(tuple(a.shape[1:]), layout)
    # every frame and colour as a picture of its own
    a, b = planes(a, found).double() - low, planes(b, found).double() - low
    if min(a.shape[2:]) < WINDOW:
        raise SpaceError(f"ssim needs pictures of at least {WINDOW} x {WINDOW} pixels, got {tuple(a.shape[2:])}")
    rows, columns = (_band(size, a.device) for size in a.shape[2:])

    def mean(z: Tensor) -> Tensor:
        return rows @ z @ columns.T

    # weighted means, variances and covariance at every place of the window, and equation 13
    ma, mb = mean(a), mean(b)
    va, vb = mean(a * a) - ma * ma, mean(b * b) - mb * mb
    cov = mean(a * b) - ma * mb
    c1, c2 = (K1 * (high - low)) ** 2, (K2 * (high - low)) ** 2
    values = (2 * ma * mb + c1) * (2 * cov + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2))
    return flat_rows(values).mean(1)


@functools.lru_cache(maxsize=32)
def _band(size: int, device: torch.device) -> Tensor:
    """The Gaussian mean along one axis as a matrix ``[size - 10, size]``: one product is faster than a convolution."""
    offsets = torch.arange(WINDOW, dtype=torch.float64, device=device) - WINDOW // 2
    weights = torch.exp(-0.5 * (offsets / SIGMA) ** 2)
    weights = weights / weights.sum()
    band = torch.zeros(size - WINDOW + 1, size, dtype=torch.float64, device=device)
    for place in range(len(band)):
        band[place, place : place + WINDOW] = weights
    return band


DISTANCES: dict[str, Callable[..., Tensor]] = {"l2": l2, "linf": linf, "ssim": ssim, "psnr": psnr}
