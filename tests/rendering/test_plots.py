"""Figures: pixels stay whole, formats follow names, and the same figure is written as the same bytes."""

from __future__ import annotations

import numpy as np

from adv_wrappers.rendering.frames import ATTACKED, CLEAN, GRID, IDLE, INK, MUTED, rgb
from adv_wrappers.rendering.plots import new_figure, show_image


def test_images_keep_their_pixels_and_have_nothing_around_them():
    image = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    axes = new_figure(3, 3, 100).add_subplot()
    assert (show_image(axes, image).get_array() == image).all() and len(axes.get_xticks()) == 0
    assert not any(spine.get_visible() for spine in axes.spines.values())


def test_the_colours_are_those_that_matplotlib_reads():
    from matplotlib.colors import to_rgb

    colours = (INK, MUTED, GRID, CLEAN, ATTACKED, IDLE)
    assert [rgb(colour) for colour in colours] == [tuple(round(255 * x) for x in to_rgb(colour)) for colour in colours]
