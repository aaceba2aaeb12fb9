"""Figures of lines with bands: one look for one label, and no formulas in names."""

from __future__ import annotations

import math
from pathlib import Path

import cv2
import numpy as np

from adv_wrappers.rendering.frames import rgb
from adv_wrappers.rendering.plots import BandedLine, LinesPanel, plot_lines

FIRST, SECOND = "#0072b2", "#d55e00"
RISING = BandedLine(
    "noise", [0.0, 0.1, 0.2], [1.0, 2.0, 3.0], [0.5, 1.0, math.nan], [1.5, 3.0, math.nan], [False, True]
)


def has_colour(path: Path, colour: str) -> bool:
    image = cv2.imread(str(path))
    assert image is not None
    return bool((image[..., ::-1] == np.array(rgb(colour), np.uint8)).all(-1).any())


def test_lines_of_one_label_have_one_colour_in_all_panels(tmp_path: Path) -> None:
    panels = [LinesPanel("a", [RISING]), LinesPanel("b", [RISING]), LinesPanel("c", []), LinesPanel("d", [RISING])]
    plot_lines(panels, tmp_path / "p.png", "title", ("eps", "return"), steps=True)
    assert has_colour(tmp_path / "p.png", FIRST) and not has_colour(tmp_path / "p.png", SECOND)


def test_names_are_no_formulas_and_may_be_long(tmp_path: Path) -> None:
    lines = [BandedLine(f"${i} \\frac{{$ " + "word " * 30, [0.0], [1.0], [1.0], [1.0]) for i in range(8)]
    plot_lines([LinesPanel("$\\bad", [*lines, RISING])], tmp_path / "p.svg", "$y_", ("eps", "return"), ["100 $"])
    assert "<!-- $0 \\frac{$ word" in (tmp_path / "p.svg").read_text()  # as it stands, and in lines
