"""Pictures of one observation under threats: the sheet, the spectra, and the files."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.threat_comparison import compare_threats
from adv_wrappers.rendering.contact_sheet import decibels, distance_text, draw_contact_sheet, draw_spectra
from adv_wrappers.rendering.plots import PixelFigure
from tests.rendering.scenes import scene
from tests.rigs import ReplayEnv, recorded


def read(path):
    return cv2.imread(str(path))[..., ::-1]


def test_the_sheet_holds_the_pictures(tmp_path):
    x = scene(size=84)
    seen = compare_threats(x, ["rotation:degrees=4", "brightness:alpha=1,beta=0"])
    draw_contact_sheet(seen, tmp_path / "new" / "sheet.png")
    page = read(tmp_path / "new" / "sheet.png")
    for frame in (x[-1], seen.perturbed[0][-1], np.full((84, 84), 128, np.uint8)):
        assert _found(page, frame.repeat(2, 0).repeat(2, 1))
    assert not _found(page, x[0].repeat(2, 0).repeat(2, 1))  # an older frame


def _found(page, picture):
    """Whether a grey picture stands somewhere on a page."""
    scores = cv2.matchTemplate(np.ascontiguousarray(page[..., 0]), picture, cv2.TM_SQDIFF)
    y, x = np.unravel_index(scores.argmin(), scores.shape)
    high, wide = picture.shape
    return bool((page[y : y + high, x : x + wide] == picture[..., None]).all())


def test_spectra(tmp_path):
    for count in (1, 2):
        draw_spectra(
            compare_threats(scene(), ["jpeg", "shift", "rotation", "median-blur"][:count]), tmp_path / f"{count}.png"
        )
        assert read(tmp_path / f"{count}.png").std() > 1
    with pytest.raises(ValueRangeError, match="at least one threat"):
        draw_spectra(compare_threats(scene(), []), tmp_path / "none.png")


def test_numbers_below_the_pictures():
    assert (distance_text(12418.4), distance_text(0.12345), decibels(-0.04), decibels(-3.26)) == (
        "12418",
        "0.123",
        "+0.0 dB",
        "-3.3 dB",
    )


def test_a_screen_in_colour(tmp_path):
    raw = compare_threats("PongNoFrameskip-v4", step=3, seed=1, raw=True)
    draw_contact_sheet(raw, tmp_path / "raw.png")
    assert (read(tmp_path / "raw.png") == raw.true[100, 80]).all(-1).any()


def test_an_environment_that_is_perturbed_already_is_no_original(monkeypatch, tmp_path):
    """The first column says what it came through; the emulator's own screen is the original all the same."""
    written, drawn = [], PixelFigure.text
    monkeypatch.setattr(PixelFigure, "text", lambda *a, **k: written.append(a[3]) or drawn(*a, **k))
    space = spaces.Box(0, 255, (12, 12), np.uint8)
    env = adv.wrap(ReplayEnv(recorded(space), space, spaces.Discrete(2)), "shift:dx=1", "action-flip", "noise:eps=2")
    seen = compare_threats(env, ["shift:dx=1"], step=1)
    assert seen.under == ("shift:dx=1,dy=0", "noise:eps=2") and seen.true_label == "as it comes"
    draw_contact_sheet(seen, tmp_path / "sheet.png")
    assert "as it comes" in written and "original" not in written and any("noise:eps=2" in text for text in written)
    seen = compare_threats(
        adv.PerturbAction(ReplayEnv(recorded(space), space, spaces.Discrete(2)), "action-flip"), ["shift"]
    )
    assert seen.under == () and seen.true_label == "original"
    raw = compare_threats("adv_wrappers:adv-daylight/Pong-Rotation-v0", ["shift"], step=1, raw=True)
    assert raw.under == () and raw.true.shape == (210, 160, 3)
