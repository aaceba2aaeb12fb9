"""Observations of any space are cut into parts that one budget can hold each, with ranges of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SpaceError
from adv_wrappers.studies.report.observation_ranges import ObservationRanges, observed_ranges, parts_of
from tests.every_case import every_case
from tests.studies.report.planted import agent_for, showing

VECTOR, GOAL = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
IMAGE, ROOM = spaces.Box(0, 255, (6, 6, 3), np.uint8), spaces.Discrete(4)


def ranges(space: Any) -> ObservationRanges:
    agent = agent_for(space)
    return observed_ranges(agent, Environment.of(lambda: showing(space), agent), [1, 2, 3])


@every_case(
    ("space", "parts"),
    [
        (VECTOR, [None]),
        (spaces.Box(-1, 1, (), np.float32), [None]),
        (ROOM, [None]),
        (spaces.MultiDiscrete([3, 4]), [None]),
        (spaces.MultiBinary(3), [None]),
        (spaces.Dict(goal=GOAL, observation=VECTOR), [("goal", "observation")]),
        (spaces.Dict(image=IMAGE, room=ROOM, vector=VECTOR), ["vector", "image", "room"]),
        (spaces.Dict(left=IMAGE, right=IMAGE), ["left", "right"]),
        (spaces.Dict(a=VECTOR, b=spaces.Box(-1, 1, (5,), np.float64)), ["b", "a"]),
        (spaces.Dict(count=spaces.Box(0, 9, (4,), np.int64), speed=spaces.Box(-1, 1, ())), ["speed", "count"]),
        (spaces.Dict([("inner", spaces.Dict(a=VECTOR, room=ROOM)), ("b", GOAL)]), [("inner/a", "b"), "inner/room"]),
        (spaces.Tuple([VECTOR, ROOM, spaces.Tuple([GOAL, ROOM])]), [(0, "2/0"), (1, "2/1")]),
        (spaces.Dict(bits=spaces.MultiBinary(2), room=ROOM), ["bits", "room"]),
    ],
)
def test_the_parts_of_a_space(space: Any, parts: list[Any]) -> None:
    found, unfit = parts_of(space)
    assert [field.at for field in found] == parts and not unfit


def test_what_cannot_be_changed_is_said() -> None:
    found, unfit = parts_of(spaces.Dict(flag=spaces.Box(0, 1, (2,), bool), name=spaces.Text(5), vector=VECTOR))
    assert [field.at for field in found] == ["vector"]
    assert len(unfit) == 2 and "bool" in unfit[0] and "Text" in unfit[1]
    with pytest.raises(SpaceError, match="needs observations that an attack can change"):
        parts_of(spaces.Dict(name=spaces.Text(5)))


def test_each_part_has_its_names_and_ranges() -> None:
    space = spaces.Dict(goal=spaces.Box(0, 1, ()), image=IMAGE, room=ROOM, vector=spaces.Box(-5, 5, (2,), np.float32))
    found = ranges(space)
    assert found.at == ("goal", "vector") and found.names == ("goal", "vector 0", "vector 1")
    assert found.scale is not None and found.scale[0] <= 1 < found.scale[1] <= 10
    image, room = found.others
    assert image.image and image.whole and image.levels == 255 and image.scale is None
    assert room.choices == (4,) and room.scale is None


def test_of_integers_the_least_eps_is_one_of_the_widest() -> None:
    space = spaces.Box(np.array([0, 0]), np.array([1, 8]), dtype=np.int64)
    found = ranges(space)
    assert found.scale is not None
    assert 1 <= found.least_eps * max(found.scale) < 1 + 1e-6
