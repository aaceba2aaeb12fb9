"""The plot of returns: what it draws, and the files that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.rendering.frames import ATTACKED, CLEAN, rgb
from adv_wrappers.rendering.plots import plot_returns
from tests.every_case import every_case

ROWS = {
    "no attack": {"mean_return": 10.0, "low": 9.0, "high": 12.0, "returns": [7.0, 13.0]},
    "max-diff:eps=0.1": {"mean_return": 4.0, "low": 3.0, "high": 6.0},
}


@pytest.mark.parametrize(("name", "head"), [("p.png", b"\x89PNG"), ("p.SVG", b"<?xml")])
def test_a_plot_is_what_its_name_says(tmp_path: Path, name: str, head: bytes) -> None:
    written = []
    for folder in ("a", "b"):
        plot_returns(ROWS, tmp_path / folder / name, "who on what", ["return"])
        written.append((tmp_path / folder / name).read_bytes())
    assert written[0].startswith(head) and written[0] == written[1]


@every_case("name", ["p.jpg", "p", "p.svgz"])
def test_a_plot_of_another_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueRangeError, match=r"written as \.png, \.svg or \.pdf, got"):
        plot_returns(ROWS, tmp_path / name, "who on what", ["return"])
    assert not list(tmp_path.iterdir())


def test_clean_runs_and_attacks_have_their_colours(tmp_path: Path) -> None:
    def coloured(rows: dict[str, Any], colour: str) -> bool:
        plot_returns(rows, tmp_path / "p.png", "who on what", ["return"])
        image = cv2.imread(str(tmp_path / "p.png"))
        assert image is not None
        return bool((image[..., ::-1] == np.array(rgb(colour), np.uint8)).all(-1).any())

    assert coloured(ROWS, CLEAN) and coloured(ROWS, ATTACKED)
    assert not coloured({"alone": ROWS["no attack"]}, ATTACKED)
