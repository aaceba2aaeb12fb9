"""Ranges of parameters: what is drawn, row by row, and what is refused."""

from __future__ import annotations

import types
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from adv_wrappers.core import rng
from adv_wrappers.daylight import JPEG, Brightness, MedianBlur, Perspective, Rotation, Shift
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.daylight.helpers import FIXED, RANGED, at_step, pictures
from tests.every_case import every_case


def test_draws_are_in_the_range_and_reach_its_ends():
    rows = Shift((-2, 2), (0, 3)).draw(at_step(400))
    assert Counter(row["dx"] for row in rows).keys() == {-2, -1, 0, 1, 2}
    assert Counter(row["dy"] for row in rows).keys() == {0, 1, 2, 3}
    assert len({(row["dx"], row["dy"]) for row in rows}) == 20  # independent of each other
    counts = Counter(row["k"] for row in MedianBlur((3, 7)).draw(at_step(600)))
    assert counts.keys() == {3, 5, 7} and min(counts.values()) > 150
    drawn = np.array([row["degrees"] for row in Rotation((-5, 5)).draw(at_step(400))])
    assert -5 <= drawn.min() < -4.9 and 4.9 < drawn.max() < 5 and abs(drawn.mean()) < 0.5
    assert {row["alpha"] for row in Brightness(1.5, (0, 9)).draw(at_step(5))} == {1.5}
    assert Brightness(1.5, 9).draw(at_step(5)) is None
    assert {row["quality"] for row in JPEG((30, 30)).draw(at_step(5))} == {30}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", RANGED)
def test_every_row_gets_its_own(name):
    how = RANGED[name]
    x = pictures(7, 16, 20, 3)
    y, rows = how(x, at_step(7)), how.draw(at_step(7))
    for i, row in enumerate(rows):
        assert torch.equal(y[i], how.change(x[i : i + 1], "HWC", None, **row)[0])
    assert torch.equal(how(x[2:3], types.SimpleNamespace(episode_key=rng.fold(torch.arange(2, 3), 0))), y[2:3])
    floats = x.float() / 255 * 4 - 1
    z = how(floats, at_step(7, low=-1, high=3))
    for i, row in enumerate(rows):
        assert torch.equal(z[i], how.change(floats[i : i + 1], "HWC", (-1.0, 3.0), **row)[0])


def test_an_ambiguous_shape_with_its_layout():
    """As many frames as rows: what cannot be inferred is given, and every transform then knows."""
    x = pictures(2, 9, 9, 9)
    for name, (how, _) in FIXED.items():
        with pytest.raises(SpaceError, match="layout"):
            how(x, at_step(2))
        y = replace(how, layout="FHW")(x, at_step(2))
        frames = replace(how, layout="HW")(x.flatten(0, 1), at_step(18))
        assert torch.equal(y.flatten(0, 1), frames), name


@every_case(("make", "message"), [
    (lambda: Rotation((5, -5)), r"degrees .*\(5, -5\)"), (lambda: Rotation((1, 2, 3)), r"degrees .*\(1, 2, 3\)"),
    (lambda: Rotation((float("nan"), 1)), "degrees .*nan"), (lambda: Rotation(()), r"degrees .*\(\)"),
    (lambda: Rotation(("a", 1)), "degrees .*'a'"), (lambda: Rotation((0, "b")), "degrees .*'b'"),
    (lambda: Rotation((0, float("inf"))), "degrees .*inf"), (lambda: Brightness((1, 2), (3, 1)), r"beta .*\(3, 1\)"),
    (lambda: MedianBlur((3, 6)), "k must be .*6"), (lambda: MedianBlur((2, 7)), "k must be .*2"),
    (lambda: Shift((0, 0.5)), "dx must be .*0.5"), (lambda: JPEG((0, 50)), "quality must be .*0"),
    (lambda: Perspective((-1, 1)), "distance must be .*-1"), (lambda: Rotation(3, per="day"), "per must be .*'day'"),
    (lambda: Rotation(None), "degrees .*None"),
])  # fmt: skip
def test_wrong_ranges(make, message):
    with pytest.raises(ValueRangeError, match=message):
        make()


def test_lists_are_ranges():
    assert Rotation([-5, 5]) == Rotation((-5, 5)) and hash(Rotation([-5, 5])) == hash(Rotation((-5, 5)))
