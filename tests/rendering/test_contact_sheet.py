"""Pictures of one observation under threats: the engine's own strikes, distances, spectra, and the files."""

from __future__ import annotations

import cv2
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers import daylight
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation import perceptual
from adv_wrappers.evaluation.side_by_side import compare_threats, daylight_threats
from adv_wrappers.rendering.contact_sheet import decibels, draw_contact_sheet, draw_spectra, number
from adv_wrappers.rendering.figures import PixelFigure
from tests.rigs import RIGS, ReplayEnv, recorded

PONG = "PongNoFrameskip-v4"


def scene(frames=4, size=44, seed=0):
    """A picture with edges and some texture, uint8 ``[F, H, W]``."""
    rng = np.random.default_rng(seed)
    x = np.full((frames, size, size), 80, np.uint8)
    x[:, 6:12] = 200
    for i in range(frames):
        x[i, 20 : 26 + i, 10 + i : 18 + i] = 150
    return x + rng.integers(0, 6, x.shape, dtype=np.uint8)


def read(path):
    return cv2.imread(str(path))[..., ::-1]


def test_threats_get_the_same_observation_and_strike_as_layers_do():
    x = scene()
    seen = compare_threats(
        x, ["rotation:degrees=4", "noise:eps=3", "shift:dx=2 + median-blur:k=3", adv.daylight.JPEG(20)], seed=5
    )
    assert (seen.true == x).all()
    batch = torch.from_numpy(x)[None]
    assert (seen.perturbed[0] == daylight.rotate(batch, 4.0)[0].numpy()).all()
    env = adv.PerturbObservation(ReplayEnv([[x, x]], seen.space, spaces.Discrete(2)), "noise:eps=3")
    assert (seen.perturbed[1] == env.reset(seed=5)[0]).all()
    assert (seen.perturbed[2] == daylight.median_blur(daylight.shift(batch, 2, 0), 3)[0].numpy()).all()
    assert [name for name, _ in seen.names] == ["rotation", "noise", "shift + median-blur", "jpeg"]
    assert seen.names[2][1] == ("dx=2", "dy=0", "k=3") and seen.names[3][1] == ("quality=20",)
    assert (compare_threats(x, ["noise:eps=3"], seed=6).perturbed[0] != seen.perturbed[1]).any()


def test_a_picture_shows_a_strike_whatever_the_timing():
    seen = compare_threats(scene(), ["brightness:alpha=1,beta=9,when=never()"])
    assert (seen.perturbed[0] == scene() + 9).all() and seen.names[0][1] == ("alpha=1", "beta=9")


def test_an_environment_is_played_first():
    env = ReplayEnv(recorded(spaces.Box(0, 255, (12, 12), np.uint8)), spaces.Box(0, 255, (12, 12), np.uint8),
                    spaces.Discrete(2))  # fmt: skip
    seen = compare_threats(env, ["shift:dx=1"], step=2, seed=1)
    assert (seen.true == env.recordings[1][2]).all() and seen.title == "an environment, step 2"
    seen = compare_threats(env, ["shift:dx=1"], step=6, seed=1)  # 5 steps, and one of the episode after it
    assert (seen.true == env.recordings[2][1]).all()


def test_a_victim_plays_and_is_attacked():
    rig = RIGS["image"]
    seen = compare_threats(rig.env(), ["fgsm:eps=4"], rig.victim(), step=1)
    assert seen.distances[0]["linf"] == 4
    with pytest.raises(VictimError, match="needs a victim"):
        compare_threats(rig.env(), ["fgsm:eps=4"], step=1)
    with pytest.raises(VictimError, match="observation space"):
        compare_threats(scene(), ["fgsm:eps=4"], rig.victim())


def test_numbers_are_those_of_the_functions():
    x = scene()
    seen = compare_threats(x, ["brightness:alpha=1.2,beta=0", "median-blur:k=3", "shift:dx=3,dy=0,border=wrap"])
    for shown, row in zip(seen.perturbed, seen.distances, strict=True):
        for name, distance in perceptual.DISTANCES.items():
            assert row[name] == float(distance(x[None], shown[None]))
    contrast, blur, shifted = seen.bands()
    for band in ("low", "mid", "high"):
        assert contrast[band] == pytest.approx(20 * np.log10(1.2), abs=0.15)  # but for rounding
        assert shifted[band] == pytest.approx(0, abs=1e-9)  # a phase
    assert blur["high"] < blur["mid"] < 0
    assert (number(12418.4), number(0.12345), decibels(-0.04), decibels(-3.26)) == (
        "12418",
        "0.123",
        "+0.0 dB",
        "-3.3 dB",
    )


def test_floats_and_small_pictures():
    x = scene(1)[0].astype(np.float32) / 255
    row = compare_threats(x, ["brightness:alpha=1,beta=51"]).distances[0]
    assert row["linf"] == pytest.approx(0.2, abs=0.01) and row["psnr"] == pytest.approx(14, abs=0.3)
    assert compare_threats(x[:9, :30], ["shift"]).distances[0]["ssim"] is None


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
    for count in (1, 4):
        draw_spectra(
            compare_threats(scene(), ["jpeg", "shift", "rotation", "median-blur"][:count]), tmp_path / f"{count}.png"
        )
        assert read(tmp_path / f"{count}.png").std() > 1
    with pytest.raises(ValueRangeError, match="at least one threat"):
        draw_spectra(compare_threats(scene(), []), tmp_path / "none.png")


def test_games_have_the_papers_transforms():
    assert daylight_threats("ALE/Jamesbond-v5")[1] == "daylight:game=JamesBond,transform=median-blur"
    assert len({*daylight_threats(PONG), *daylight_threats("Breakout-v4")}) == 12
    seen = compare_threats(scene(), None)
    assert len(seen.perturbed) == 6 and all((shown != seen.true).any() for shown in seen.perturbed)


def test_atari(tmp_path):
    pytest.importorskip("ale_py")
    seen = compare_threats(PONG, step=3, seed=1)
    assert seen.true.shape == (4, 84, 84) and seen.names[2] == ("rotation", ("degrees=3",)) and seen.stacked
    raw = compare_threats(PONG, step=3, seed=1, raw=True)
    assert raw.true.shape == (210, 160, 3) and len(np.unique(raw.true.reshape(-1, 3), axis=0)) > 3 and not raw.stacked
    env = adv.atari.atari(PONG)
    env.reset(seed=1), env.action_space.seed(1)
    for _ in range(3):
        obs = env.step(env.action_space.sample())[0]
    assert (seen.true == obs).all() and (raw.true == env.unwrapped.ale.getScreenRGB()).all()
    draw_contact_sheet(raw, tmp_path / "raw.png")
    page = read(tmp_path / "raw.png")
    assert (page == raw.true[100, 80]).all(-1).any()


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


def test_errors():
    for source, message in (("CartPole-v1", "only images"), ("Nothing-v7", "cannot make"), (scene()[0, 0], "images")):
        with pytest.raises(SpaceError, match=message):
            compare_threats(source, ["noise:eps=1"])
    with pytest.raises(SpaceError, match="Atari"):
        compare_threats(gym.make("CartPole-v1"), raw=True)
    with pytest.raises(SpaceError, match="Atari"):
        compare_threats(scene(), raw=True)
    with pytest.raises(ThreatError, match="perturbs the action"):
        compare_threats(scene(), ["action-flip"])
    with pytest.raises(ThreatError, match="at least one"):
        compare_threats(scene(), [[]])
    with pytest.raises(ValueRangeError, match="step"):
        compare_threats(scene(), step=-1)
