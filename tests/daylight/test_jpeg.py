"""JPEG: pictures against OpenCV called here, to the bit; layouts, floats, ranges and errors."""

from __future__ import annotations

import types

import cv2
import numpy as np
import pytest
import torch

from adv_wrappers.core import rng
from adv_wrappers.daylight.jpeg import JPEG, jpeg
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.daylight.helpers import force_torch
from tests.every_case import every_case

SUBSAMPLINGS = ("4:2:0", "4:2:2", "4:4:4")
SIZES = [(1, 1), (2, 4), (7, 5), (8, 8), (15, 16), (16, 16), (17, 33), (40, 3), (83, 85)]


def pictures(height: int, width: int, colours: int, seed: int = 0) -> np.ndarray:
    """uint8 ``[5, H, W, K]``: noise, only extremes, flat, boxes with sharp edges, gradients with a little noise."""
    rng, shape = np.random.default_rng(seed), (height, width, colours)
    boxes = rng.integers(0, 256, (-(-height // 5), -(-width // 3), colours)).repeat(5, 0).repeat(3, 1)[:height, :width]
    rows, columns = np.ogrid[:height, :width]
    ramps = (rows * 3 + columns)[..., None] // 2 + np.arange(colours) * 70 + rng.integers(0, 6, shape)
    flat = np.broadcast_to(rng.integers(0, 256, (1, 1, colours)), shape)
    noise, extremes = rng.integers(0, 256, shape), rng.integers(0, 2, shape) * 255
    return np.stack([noise, extremes, flat, boxes, ramps % 256]).astype("u1")


def opencv(image: np.ndarray, quality: int, subsampling: str = "4:2:0") -> np.ndarray:
    """What OpenCV makes of a BGR or grey image ``[H, W, K]``."""
    factor = getattr(cv2, "IMWRITE_JPEG_SAMPLING_FACTOR_" + subsampling.replace(":", ""))
    settings = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
    data = cv2.imencode(".jpg", image, settings if image.shape[2] == 3 else settings[:2])[1]
    return cv2.imdecode(data, cv2.IMREAD_UNCHANGED).reshape(image.shape)


def assert_exact(images: np.ndarray, quality: int, subsampling: str = "4:2:0") -> None:
    expected = np.stack([opencv(image, quality, subsampling) for image in images])
    layout = "HWC" if images.shape[-1] == 3 else "HWF"
    ours = jpeg(torch.from_numpy(images), quality, subsampling=subsampling, order="BGR", layout=layout).numpy()
    np.testing.assert_array_equal(ours, expected, f"quality {quality}")


@every_case("size", SIZES)
def test_pictures_are_opencvs(size):
    for quality in (1, 13, 50, 92, 100):
        assert_exact(pictures(*size, 1, seed=1), quality)
        for subsampling in SUBSAMPLINGS:
            assert_exact(pictures(*size, 3, seed=1), quality, subsampling)
    assert jpeg(torch.zeros(0, *size, 3, dtype=torch.uint8), layout="HWC").shape == (0, *size, 3)


@pytest.fixture(params=["opencv", "torch"])
def backend(request, monkeypatch):
    if request.param == "torch":
        force_torch(monkeypatch)


@pytest.mark.usefixtures("backend")
def test_frames_are_pictures_and_colours_are_not():
    stack = torch.from_numpy(pictures(20, 24, 3)[:4])  # one observation of four RGB frames, F H W C
    single = torch.stack([jpeg(frame, layout="HWC") for frame in stack])
    assert torch.equal(jpeg(stack, layout="HWC"), single)
    assert torch.equal(jpeg(stack, layout="FHWC"), single)
    for layout in ("FCHW", "CHW"):  # four frames, or a batch of four pictures
        assert torch.equal(jpeg(stack.movedim(-1, 1), layout=layout), single.movedim(-1, 1))
    grey = torch.stack([jpeg(stack[..., i], layout="HW") for i in range(3)], -1)  # the same numbers as grey frames
    assert torch.equal(jpeg(stack, layout="HWF"), grey)
    assert torch.equal(jpeg(stack.movedim(-1, 1), layout="FHW"), grey.movedim(-1, 1))
    assert torch.equal(jpeg(stack[..., :1], layout="HWC"), grey[..., :1])
    assert not torch.equal(grey, single)


@pytest.mark.usefixtures("backend")
def test_the_order_of_the_colours():
    bgr = pictures(33, 18, 3)
    expected = torch.from_numpy(np.stack([opencv(image, 30) for image in bgr]))
    kept = bgr.copy()
    x = torch.from_numpy(bgr)
    assert torch.equal(jpeg(x, order="BGR"), expected)
    assert torch.equal(jpeg(x.flip(-1)), expected.flip(-1))
    assert not torch.equal(jpeg(x), expected)
    assert np.array_equal(bgr, kept)


@every_case("dtype", [torch.float16, torch.float32, torch.float64])
@every_case("limits", [None, (0, 255), (-1, 1)])
def test_floats_go_by_their_grey_levels(dtype, limits):
    levels = torch.from_numpy(pictures(16, 24, 3))
    low, high = limits or (0, 1)
    x = (levels.double() / 255 * (high - low) + low).to(dtype)
    y = jpeg(x, 40, limits=limits)
    assert y.dtype == dtype and y.min() >= low and y.max() <= high
    back = ((y.double() - low) / (high - low) * 255).round().to(torch.uint8)
    assert torch.equal(back, jpeg(levels, 40))


def test_floats_are_rounded_half_to_even_and_clipped():
    x = torch.tensor([[0.5, 1.5, 2.5, -7.0, 300.0, 77.4]]).repeat(8, 1)
    whole = torch.tensor([[0, 2, 2, 0, 255, 77]], dtype=torch.uint8).repeat(8, 1)
    y = jpeg(x, 95, layout="HW", limits=(0, 255))
    assert torch.equal(y, jpeg(whole, 95, layout="HW").float())


def at_step(batch: int, episode: int, t: int) -> types.SimpleNamespace:
    key = rng.fold(torch.arange(batch), episode)
    return types.SimpleNamespace(episode_key=key, key=rng.fold(key, t), space=(torch.zeros(1), torch.ones(1)))


def test_the_perturbation_passes_everything_on():
    x = torch.from_numpy(pictures(17, 18, 3))
    layer = JPEG(55, "4:4:4", "BGR")
    assert torch.equal(layer(x, at_step(5, 0, 0)), jpeg(x, 55, subsampling="4:4:4", order="BGR"))
    floats = x.float() / 255
    assert torch.equal(layer(floats, at_step(5, 0, 0)), jpeg(floats, 55, subsampling="4:4:4", order="BGR"))
    assert layer.name == "jpeg" and JPEG().quality == 30


@every_case("wrong", [
    {"quality": 0}, {"quality": 101}, {"quality": 30.5}, {"quality": True}, {"subsampling": "4:1:1"},
    {"subsampling": 420}, {"order": "rgb"}, {"order": None},
])  # fmt: skip
def test_wrong_parameters(wrong):
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        jpeg(torch.zeros(1, 8, 8, dtype=torch.uint8), **wrong)
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        JPEG(**wrong)


def test_wrong_ranges_and_shapes():
    for quality in ((0, 30), (30, 20), (1, 2, 3)):
        with pytest.raises(ValueRangeError, match="quality must be"):
            JPEG(quality)
    with pytest.raises(SpaceError, match="layout"):
        jpeg(torch.zeros(1, 8, dtype=torch.uint8))
    with pytest.raises(SpaceError, match="uint8 or float"):
        jpeg(torch.zeros(1, 8, 8, dtype=torch.int64))
    with pytest.raises(ValueRangeError, match="limits"):
        jpeg(torch.zeros(1, 8, 8), limits=(1, 0))
