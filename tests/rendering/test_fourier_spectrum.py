"""Spectra: against NumPy, at pure waves, and by Parseval's theorem."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.rendering.fourier_spectrum import power_spectral_density, spectrum
from tests.every_case import every_case

RNG = np.random.default_rng(2)


def wave(height: int, width: int, down: int, across: int) -> np.ndarray:
    """A cosine of so many cycles over the height and the width: ``[1, H, W]``."""
    y, x = np.mgrid[:height, :width]
    return np.cos(2 * np.pi * (down * y / height + across * x / width))[None]


def test_it_is_the_transform_with_zero_in_the_middle() -> None:
    x = RNG.random((1, 5, 6))
    found = spectrum(x)
    assert found.dtype == torch.float64 and found.shape == (1, 5, 6)
    assert float(found[0, 2, 3]) == pytest.approx(math.log1p(x.sum()))
    want = np.log1p(np.abs(np.fft.fft2(x[0])))
    assert found[0].numpy() == pytest.approx(np.roll(want, (2, 3), (0, 1)))


@every_case(("down", "across"), [(0, 3), (4, 0), (3, 4), (0, 0), (10, 0)])
def test_the_density_of_a_wave_peaks_at_its_frequency(down: int, across: int) -> None:
    frequencies, power = power_spectral_density(wave(20, 20, down, across))
    peak = int(power[0].argmax())
    assert float(frequencies[peak]) == pytest.approx(math.hypot(down, across) / 20)
    assert float(power[0].sum() - power[0, peak]) == pytest.approx(0, abs=1e-12)


def test_radii_are_in_cycles_a_pixel_also_where_sides_differ() -> None:
    frequencies, power = power_spectral_density(wave(20, 40, 0, 8))  # 8 cycles over 40 pixels: one in 5
    assert frequencies.tolist() == pytest.approx([k / 20 for k in range(11)])
    assert float(frequencies[int(power[0].argmax())]) == pytest.approx(0.2)
    slow, power = power_spectral_density(wave(11, 60, 0, 1))  # 1/60 lies nearer to zero than to the first ring
    assert int(power[0].argmax()) == 1 and float(power[0, 0]) == pytest.approx(0, abs=1e-12) and len(slow) == 6


def test_parseval() -> None:
    x = RNG.random((3, 14, 10))
    energy = (x**2).sum((1, 2))
    magnitude = torch.expm1(spectrum(x)).numpy()
    assert (magnitude**2).sum((1, 2)) / 140 == pytest.approx(energy)
    frequencies, power = power_spectral_density(x)
    counts, corners = np.zeros(len(frequencies)), np.zeros(3)
    for k in range(-7, 7):
        for m in range(-5, 5):
            ring = math.floor(math.hypot(k / 14, m / 10) * 10 + 0.5)
            ring = max(ring, 1) if (k, m) != (0, 0) else 0
            if ring < len(counts):
                counts[ring] += 1
            else:
                corners += magnitude[:, k + 7, m + 5] ** 2 / 140
    assert (power.numpy() * counts).sum(1) + corners == pytest.approx(energy)


def test_frames_and_colours() -> None:
    x = RNG.random((2, 4, 16, 12))
    each = torch.stack([spectrum(x[:, i]) for i in range(4)])
    powers = torch.stack([power_spectral_density(x[:, i])[1] for i in range(4)])
    assert torch.allclose(spectrum(x), each.mean(0))
    assert torch.allclose(power_spectral_density(x)[1], powers.mean(0))
    assert torch.allclose(spectrum(np.moveaxis(x, 1, -1)), each.mean(0))
    colour = RNG.random((2, 16, 12, 3))
    assert torch.allclose(spectrum(colour), spectrum(colour.mean(-1)))
    assert torch.allclose(spectrum(x[:, :3], layout="FHW"), each[:3].mean(0))


def test_what_has_no_spectrum() -> None:
    with pytest.raises(SpaceError, match="layout="):
        spectrum(np.zeros((2, 5)))
    with pytest.raises(ValueRangeError, match="finite"):
        power_spectral_density(np.full((1, 5, 6), np.inf))
