"""Pictures of one observation under threats: the sheet, the spectra, and the files."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.perturbed_samples import compare_threats
from adv_wrappers.rendering import contact_sheet
from adv_wrappers.rendering.contact_sheet import decibels, distance_text, draw_contact_sheet, draw_spectra
from tests.rendering.scenes import scene
from tests.rigs import ReplayEnv, recorded


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


def test_an_environment_that_is_perturbed_already_is_no_original(monkeypatch):
    """The first column says what it came through; the emulator's own screen is the original all the same."""
    space = spaces.Box(0, 255, (12, 12), np.uint8)
    env = adv.wrap(ReplayEnv(recorded(space), space, spaces.Discrete(2)), "shift:dx=1", "action-flip", "noise:eps=2")
    seen = compare_threats(env, ["shift:dx=1"], step=1)
    assert seen.under == ("shift:dx=1,dy=0", "noise:eps=2") and seen.true_label == "as it comes"
    head = drawn(seen, monkeypatch).axes[0].get_title(loc="left")
    assert head.startswith("as it comes\n") and "noise:eps=2" in head.replace("\n", " ")
    seen = compare_threats(
        adv.PerturbAction(ReplayEnv(recorded(space), space, spaces.Discrete(2)), "action-flip"), ["shift"]
    )
    assert seen.under == () and seen.true_label == "original"
    raw = compare_threats("adv_wrappers:adv-daylight/Pong-Rotation-v0", ["shift"], step=1, raw=True)
    assert raw.under == () and raw.true.shape == (210, 160, 3)
