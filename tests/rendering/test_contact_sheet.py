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
from adv_wrappers.evaluation import perceptual
from adv_wrappers.evaluation.side_by_side import daylight_of, look
from adv_wrappers.rendering.contact_sheet import decibels, number, sheet, spectra
from adv_wrappers.rendering.pixel_figure import Paper, coloured
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
    seen = look(x, ["rotation:degrees=4", "noise:eps=3", "shift:dx=2 + median-blur:k=3", adv.JPEG(20)], seed=5)
    assert (seen.true == x).all()
    batch = torch.from_numpy(x)[None]
    assert (seen.shown[0] == daylight.rotate(batch, 4.0)[0].numpy()).all()
    env = adv.PerturbObservation(ReplayEnv([[x, x]], seen.space, spaces.Discrete(2)), "noise:eps=3")
    assert (seen.shown[1] == env.reset(seed=5)[0]).all()
    assert (seen.shown[2] == daylight.median_blur(daylight.shift(batch, 2, 0), 3)[0].numpy()).all()
    assert [name for name, _ in seen.names] == ["rotation", "noise", "shift + median-blur", "jpeg"]
    assert seen.names[2][1] == ("dx=2", "dy=0", "k=3") and seen.names[3][1] == ("quality=20",)
    assert (look(x, ["noise:eps=3"], seed=6).shown[0] != seen.shown[1]).any()


def test_a_picture_shows_a_strike_whatever_the_timing():
    seen = look(scene(), ["brightness:alpha=1,beta=9,when=never()"])
    assert (seen.shown[0] == scene() + 9).all() and seen.names[0][1] == ("alpha=1", "beta=9")


def test_an_environment_is_played_first():
    env = ReplayEnv(recorded(spaces.Box(0, 255, (12, 12), np.uint8)), spaces.Box(0, 255, (12, 12), np.uint8),
                    spaces.Discrete(2))  # fmt: skip
    seen = look(env, ["shift:dx=1"], step=2, seed=1)
    assert (seen.true == env.recordings[1][2]).all() and seen.title == "an environment, step 2"
    seen = look(env, ["shift:dx=1"], step=6, seed=1)  # 5 steps, and one of the episode after it
    assert (seen.true == env.recordings[2][1]).all()


def test_a_victim_plays_and_is_attacked():
    rig = RIGS["image"]
    seen = look(rig.env(), ["fgsm:eps=4"], rig.victim(), step=1)
    assert seen.distances()[0]["linf"] == 4
    with pytest.raises(adv.VictimError, match="needs a victim"):
        look(rig.env(), ["fgsm:eps=4"], step=1)
    with pytest.raises(adv.VictimError, match="observation space"):
        look(scene(), ["fgsm:eps=4"], rig.victim())


def test_numbers_are_those_of_the_functions():
    x = scene()
    seen = look(x, ["brightness:alpha=1.2,beta=0", "median-blur:k=3", "shift:dx=3,dy=0,border=wrap"])
    for shown, row in zip(seen.shown, seen.distances(), strict=True):
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
    row = look(x, ["brightness:alpha=1,beta=51"]).distances()[0]
    assert row["linf"] == pytest.approx(0.2, abs=0.01) and row["psnr"] == pytest.approx(14, abs=0.3)
    assert look(x[:9, :30], ["shift"]).distances()[0]["ssim"] is None


def test_the_sheet_holds_the_pictures(tmp_path):
    x = scene(size=84)
    seen = look(x, ["rotation:degrees=4", "brightness:alpha=1,beta=0"])
    sheet(seen, tmp_path / "new" / "sheet.png")
    page = read(tmp_path / "new" / "sheet.png")
    for frame in (x[-1], seen.shown[0][-1], np.full((84, 84), 128, np.uint8)):
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
        spectra(look(scene(), ["jpeg", "shift", "rotation", "median-blur"][:count]), tmp_path / f"{count}.png")
        assert read(tmp_path / f"{count}.png").std() > 1
    with pytest.raises(adv.ValueRangeError, match="at least one threat"):
        spectra(look(scene(), []), tmp_path / "none.png")


