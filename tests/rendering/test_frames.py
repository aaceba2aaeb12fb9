"""Frames as grey levels, and what changed between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.errors import SpaceError
from adv_wrappers.rendering.frames import (
    UNCHANGED,
    FrameReader,
    amplified_difference,
    enlarge,
    factor_for,
    is_image,
    largest_change,
    to_pixels,
)
from tests.every_case import every_case


def test_frames_of_a_stack_oldest_first():
    reader = FrameReader(spaces.Box(0, 255, (4, 8, 9), np.uint8))
    x = np.arange(4 * 8 * 9, dtype=np.uint16).astype(np.uint8).reshape(4, 8, 9)
    for observation in (x, torch.from_numpy(x)):
        frames = reader.levels(observation)
        assert len(frames) == 4 and all((frame == x[i][..., None]).all() for i, frame in enumerate(frames))


def test_floats_are_mapped_by_the_bounds_of_their_space():
    reader = FrameReader(spaces.Box(-1, 3, (8, 8), np.float32))
    (frame,) = reader.levels(np.full((8, 8), 0.0, np.float32))
    assert frame.shape == (8, 8, 3) and frame[0, 0, 0] == 255 / 4 and to_pixels(frame)[0, 0, 0] == 64


@every_case(
    ("space", "message"),
    [
        (spaces.Box(-1, 1, (9,)), "space of images"),
        (spaces.Box(0, 255, (4, 4), np.uint8), "too small"),
        (spaces.Box(-np.inf, np.inf, (9, 9)), "finite bounds"),
        (spaces.Discrete(3), "space of images"),
    ],
)
def test_what_is_no_image(space, message):
    assert not is_image(space)
    with pytest.raises(SpaceError, match=message):
        FrameReader(space)


def test_the_difference_is_amplified_around_grey():
    true = np.full((2, 2, 3), 250, np.uint8)
    other = true.copy()
    other[0, 0] = 247
    other[1, 1] = 255
    picture = amplified_difference(true, other, 10)
    assert (picture[0, 0] == UNCHANGED - 30).all() and (picture[1, 1] == UNCHANGED + 50).all()
    assert (picture[0, 1] == UNCHANGED).all() and largest_change(true, other) == 5
    assert amplified_difference(true, other, 100)[0, 0, 0] == 0  # clipped


def test_pixels_become_squares():
    image = np.zeros((30, 20, 3), np.uint8)
    assert [factor_for(image, size) for size in (1, 30, 31, 90)] == [1, 1, 2, 3]
    assert enlarge(image, 3).shape == (90, 60, 3)
