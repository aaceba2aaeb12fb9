"""The figures of a measured resilience: what they draw, and the files that they write."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from adv_wrappers.rendering.frames import ATTACKED, rgb
from adv_wrappers.rendering.plots import (
    TrainingCurve,
    moving_mean,
    plot_histograms,
    plot_trainings,
)

STEPS = np.arange(1, 301) * 32
CURVE = TrainingCurve(STEPS, 490 - 80 / STEPS, np.where(STEPS > 4000, 5, 9))


def test_trainings_of_two_victims(tmp_path: Path) -> None:
    plot_trainings({"a": CURVE, "b": CURVE}, tmp_path / "p.png", "two victims", 100, 20)
    assert coloured(tmp_path / "p.png", ATTACKED)


def coloured(path: Path, colour: str) -> int:
    """Pixels of a colour."""
    image = cv2.imread(str(path))
    assert image is not None
    return int((image[..., ::-1] == np.array(rgb(colour), np.uint8)).all(-1).sum())


def test_every_victim_has_a_panel_on_the_same_axes(tmp_path: Path) -> None:
    def drawn(**counts: list[int]) -> int:
        plot_histograms({name: np.array(own) for name, own in counts.items()}, 10, tmp_path / "p.png", "t")
        return coloured(tmp_path / "p.png", ATTACKED)

    whole = drawn(a=[10, 10], b=[10, 10])
    assert drawn(a=[10, 10], b=[5, 5]) / whole == pytest.approx(3 / 4, abs=0.02)  # bars of one unit


def test_moving_means() -> None:
    values = np.array([2.0, 4.0, 9.0, 1.0])
    assert moving_mean(values, 2).tolist() == [2.0, 3.0, 6.5, 5.0]
    assert moving_mean(values, 100).tolist() == [2.0, 3.0, 5.0, 4.0]
    assert moving_mean(np.array([], np.int64), 3).tolist() == []
