"""One observation under several threats: who plays, what is perturbed, and the distances."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers import daylight
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.measurements import image_distances
from adv_wrappers.evaluation.perturbed_samples import compare_threats, daylight_threats
from tests.rendering.scenes import scene
from tests.rigs import RIGS, ReplayEnv, recorded

PONG = "PongNoFrameskip-v4"


def test_threats_get_the_same_observation_and_attack_as_wrappers_do():
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


def test_a_picture_shows_an_attack_whatever_the_timing():
    seen = compare_threats(scene(), ["brightness:alpha=1,beta=9,when=never()"])
    assert (seen.perturbed[0] == scene() + 9).all() and seen.names[0][1] == ("alpha=1", "beta=9")


def test_an_environment_is_played_first():
    env = ReplayEnv(
        recorded(spaces.Box(0, 255, (12, 12), np.uint8)), spaces.Box(0, 255, (12, 12), np.uint8), spaces.Discrete(2)
    )
    seen = compare_threats(env, ["shift:dx=1"], step=2, seed=1)
    assert (seen.true == env.recordings[1][2]).all() and seen.title == "an environment, step 2"
    seen = compare_threats(env, ["shift:dx=1"], step=6, seed=1)  # 5 steps, and one of the episode after it
    assert (seen.true == env.recordings[2][1]).all()


def test_an_id_is_made_with_arguments_and_by_a_function():
    def make(id, **arguments):
        made.append((id, arguments))
        return gym.make(id, **arguments)

    made = []
    grey = compare_threats("ALE/Pong-v5", ["shift:dx=1"], step=0, env_kwargs={"obs_type": "grayscale"}, make=make)
    assert made == [("ALE/Pong-v5", {"obs_type": "grayscale"})] and grey.true.shape == (210, 160)
    with pytest.raises(SpaceError, match="colour"):
        compare_threats("CartPole-v1", ["shift:dx=1"], env_kwargs={"colour": "red"})


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
        for name, distance in image_distances.DISTANCES.items():
            assert row[name] == float(distance(x[None], shown[None]))
    contrast, blur, shifted = seen.bands()
    for band in ("low", "mid", "high"):
        assert contrast[band] == pytest.approx(20 * np.log10(1.2), abs=0.15)  # but for rounding
        assert shifted[band] == pytest.approx(0, abs=1e-9)  # a phase
    assert blur["high"] < blur["mid"] < 0


def test_floats_and_small_pictures():
    x = scene(1)[0].astype(np.float32) / 255
    row = compare_threats(x, ["brightness:alpha=1,beta=51"]).distances[0]
    assert row["linf"] == pytest.approx(0.2, abs=0.01) and row["psnr"] == pytest.approx(14, abs=0.3)
    assert compare_threats(x[:9, :30], ["shift"]).distances[0]["ssim"] is None


def test_games_have_the_papers_transforms():
    assert daylight_threats("ALE/Jamesbond-v5")[1] == "daylight:game=JamesBond,transform=median-blur"
    assert len({*daylight_threats(PONG), *daylight_threats("Breakout-v4")}) == 12
    seen = compare_threats(scene(), None)
    assert len(seen.perturbed) == 6 and all((shown != seen.true).any() for shown in seen.perturbed)


@pytest.mark.slow
def test_atari():
    pytest.importorskip("ale_py")
    seen = compare_threats(PONG, step=3, seed=1)
    assert seen.true.shape == (4, 84, 84) and seen.names[2] == ("rotation", ("degrees=3",)) and seen.stacked
    env = adv.atari.atari(PONG)
    env.reset(seed=1), env.action_space.seed(1)
    for _ in range(3):
        obs = env.step(env.action_space.sample())[0]
    assert (seen.true == obs).all()


def test_errors():
    for source, message in (("CartPole-v1", "only images"), ("Nothing-v7", "cannot make"), (scene()[0, 0], "images")):
        with pytest.raises(SpaceError, match=message):
            compare_threats(source, ["noise:eps=1"])
    with pytest.raises(ThreatError, match="perturbs the action"):
        compare_threats(scene(), ["action-flip"])
    with pytest.raises(ThreatError, match="at least one"):
        compare_threats(scene(), [[]])
    with pytest.raises(ValueRangeError, match="step"):
        compare_threats(scene(), step=-1)
