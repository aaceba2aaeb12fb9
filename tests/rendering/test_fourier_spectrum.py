"""Spectra: against sums written out, at pure waves, and by Parseval's theorem."""

from __future__ import annotations

import cmath
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


def dft(x: np.ndarray) -> np.ndarray:
    """The discrete Fourier transform of one picture, term by term."""
    height, width = x.shape
    out = np.zeros((height, width), complex)
    for k in range(height):
        for m in range(width):
            for i in range(height):
                for j in range(width):
                    out[k, m] += x[i, j] * cmath.exp(-2j * math.pi * (k * i / height + m * j / width))
    return out


def test_it_is_the_transform_with_zero_in_the_middle() -> None:
    x = RNG.random((1, 5, 6))
    want = np.log1p(np.abs(dft(x[0])))
    found = spectrum(x)
    assert found.dtype == torch.float64 and found.shape == (1, 5, 6)
    assert float(found[0, 2, 3]) == pytest.approx(math.log1p(x.sum()))
    for k in range(5):
        for m in range(6):
            assert float(found[0, (k + 2) % 5, (m + 3) % 6]) == pytest.approx(want[k, m], abs=1e-9)


def test_a_wave_has_its_peaks_where_it_belongs() -> None:
    found = spectrum(wave(20, 24, 3, 5))[0]
    peaks = {tuple(p) for p in (found > 1).nonzero().tolist()}
    assert peaks == {(10 + 3, 12 + 5), (10 - 3, 12 - 5)}
    assert float(found.max()) == pytest.approx(math.log1p(20 * 24 / 2))


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


def test_a_shift_around_the_edge_changes_no_magnitude() -> None:
    x = torch.from_numpy(RNG.integers(0, 256, (2, 4, 12, 15)).astype(np.uint8))
    moved = x.roll((3, -4), (2, 3))
    assert torch.allclose(spectrum(moved), spectrum(x)) and not torch.equal(moved, x)
    assert torch.allclose(power_spectral_density(moved)[1], power_spectral_density(x)[1])


def test_white_noise_is_flat_and_a_blur_takes_the_high_frequencies() -> None:
    x = torch.from_numpy(RNG.normal(size=(50, 32, 32)))
    mean = power_spectral_density(x)[1].mean(0)
    assert torch.allclose(mean, torch.ones(17, dtype=torch.float64), atol=0.5) and float(mean[4:].std()) < 0.1
    blurred = (x + x.roll(1, 1) + x.roll(1, 2) + x.roll((1, 1), (1, 2))) / 4
    after = power_spectral_density(blurred)[1].mean(0)
    assert float(after[1]) > 0.8 and float(after[-1]) < 0.3


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
