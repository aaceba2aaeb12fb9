"""Distances between images: against sums written out, at known values, and by the properties they must have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.evaluation.measurements.image_distances import DISTANCES, l2, linf, psnr, ssim
from tests.every_case import every_case

RNG = np.random.default_rng(0)
SHAPES = {"HW": (13, 17), "FHW": (4, 13, 17), "HWF": (13, 17, 4), "HWC": (13, 17, 3), "FHWC": (2, 13, 17, 3)}


def pictures(shape: tuple[int, ...], rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.integers(0, 256, (rows, *shape)).astype(np.uint8)
    return x, np.clip(x.astype(int) + RNG.integers(-40, 41, x.shape), 0, 255).astype(np.uint8)


def ssim_by_hand(x: np.ndarray, y: np.ndarray, span: float) -> float:
    """Wang et al. 2004 in loops over every place of the window."""
    weights = np.array([[math.exp(-(i * i + j * j) / (2 * 1.5**2)) for j in range(-5, 6)] for i in range(-5, 6)])
    weights /= weights.sum()
    c1, c2, found = (0.01 * span) ** 2, (0.03 * span) ** 2, []
    for top in range(x.shape[0] - 10):
        for left in range(x.shape[1] - 10):
            a, b = (z[top : top + 11, left : left + 11].astype(float) for z in (x, y))
            ma, mb = (weights * a).sum(), (weights * b).sum()
            va, vb = (weights * (a - ma) ** 2).sum(), (weights * (b - mb) ** 2).sum()
            cov = (weights * (a - ma) * (b - mb)).sum()
            found.append((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return float(np.mean(found))


def test_ssim_is_that_of_the_paper() -> None:
    x, y = pictures((13, 17))
    by_hand = [ssim_by_hand(a, b, 255) for a, b in zip(x, y, strict=True)]
    assert ssim(x, y).tolist() == pytest.approx(by_hand, abs=1e-12)
    assert 0.5 < by_hand[0] < 0.99
    on_floats = [ssim_by_hand(a / 255, b / 255, 1.0) for a, b in zip(x, y, strict=True)]
    assert ssim(x / 255, y / 255).tolist() == pytest.approx(on_floats, abs=1e-12)
    assert ssim(x / 127.5 - 1, y / 127.5 - 1, limits=(-1, 1)).tolist() == pytest.approx(by_hand, abs=1e-12)


def test_ssim_of_stacks_and_colours_is_the_mean_over_their_planes() -> None:
    for layout, shape in SHAPES.items():
        x, y = pictures(shape, 2)
        first = [axis for axis in range(len(shape)) if layout[axis] not in "HW"]
        a, b = (np.moveaxis(z, [1 + axis for axis in first], range(1, 1 + len(first))) for z in (x, y))
        a, b = a.reshape(2, -1, 13, 17), b.reshape(2, -1, 13, 17)
        each = [[ssim_by_hand(p, q, 255) for p, q in zip(a[i], b[i], strict=True)] for i in range(2)]
        assert ssim(x, y).tolist() == pytest.approx(np.mean(each, 1).tolist(), abs=1e-12), layout
        assert ssim(x, y, layout).tolist() == ssim(x, y).tolist()


def test_ssim_knows_its_ends() -> None:
    x, y = pictures((4, 84, 84), 3)
    assert ssim(x, x).tolist() == pytest.approx([1, 1, 1], abs=1e-12)
    assert ssim(x, y).tolist() == pytest.approx(ssim(y, x).tolist(), abs=1e-12)
    assert (ssim(x, 255 - x) < 0).all()  # an inverted picture is anticorrelated
    black, white = np.zeros((1, 20, 20), np.uint8), np.full((1, 20, 20), 255, np.uint8)
    assert float(ssim(black, white)) == pytest.approx(0.01**2 / (1 + 0.01**2))  # the luminance term alone


def test_pixel_distances_are_those_of_the_whole_row() -> None:
    for shape in SHAPES.values():
        x, y = pictures(shape)
        gap = (x.astype(float) - y).reshape(5, -1)
        assert l2(x, y).tolist() == pytest.approx(np.sqrt((gap**2).sum(1)).tolist())
        assert linf(x, y).tolist() == np.abs(gap).max(1).tolist()
        ratio = 10 * np.log10(255**2 / (gap**2).mean(1))
        assert psnr(x, y).tolist() == pytest.approx(ratio.tolist())
        assert psnr(x / 255, y / 255).tolist() == pytest.approx(ratio.tolist())
        assert psnr(x / 127.5 - 1, y / 127.5 - 1, limits=(-1, 1)).tolist() == pytest.approx(ratio.tolist())


@pytest.mark.parametrize("name", DISTANCES)
def test_rows_do_not_know_of_each_other_and_kinds_agree(name: str) -> None:
    distance = DISTANCES[name]
    x, y = pictures((4, 16, 12))
    whole = distance(x, y)
    assert whole.dtype == torch.float64 and whole.shape == (5,)
    assert distance(x[[3]], y[[3]]).tolist() == pytest.approx([float(whole[3])], abs=1e-12)
    assert distance(torch.from_numpy(x), torch.from_numpy(y)).tolist() == whole.tolist()
    assert distance(torch.from_numpy(x), y).tolist() == whole.tolist()
    assert distance(x[:, ::-1], y[:, ::-1]).tolist() == pytest.approx(whole.tolist(), abs=1e-12)


@every_case("name", DISTANCES)
@every_case(
    ("x", "y", "kind", "message"),
    [
        (np.zeros((1, 12, 12)), np.zeros((2, 12, 12)), SpaceError, "one shape"),
        (np.zeros((1, 12, 12)), np.zeros((1, 12, 12), np.float32), SpaceError, "dtype"),
        (np.zeros((1, 12, 12), int), np.zeros((1, 12, 12), int), SpaceError, "uint8 or floats"),
        ([[0.0]], [[0.0]], SpaceError, "got list"), (np.zeros((0, 12, 12)),) * 2 + (SpaceError, "at least one image"),
        (np.full((1, 12, 12), np.nan),) * 2 + (ValueRangeError, "finite"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(name: str, x: Any, y: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        DISTANCES[name](x, y)


def test_what_ssim_and_psnr_cannot_do() -> None:
    small, flat = np.zeros((1, 10, 40)), np.zeros((1, 40, 40, 40))
    with pytest.raises(SpaceError, match="11 x 11"):
        ssim(small, small)
    with pytest.raises(SpaceError, match="layout="):
        ssim(flat, flat)
    for distance in (ssim, psnr):
        with pytest.raises(ValueRangeError, match="limits"):
            distance(np.zeros((1, 12, 12)), np.zeros((1, 12, 12)), limits=(1, 0))
