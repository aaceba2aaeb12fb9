"""Frozen dataclasses that normalise what they were given."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from adv_wrappers.utils.frozen import set_fields


@dataclass(frozen=True)
class Point:
    place: tuple[int, ...]

    def __post_init__(self):
        set_fields(self, place=tuple(self.place))


def test_a_field_is_put_and_the_value_is_frozen_from_then_on():
    point = Point([1, 2])
    assert point == Point((1, 2)) and hash(point) == hash(Point((1, 2)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.place = ()
