"""Figures: pixels stay whole, formats follow names, and the same figure is written as the same bytes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.pixels import ATTACKED, CLEAN, GRID, IDLE, INK, MUTED, rgb
from adv_wrappers.rendering.plots import PixelFigure, colour_mapped, format_of, save_png


def read(path):
    return cv2.imread(str(path))[..., ::-1]


def test_images_keep_their_pixels_and_get_a_palette_where_they_can(tmp_path):
    rng = np.random.default_rng(0)
    for levels in (100, 1000):
        image = rng.integers(0, 256, (levels, 3), dtype=np.uint8)[rng.integers(0, levels, (40, 30))]
        figure = PixelFigure(90, 100)
        figure.image(7, 11, image, 2)
        figure.save(tmp_path / "figure.png")
        assert (read(tmp_path / "figure.png")[11:91, 7:67] == image.repeat(2, 0).repeat(2, 1)).all()
    image = np.repeat(np.arange(0, 250, dtype=np.uint8), 30).reshape(75, 100, 1).repeat(3, -1).copy()
    image[:10:2, 0, 2] += 1  # a few shades more than a palette holds
    image[:20:2, 99, 1] += 1
    figure = PixelFigure(100, 75)
    figure.image(0, 0, image)
    figure.save(tmp_path / "figure.png")
    shown = read(tmp_path / "figure.png")
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) <= 256 < len(np.unique(image.reshape(-1, 3), axis=0))
    assert np.abs(shown.astype(int) - image).max() == 1
    assert (colour_mapped(np.array([[-5.0, 9.0]]), 0, 1, "gray") == [[[0] * 3, [255] * 3]]).all()


def test_formats_follow_names(tmp_path):
    assert [format_of(name) for name in ("a.PNG", "a.b.svg", "a.pdf")] == ["png", "svg", "pdf"]
    with pytest.raises(ValueRangeError, match=r"written as \.png, got"):
        save_png(PixelFigure(4, 4).figure, tmp_path / "figure.svg")


def test_the_colours_are_those_that_matplotlib_reads():
    from matplotlib.colors import to_rgb

    colours = (INK, MUTED, GRID, CLEAN, ATTACKED, IDLE)
    assert [rgb(colour) for colour in colours] == [tuple(round(255 * x) for x in to_rgb(colour)) for colour in colours]
