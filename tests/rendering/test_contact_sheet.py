"""Pictures of one observation under threats: the sheet, the spectra, and the files."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.perturbed_samples import compare_threats
from adv_wrappers.rendering import contact_sheet
from adv_wrappers.rendering.contact_sheet import decibels, distance_text, draw_contact_sheet, draw_spectra
from tests.rendering.scenes import scene


def read(path):
    return cv2.imread(str(path))[..., ::-1]


def drawn(seen, monkeypatch):
    """The figure of a sheet, before it is written."""
    found = []
    monkeypatch.setattr(contact_sheet, "save_figure", lambda figure, path: found.append(figure))
    draw_contact_sheet(seen, "sheet.png")
    return found[0]


def test_the_sheet_holds_the_pictures(monkeypatch):
    x = scene(size=84)
    seen = compare_threats(x, ["rotation:degrees=4", "brightness:alpha=1,beta=0"])
    sheet = drawn(seen, monkeypatch)
    pictures = [np.asarray(image.get_array()) for axes in sheet.axes for image in axes.images]
    for frame in (x[-1], seen.perturbed[0][-1], np.full((84, 84), 128, np.uint8)):
        assert any((picture == frame[..., None]).all() for picture in pictures if picture.ndim == 3)


def test_spectra(tmp_path):
    draw_spectra(compare_threats(scene(), ["jpeg"]), tmp_path / "spectra.png")
    assert read(tmp_path / "spectra.png").std() > 1
    with pytest.raises(ValueRangeError, match="at least one threat"):
        draw_spectra(compare_threats(scene(), []), tmp_path / "none.png")


def test_numbers_below_the_pictures():
    assert (distance_text(12418.4), distance_text(0.12345), decibels(-0.04), decibels(-3.26)) == (
        "12418",
        "0.123",
        "+0.0 dB",
        "-3.3 dB",
    )
