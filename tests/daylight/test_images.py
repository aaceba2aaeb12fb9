"""Batches of images: every layout gives the same pictures."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers.core.image_layouts import LAYOUTS
from adv_wrappers.daylight import brightness, jpeg, median_blur, perspective, rotate, shift
from adv_wrappers.daylight.images import batched, limits_of, split
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.daylight.helpers import pictures
from tests.every_case import every_case

SHAPES = {
    "HW": (5, 7), "HWC": (5, 7, 3), "CHW": (3, 5, 7), "FHW": (4, 5, 7), "HWF": (5, 7, 4), "FHWC": (2, 5, 7, 3),
    "FCHW": (2, 3, 5, 7),
}  # fmt: skip
TRANSFORMS = {
    "brightness": lambda x, layout: brightness(x, 1.7, -40),
    "median-blur": lambda x, layout: median_blur(x, 5, layout=layout),
    "rotation": lambda x, layout: rotate(x, 17.5, layout=layout),
    "shift": lambda x, layout: shift(x, 3, -2, border="wrap", layout=layout),
    "perspective": lambda x, layout: perspective(x, 1.3, pattern="left", border="zero", layout=layout),
    "jpeg": lambda x, layout: jpeg(x, 40, layout=layout),
}


def test_a_single_image_needs_its_layout():
    x = pictures(4, 5)
    assert batched(x, "HW")[0].shape == (1, 4, 5) and batched(x, "HW")[2]
    assert torch.equal(rotate(x, 20, layout="HW"), rotate(x[None], 20)[0])
    with pytest.raises(SpaceError, match="layout"):
        rotate(x, 20)
    with pytest.raises(SpaceError, match="expected a tensor"):
        batched(x.numpy(), "HW")
    with pytest.raises(SpaceError, match="uint8 or float"):
        batched(x.int(), "HW")


@every_case("colours", [False, True])
@every_case("layout", LAYOUTS)
def test_split_and_back(layout, colours):
    x = pictures(6, *SHAPES[layout])
    images, back = split(x, layout, colours)
    assert images.shape[1:3] == (5, 7)
    assert images.shape[3] == (3 if "C" in layout else 1) if colours else images.shape[3] <= 4
    assert torch.equal(back(images), x)
    assert back(images).is_contiguous()
    assert torch.equal(back(images.flip(1)), x.flip(1 + layout.index("H")))
    assert torch.equal(back(images.flip(2)), x.flip(1 + layout.index("W")))
    if colours and "C" in layout:
        assert torch.equal(back(images.flip(3)), x.flip(1 + layout.index("C")))
    planes = {plane.numpy().tobytes() for plane in images.movedim(3, 1).reshape(-1, 5, 7)}
    names = [letter for letter in layout if letter not in "HW"]
    outer = x.permute(0, *(1 + layout.index(letter) for letter in [*names, "H", "W"])).reshape(-1, 5, 7)
    assert planes == {plane.numpy().tobytes() for plane in outer}


def test_more_channels_than_opencv_takes_are_pictures_of_their_own():
    x = pictures(2, 5, 7, 12)
    images, back = split(x, "HWF")
    assert images.shape == (24, 5, 7, 1)
    assert torch.equal(images[1, ..., 0], x[0, ..., 1])
    assert torch.equal(back(images), x)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_all_layouts_agree(transform):
    call = TRANSFORMS[transform]
    stack = pictures(2, 4, 19, 23)  # [B, F, H, W]: every frame by itself is the truth
    truth = torch.stack([torch.stack([call(frame, "HW") for frame in row]) for row in stack])
    assert not torch.equal(truth, stack)
    assert torch.equal(call(stack, "FHW"), truth)
    assert torch.equal(call(stack.movedim(1, -1), "HWF"), truth.movedim(1, -1))  # not contiguous
    assert torch.equal(call(stack.movedim(1, -1).contiguous(), "HWF"), truth.movedim(1, -1))
    assert torch.equal(call(stack[..., None], "FHWC"), truth[..., None])
    assert torch.equal(call(stack[:, :, None], "FCHW"), truth[:, :, None])
    assert torch.equal(call(stack[:, :1], "CHW"), truth[:, :1])
    assert torch.equal(call(stack[:, 0, ..., None], "HWC"), truth[:, 0, ..., None])

    coloured = pictures(2, 4, 19, 23, 3, seed=1)  # [B, F, H, W, C]
    truth = torch.stack([torch.stack([call(frame, "HWC") for frame in row]) for row in coloured])
    assert torch.equal(call(coloured, "FHWC"), truth)
    assert torch.equal(call(coloured.movedim(-1, 2), "FCHW"), truth.movedim(-1, 2))
    assert torch.equal(call(coloured[:, 0].movedim(-1, 1), "CHW"), truth[:, 0].movedim(-1, 1))
    assert torch.equal(call(coloured[:0], "FHWC"), truth[:0])


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_input_is_left_alone_and_not_handed_back(transform):
    for x in (pictures(2, 19, 23, 3), pictures(2, 4, 19, 23), pictures(2, 19, 23).float() / 255):
        kept, layout = x.clone(), {3: "HW", 4: "HWC" if x.shape[-1] == 3 else "FHW"}[x.dim()]
        y = TRANSFORMS[transform](x, layout)
        assert torch.equal(x, kept)
        assert y.data_ptr() != x.data_ptr() and y.shape == x.shape and y.dtype == x.dtype


@pytest.mark.usefixtures("backend")
def test_brightness_needs_no_layout():
    """It sees no rows and columns, so no shape is ambiguous."""
    x = pictures(2, 3, 8, 8, 3)
    y = brightness(x, 2.0, -9.0)
    assert torch.equal(brightness(x.view(2, -1, 3), 2.0, -9.0).view(x.shape), y)
    for part, expected in ((x[0, 0], y[0, 0]), (x[0, 0, 0, 0], y[0, 0, 0, 0]), (x[:, :0], y[:, :0])):
        assert torch.equal(brightness(part, 2.0, -9.0), expected)


def test_limits():
    assert limits_of(pictures(2, 2), None) == limits_of(pictures(2, 2), (0, 255)) == (0.0, 255.0)
    assert limits_of(torch.zeros(1), None) == (0.0, 1.0)
    assert limits_of(torch.zeros(1), (-1, 2)) == (-1.0, 2.0)
    with pytest.raises(ValueRangeError, match="uint8"):
        limits_of(pictures(2, 2), (0, 1))
    for wrong in ((1, 0), (0, 0), (0, float("inf")), (float("nan"), 1)):
        with pytest.raises(ValueRangeError, match="limits"):
            limits_of(torch.zeros(1), wrong)
