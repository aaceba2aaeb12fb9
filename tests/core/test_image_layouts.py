"""Layouts: what is inferred, and what is refused."""

from __future__ import annotations

import pytest

from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.errors import SpaceError
from tests.every_case import every_case


@every_case(("shape", "layout"), [
    ((84, 84), "HW"), ((3, 3), "HW"), ((4, 84, 84), "FHW"), ((84, 84, 4), "HWF"), ((3, 84, 84), "CHW"),
    ((84, 84, 3), "HWC"), ((84, 84, 1), "HWF"), ((1, 84, 84), "FHW"), ((210, 160, 3), "HWC"), ((210, 160, 12), "HWF"),
    ((4, 210, 160, 3), "FHWC"), ((4, 84, 84, 1), "FHWC"), ((4, 3, 210, 160), "FCHW"), ((3, 1, 84, 84), "FCHW"),
])  # fmt: skip
def test_inferred(shape, layout):
    assert layout_of(shape) == layout


@every_case("shape", [
    (), (84,), (84, 84, 84), (4, 84, 4), (3, 3, 3), (3, 84, 3), (4, 84, 84, 4), (3, 3, 84, 3), (4, 1, 84, 3),
    (4, 5, 84, 84), (1, 4, 84, 84, 3),
])  # fmt: skip
def test_ambiguous_shapes_ask_for_a_layout(shape):
    with pytest.raises(SpaceError, match="give layout="):
        layout_of(shape)


def test_a_given_layout_is_checked():
    assert layout_of((84, 84, 84), "HWF") == "HWF"
    assert layout_of((3, 84, 84), "FHW") == "FHW"
    with pytest.raises(SpaceError, match="layout must be 'HW', 'HWC'"):
        layout_of((4, 4), "WH")
    with pytest.raises(SpaceError, match="names 2 axes"):
        layout_of((4, 84, 84), "HW")
    with pytest.raises(SpaceError, match="4 colours"):
        layout_of((4, 84, 84), "CHW")
    for shape in ((0, 4), (4, 0, 3)):
        with pytest.raises(SpaceError, match="at least one pixel"):
            layout_of(shape)
