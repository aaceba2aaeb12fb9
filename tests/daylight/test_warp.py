"""Warps: the two backends, the borders, and floats against the grid."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from adv_wrappers.daylight.warp import BORDERS, INTERPOLATIONS, affine_map, border_index, perspective_map, warp
from tests.daylight.helpers import force_torch, pictures
from tests.every_case import every_case

FLAGS = {
    "replicate": cv2.BORDER_REPLICATE, "zero": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
}  # fmt: skip
SIZES = [(1, 1), (2, 7), (5, 3), (21, 34), (84, 84)]


def random_maps(size, interpolation, count=8):
    """Maps of transforms of all kinds: turned, stretched, mirrored, seen from far off the middle, and degenerate."""
    rng = np.random.default_rng(1)
    for i in range(count):
        affine = rng.normal(0, 1.5 ** (i - 4), 6) * [1, 1, 20, 1, 1, 20]
        yield affine_map(tuple(affine), *size, interpolation)
        projective = np.eye(3).ravel() + rng.normal(0, 1, 9) * [0.5, 0.5, 9, 0.5, 0.5, 9, 0.02, 0.02, 0.2]
        yield perspective_map(tuple(projective), *size, interpolation)
    yield affine_map((0.0,) * 6, *size, interpolation)
    yield affine_map((1.0, 0.0, 1e5, 0.0, 1.0, -1e5), *size, interpolation)
    yield perspective_map((1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, -1.0), *size, interpolation)  # a pole in column 1


@every_case("border", BORDERS)
@every_case("size", [1, 2, 3, 7])
def test_border_index_is_opencvs(size, border):
    where = np.arange(-40, 41)
    expected = [cv2.borderInterpolate(int(i), size, FLAGS[border]) for i in where]
    if border == "zero":
        expected = [min(max(int(i), 0), size - 1) for i in where]
    assert border_index(where, size, border).tolist() == expected
    assert border_index(torch.from_numpy(where), size, border).tolist() == expected


@pytest.mark.parametrize(("border", "interpolation"), [*zip(BORDERS, 2 * INTERPOLATIONS, strict=True)])
def test_the_backends_agree_on_any_map(monkeypatch, border, interpolation):
    for size in SIZES:
        x = pictures(2, *size, 3)
        maps = list(random_maps(size, interpolation))
        expected = [warp(x, at, border, interpolation) for at in maps]
        with monkeypatch.context() as forced:
            force_torch(forced)
            for at, y in zip(maps, expected, strict=True):
                assert torch.equal(warp(x, at, border, interpolation), y)


@every_case("border", BORDERS)
def test_nearest_only_moves_values(border):
    x = pictures(1, 21, 34, 1) // 2 * 2 + 2
    known = {*x.unique().tolist(), *([0] if border == "zero" else [])}
    for at in random_maps((21, 34), "nearest"):
        assert set(warp(x, at, border, "nearest").unique().tolist()) <= known
        assert (at[1] == 0).all()


@pytest.mark.parametrize(("border", "interpolation"), [*zip(BORDERS, 2 * INTERPOLATIONS, strict=True)])
def test_floats_are_the_same_before_rounding(border, interpolation):
    for size in SIZES[:-1]:
        x = pictures(2, *size, 4)
        for at in random_maps(size, interpolation):
            grid = warp(x, at, border, interpolation).double()
            y = warp(x.double(), at, border, interpolation)
            assert torch.equal((y + 0.5).floor(), grid)
            moved = warp(x.double() / 256 * 3 - 2, at, border, interpolation, dark=-2.0)
            assert torch.equal(moved, y / 256 * 3 - 2)
            single = warp(x.float() / 255, at, border, interpolation)
            assert single.dtype == torch.float32
            torch.testing.assert_close(single.double(), y / 255, atol=1e-6, rtol=0)


def test_values_in_between():
    """A quarter of a pixel to the right and half a pixel down, by hand."""
    x = torch.tensor([[10, 20], [30, 50]], dtype=torch.uint8).view(1, 2, 2, 1)
    at = affine_map((1.0, 0.0, 0.25, 0.0, 1.0, 0.5), 2, 2, "bilinear")
    assert at[0][0, 0].tolist() == [-1, -1] and at[1][0, 0] == 16 * 32 + 24
    expected = {
        "replicate": [[10, 18], [20, 31]],  # 10, 17.5; (10 + 30) / 2, (17.5 + 45) / 2 = 31.25
        "zero": [[4, 9], [15, 31]],  # 10 * 3/8 = 3.75, 17.5 / 2; 20 * 3/4, 31.25
    }
    for border, values in expected.items():
        assert warp(x, at, border, "bilinear")[0, ..., 0].tolist() == values


def test_maps_are_computed_once():
    one, other = (affine_map((1.0, 0.0, 0.5, 0.0, 1.0, 0.5), 9, 8, "bilinear") for _ in range(2))
    assert one is other
