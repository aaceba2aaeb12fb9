"""Figures: pixels stay whole, formats follow names, and the same figure is written as the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.frames import ATTACKED, CLEAN, GRID, IDLE, INK, MUTED, rgb
from adv_wrappers.rendering.plots import format_of, new_figure, save_figure, show_image


def test_images_keep_their_pixels_and_have_nothing_around_them():
    image = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    axes = new_figure(3, 3, 100).add_subplot()
    assert (show_image(axes, image).get_array() == image).all() and len(axes.get_xticks()) == 0
    assert not any(spine.get_visible() for spine in axes.spines.values())


def test_formats_follow_names(tmp_path):
    assert [format_of(name) for name in ("a.PNG", "a.b.svg", "a.pdf")] == ["png", "svg", "pdf"]
    with pytest.raises(ValueRangeError, match=r"written as \.png, \.svg or \.pdf, got"):
        save_figure(new_figure(1, 1, 100), tmp_path / "figure.gif")


def test_the_colours_are_those_that_matplotlib_reads():
    from matplotlib.colors import to_rgb

    colours = (INK, MUTED, GRID, CLEAN, ATTACKED, IDLE)
    assert [rgb(colour) for colour in colours] == [tuple(round(255 * x) for x in to_rgb(colour)) for colour in colours]
