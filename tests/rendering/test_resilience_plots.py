"""The figures of a measured resilience: what they draw, and the files that they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.frames import ATTACKED, rgb
from adv_wrappers.rendering.plots import (
    TrainingCurve,
    moving_mean,
    plot_histograms,
    plot_trainings,
)
from tests.every_case import every_case

STEPS = np.arange(1, 301) * 32
CURVE = TrainingCurve(STEPS, 490 - 80 / STEPS, np.where(STEPS > 4000, 5, 9))
COUNTS = np.array([10, 9, 0, 3])
PLOTS: list[Callable[..., None]] = [
    lambda path: plot_trainings({"": CURVE}, path, "resilience of somebody", 100),
    lambda path: plot_histograms({"": COUNTS}, 10, path, "resilience of somebody"),
    lambda path: plot_trainings({"a": CURVE, "b": CURVE}, path, "two victims", 100, 20),
    lambda path: plot_histograms({"a": COUNTS, "b": COUNTS[:2]}, 10, path, "two victims"),
]


def test_trainings_of_two_victims(tmp_path: Path) -> None:
    PLOTS[2](tmp_path / "p.png")
    assert coloured(tmp_path / "p.png", ATTACKED)


@every_case("plot", PLOTS)
def test_a_plot_of_another_format_is_refused(tmp_path: Path, plot: Callable[..., None]) -> None:
    with pytest.raises(ValueRangeError, match=r"written as \.png, \.svg or \.pdf, got"):
        plot(tmp_path / "p.jpg")
    assert not list(tmp_path.iterdir())


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
