"""Median blur: both backends against OpenCV and a median written out."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from adv_wrappers.daylight import MedianBlur, median_blur
from adv_wrappers.errors import ValueRangeError
from tests.every_case import every_case

SIZES = [(1, 1), (1, 6), (2, 3), (3, 3), (7, 5), (16, 33), (33, 40)]


def pictures(*shape: int) -> torch.Tensor:
    """Noise, and the same with few levels, so that there are ties."""
    noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    noise[1:] //= 64
    return torch.from_numpy(noise)


def slow(x: torch.Tensor, k: int) -> np.ndarray:
    """The definition, on ``[N, H, W, K]``."""
    pad = k // 2
    padded = np.pad(x.numpy(), ((0, 0), (pad, pad), (pad, pad), (0, 0)), "edge")
    near = np.lib.stride_tricks.sliding_window_view(padded, (k, k), (1, 2))
    return np.median(near, axis=(-2, -1)).astype(x.numpy().dtype)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("size", "k"), [*zip(SIZES, [3, 5, 7, 3, 5, 7, 3], strict=True)])
def test_equal_to_opencv_and_to_the_definition(size, k):
    for channels in (1, 2, 3, 4, 5, 12):
        x = pictures(3, *size, channels)
        y = median_blur(x, k, layout="HWF").numpy()
        np.testing.assert_array_equal(y, slow(x, k), f"{channels} channels")
        if channels in (1, 3, 4):
            expected = [cv2.medianBlur(image, k).reshape(image.shape) for image in x.numpy()]
            np.testing.assert_array_equal(y, np.stack(expected), f"{channels} channels")


@pytest.mark.parametrize("k", [3, 5, 7])
def test_floats_have_the_same_median(k):
    x = pictures(2, 9, 11, 4)
    for dtype in (torch.float32, torch.float64):
        levels = torch.arange(256, dtype=dtype) / 255 * 3 - 1
        assert torch.equal(median_blur(levels[x.long()], k), levels[median_blur(x, k).long()])


@pytest.mark.parametrize("k", [3, 5])
def test_the_batch_is_cut_where_memory_says(monkeypatch, k):
    x = pictures(7, 6, 5, 2)
    whole = median_blur(x, k, layout="HWF")
    monkeypatch.setitem(median_blur.__globals__, "_AT_ONCE", 3 * 6 * 5 * 2 * k * k)
    assert torch.equal(median_blur(x, k, layout="HWF"), whole)
    monkeypatch.setitem(median_blur.__globals__, "_AT_ONCE", 1)
    assert torch.equal(median_blur(x, k, layout="HWF"), whole)


@every_case("wrong", [1, 2, 4, 6, 9, 3.5, True, "3", None, -3])
def test_wrong_sizes(wrong):
    with pytest.raises(ValueRangeError, match="k must be"):
        median_blur(pictures(2, 4, 4), wrong)
    with pytest.raises(ValueRangeError, match="k must be"):
        MedianBlur(wrong)
