"""Several transforms one after the other."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers.daylight import (
    JPEG,
    Brightness,
    Daylight,
    MedianBlur,
    Perspective,
    Rotation,
    Shift,
    brightness,
    compose,
    jpeg,
    median_blur,
    perspective,
    rotate,
    shift,
)
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.daylight.helpers import pictures
from tests.every_case import every_case

STEPS = (
    Brightness(1.7, 40, "abs"), Shift(2, -1, "wrap"), MedianBlur(5), Rotation(3, "zero"), JPEG(50),
    Perspective(2, "left", interpolation="nearest"),
)  # fmt: skip


def by_hand(x, layout, limits=None):
    k = {"layout": layout, "limits": limits}
    x = shift(brightness(x, 1.7, 40, rule="abs", limits=limits), 2, -1, border="wrap", **k)
    x = rotate(median_blur(x, 5, layout=layout), 3, border="zero", **k)
    return perspective(jpeg(x, 50, **k), 2, pattern="left", interpolation="nearest", **k)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_one_after_the_other(kind):
    x = pictures(2, 21, 34, 4)
    x, limits = (x, None) if kind == torch.uint8 else (x / 64 - 1, (-1.0, 3.0))
    kept = x.clone()
    y = compose(x, *STEPS, limits=limits)
    assert torch.equal(y, by_hand(x, "HWF", limits)) and y.dtype == kind and torch.equal(x, kept)
    assert torch.equal(compose(x[0], *STEPS, layout="HWF", limits=limits), y[0])


def test_floats_without_limits_lie_in_the_unit_range():
    x = pictures(2, 21, 34, 4) / 255
    assert torch.equal(compose(x, *STEPS), by_hand(x, "HWF"))


def test_layouts():
    """A step that names its layout keeps it; the others take the one given, or the first that any step names."""
    x = pictures(2, 3, 16, 16)
    turn = Rotation(30)
    expected = brightness(rotate(x, 30, layout="FHW"), 1.2, 9)
    assert torch.equal(compose(x, turn, Brightness(1.2, 9), layout="FHW"), expected)
    assert torch.equal(compose(x, Rotation(30, layout="FHW"), Brightness(1.2, 9)), expected)
    mixed = compose(x, Rotation(30, layout="FHW"), Shift(3, layout="HWF"))
    assert torch.equal(mixed, shift(rotate(x, 30, layout="FHW"), 3, layout="HWF"))
    with pytest.raises(SpaceError, match="layout HWC says"):
        compose(x, Rotation(30, layout="HWC"))
    with pytest.raises(SpaceError, match="cannot tell"):
        compose(pictures(2, 8, 8, 8), turn)


def test_a_game_of_the_paper_and_no_step():
    x = pictures(2, 21, 34)
    assert torch.equal(compose(x, Daylight("Pong", "shift"), Daylight("Pong", "rotation")), rotate(shift(x, 2, 1), 3))
    y = compose(x)
    assert torch.equal(y, x) and y is not x and y.data_ptr() != x.data_ptr()


@every_case(("step", "message"), [
    (Rotation((-5, 5)), r"^degrees must be a number outside episodes, got the range \(-5, 5\)"),
    (Brightness(1, (0, 9)), "^beta must be a number"),
    ("rotation", "^steps must be transforms such as Rotation.* got 'rotation'"),
    (Rotation, "^steps must be transforms"),
])  # fmt: skip
def test_what_cannot_be_composed(step, message):
    with pytest.raises(ValueRangeError, match=message):
        compose(pictures(1, 9, 8), Shift(1), step)


def test_floats_need_their_limits():
    with pytest.raises(ValueRangeError, match="give their limits="):
        compose(pictures(1, 9, 8) / 8, Shift(1))
    with pytest.raises(ValueRangeError, match=r"uint8 images have the limits"):
        compose(pictures(1, 9, 8), Shift(1), limits=(0, 1))
