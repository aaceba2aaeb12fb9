"""Figures: pixels stay whole, formats follow names, and the same figure is written as the same bytes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.pixels import ATTACKED, CLEAN, GRID, IDLE, INK, MUTED, rgb
from adv_wrappers.rendering.plots import PixelFigure, colour_mapped, format_of


def read(path):
    return cv2.imread(str(path))[..., ::-1]


def test_images_keep_their_pixels(tmp_path):
    rng = np.random.default_rng(0)
    for levels in (100, 1000):
        image = rng.integers(0, 256, (levels, 3), dtype=np.uint8)[rng.integers(0, levels, (40, 30))]
        figure = PixelFigure(90, 100)
        figure.image(7, 11, image, 2)
        figure.save(tmp_path / "figure.png")
        assert (read(tmp_path / "figure.png")[11:91, 7:67] == image.repeat(2, 0).repeat(2, 1)).all()
    assert (colour_mapped(np.array([[-5.0, 9.0]]), 0, 1, "gray") == [[[0] * 3, [255] * 3]]).all()


def test_formats_follow_names(tmp_path):
    assert [format_of(name) for name in ("a.PNG", "a.b.svg", "a.pdf")] == ["png", "svg", "pdf"]
    with pytest.raises(ValueRangeError, match=r"written as \.png, got"):
        PixelFigure(4, 4).save(tmp_path / "figure.svg")


def test_the_colours_are_those_that_matplotlib_reads():
    from matplotlib.colors import to_rgb

    colours = (INK, MUTED, GRID, CLEAN, ATTACKED, IDLE)
    assert [rgb(colour) for colour in colours] == [tuple(round(255 * x) for x in to_rgb(colour)) for colour in colours]
