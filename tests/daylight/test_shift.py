"""Shift: equal to OpenCV's warp by a whole translation, at every border."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from adv_wrappers.daylight import Shift, shift
from adv_wrappers.daylight.warp import BORDERS
from adv_wrappers.errors import ValueRangeError
from tests.daylight.helpers import pictures
from tests.every_case import every_case

FLAGS = {
    "replicate": cv2.BORDER_REPLICATE, "zero": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
}  # fmt: skip
SIZES = [(1, 1), (1, 5), (4, 1), (2, 3), (7, 5), (16, 33)]
PADS = {"replicate": "edge", "zero": "constant", "reflect": "reflect", "wrap": "wrap"}
MOVES = [(0, 0), (1, 0), (0, 1), (2, 1), (-1, -2), (3, -4), (-5, 6), (7, 0), (0, -9), (40, -23), (-101, 57)]


@every_case("border", BORDERS)
@every_case("size", SIZES)
def test_equal_to_opencv(size, border):
    x = pictures(2, *size, 3)
    for dx, dy in MOVES:
        matrix = np.array([[1, 0, dx], [0, 1, dy]], np.float64)
        flags = {"flags": cv2.INTER_NEAREST, "borderMode": FLAGS[border]}
        expected = [cv2.warpAffine(image, matrix, size[::-1], **flags) for image in x.numpy()]
        y = shift(x, dx, dy, border=border, layout="HWC").numpy()
        np.testing.assert_array_equal(y, np.stack(expected), f"{dx} {dy}")


@every_case("border", BORDERS)
@every_case("size", SIZES)
def test_equal_to_numpy_of_floats(size, border):
    height, width = size
    x = pictures(1, *size).double() / 255 * 4 - 1
    more = {"constant_values": -1.0} if border == "zero" else {}
    far = 110
    padded = np.pad(x[0].numpy(), far, PADS[border], **more)
    for dx, dy in MOVES:
        y = shift(x, dx, dy, border=border, limits=(-1, 3))[0].numpy()
        np.testing.assert_array_equal(y, padded[far - dy :, far - dx :][:height, :width], f"{dx} {dy}")


@every_case("border", BORDERS)
@every_case("frames", [1, 2, 3, 4, 5, 8])
def test_stacks_move_frame_by_frame_wherever_they_lie(frames, border):
    """Also where the batch begins amid other memory, and where it is no piece of memory at all."""
    memory = pictures(3 + 2 * 9 * 7 * frames)
    for start in range(4):
        x = memory[start : start + 2 * 9 * 7 * frames].view(2, 9, 7, frames)
        for dx, dy in ((2, 1), (-3, 0), (0, -4), (-6, 8)):
            single = [shift(x[..., i], dx, dy, border=border, layout="HW") for i in range(frames)]
            assert torch.equal(shift(x, dx, dy, border=border, layout="HWF"), torch.stack(single, -1))
            flipped = shift(x.flip(0).transpose(1, 2), dy, dx, border=border, layout="HWF")
            assert torch.equal(flipped.transpose(1, 2).flip(0), torch.stack(single, -1))


def test_right_is_right_and_down_is_down():
    x = torch.zeros(1, 4, 5, dtype=torch.uint8)
    x[0, 1, 1] = 9
    assert shift(x, 2, 1, border="zero").nonzero().tolist() == [[0, 2, 3]]
    assert shift(x, -1, -1, border="zero").nonzero().tolist() == [[0, 0, 0]]


def test_wrapping_loses_nothing():
    x = pictures(2, 7, 5)
    assert torch.equal(shift(shift(x, 3, -2, border="wrap"), -3, 2, border="wrap"), x)
    assert torch.equal(shift(x, 5 * 4, 7 * -3, border="wrap"), x)


def test_the_darkest_value_enters():
    x = torch.ones(1, 2, 3)
    assert shift(x, 1, border="zero", limits=(-2, 1)).tolist() == [[[-2, 1, 1], [-2, 1, 1]]]
    assert shift(x, 1, border="zero").tolist() == [[[0, 1, 1], [0, 1, 1]]]
    assert shift(x, 32767, -32767, border="zero").abs().sum() == 0


@every_case("wrong", [
    {"dx": 0.5}, {"dy": 0.5}, {"dx": True}, {"dy": "1"}, {"dx": 32768}, {"dy": -32768}, {"border": "edge"},
    {"border": None},
])  # fmt: skip
def test_wrong_parameters(wrong):
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        shift(pictures(1, 4, 4), **wrong)
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        Shift(**wrong)


@pytest.mark.parametrize("border", ["replicate", "zero"])
@pytest.mark.parametrize("move", [40, -40])
def test_strips_of_any_size(border, move):
    """Wide ones of many pictures are not written line by line."""
    x = pictures(8, 64, 100)
    single = [shift(one[None], move, move // 2, border=border)[0] for one in x]
    assert torch.equal(shift(x, move, move // 2, border=border), torch.stack(single))
    padded = np.pad(x.numpy(), ((0, 0), (40, 40), (40, 40)), PADS[border])
    expected = padded[:, 40 - move // 2 :, 40 - move :][:, :64, :100]
    np.testing.assert_array_equal(shift(x, move, move // 2, border=border).numpy(), expected)