def test_paper_keeps_pixels_and_a_palette_where_it_can(tmp_path):
    rng = np.random.default_rng(0)
    for levels in (100, 1000):
        image = rng.integers(0, 256, (levels, 3), dtype=np.uint8)[rng.integers(0, levels, (40, 30))]
        paper = Paper(90, 100)
        paper.image(7, 11, image, 2)
        paper.save(tmp_path / "paper.png")
        assert (read(tmp_path / "paper.png")[11:91, 7:67] == image.repeat(2, 0).repeat(2, 1)).all()
    image = np.repeat(np.arange(0, 250, dtype=np.uint8), 30).reshape(75, 100, 1).repeat(3, -1).copy()
    image[:10:2, 0, 2] += 1  # a few shades more than a palette holds
    image[:20:2, 99, 1] += 1
    paper = Paper(100, 75)
    paper.image(0, 0, image)
    paper.save(tmp_path / "paper.png")
    shown = read(tmp_path / "paper.png")
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) <= 256 < len(np.unique(image.reshape(-1, 3), axis=0))
    assert np.abs(shown.astype(int) - image).max() == 1
    assert (coloured(np.array([[-5.0, 9.0]]), 0, 1, "gray") == [[[0] * 3, [255] * 3]]).all()


def test_games_have_the_papers_transforms():
    assert daylight_of("ALE/Jamesbond-v5")[1] == "daylight:game=JamesBond,transform=median-blur"
    assert len({*daylight_of(PONG), *daylight_of("Breakout-v4")}) == 12
    seen = look(scene(), None)
    assert len(seen.shown) == 6 and all((shown != seen.true).any() for shown in seen.shown)


def test_atari(tmp_path):
    pytest.importorskip("ale_py")
    seen = look(PONG, step=3, seed=1)
    assert seen.true.shape == (4, 84, 84) and seen.names[2] == ("rotation", ("degrees=3",)) and seen.stacked
    raw = look(PONG, step=3, seed=1, raw=True)
    assert raw.true.shape == (210, 160, 3) and len(np.unique(raw.true.reshape(-1, 3), axis=0)) > 3 and not raw.stacked
    env = adv.atari(PONG)
    env.reset(seed=1), env.action_space.seed(1)
    for _ in range(3):
        obs = env.step(env.action_space.sample())[0]
    assert (seen.true == obs).all() and (raw.true == env.unwrapped.ale.getScreenRGB()).all()
    sheet(raw, tmp_path / "raw.png")
    page = read(tmp_path / "raw.png")
    assert (page == raw.true[100, 80]).all(-1).any()


def test_an_environment_that_is_perturbed_already_is_no_original(monkeypatch, tmp_path):
    """The first column says what it came through; the emulator's own screen is the original all the same."""
    written, drawn = [], Paper.text
    monkeypatch.setattr(Paper, "text", lambda *a, **k: written.append(a[3]) or drawn(*a, **k))
    space = spaces.Box(0, 255, (12, 12), np.uint8)
    env = adv.wrap(ReplayEnv(recorded(space), space, spaces.Discrete(2)), "shift:dx=1", "action-flip", "noise:eps=2")
    seen = look(env, ["shift:dx=1"], step=1)
    assert seen.under == ("shift:dx=1,dy=0", "noise:eps=2") and seen.origin == "as it comes"
    sheet(seen, tmp_path / "sheet.png")
    assert "as it comes" in written and "original" not in written and any("noise:eps=2" in text for text in written)
    seen = look(adv.PerturbAction(ReplayEnv(recorded(space), space, spaces.Discrete(2)), "action-flip"), ["shift"])
    assert seen.under == () and seen.origin == "original"
    raw = look("adv_wrappers:adv-daylight/Pong-Rotation-v0", ["shift"], step=1, raw=True)
    assert raw.under == () and raw.true.shape == (210, 160, 3)


def test_errors():
    for source, message in (("CartPole-v1", "only images"), ("Nothing-v7", "cannot make"), (scene()[0, 0], "images")):
        with pytest.raises(adv.SpaceError, match=message):
            look(source, ["noise:eps=1"])
    with pytest.raises(adv.SpaceError, match="Atari"):
        look(gym.make("CartPole-v1"), raw=True)
    with pytest.raises(adv.SpaceError, match="Atari"):
        look(scene(), raw=True)
    with pytest.raises(adv.ThreatError, match="perturbs the action"):
        look(scene(), ["action-flip"])
    with pytest.raises(adv.ThreatError, match="at least one"):
        look(scene(), [[]])
    with pytest.raises(adv.ValueRangeError, match="step"):
        look(scene(), step=-1)
