"""Keyword arguments of games: what the preprocessing fixes, and what is mistyped."""

from __future__ import annotations

import gymnasium as gym
import pytest

import adv_wrappers as adv
from adv_wrappers.atari import env as env_module
from adv_wrappers.errors import SpaceError
from tests.rigs import same_bytes

PONG = "PongNoFrameskip-v4"


@pytest.mark.parametrize(
    ("given", "message", "single", "vector"),
    [
        ({"frameskip": 2}, "skips 4 frames a step itself and cannot take frameskip=2", "frame_skip=2", "frameskip=2"),
        ({"frame_skip": 4}, "skips 4 frames a step itself and cannot take frame_skip=4", "AtariPrep", "frameskip=4"),
        ({"obs_type": "rgb"}, "makes grey pictures .raw= reaches the colour", "obs_type='rgb'", "grayscale=False"),
        ({"obs_type": "ram"}, "makes grey pictures", "obs_type='ram'", "grayscale=False"),
        ({"grayscale": False}, "makes grey pictures", "grayscale_obs=False", "grayscale=False"),
        ({"stack_num": 3}, "stacks 4 frames and cannot take", "FrameStackObservation", "stack_num=3"),
        ({"img_width": 42}, "makes pictures of 84x84", "screen_size=42", "img_width=42"),
        (
            {"stak": "rotation:degrees=3"},
            r"stak \(did you mean stack\?\), but raw, frame, stack, victim",
            "mode",
            "noop",
        ),
        ({"frames": "jpeg"}, r"frames \(did you mean frame\?\)", "", ""),
        ({"repeat_probability": 0}, r"\(did you mean repeat_action_probability\?\)", "", ""),
        ({"game": "breakout"}, "takes no argument game", "", ""),
        ({"sound_obs": True}, "takes no argument sound_obs", "", ""),
    ],
)
@pytest.mark.parametrize("place", [{}, {"raw": "jpeg"}])
def test_what_is_fixed_and_what_is_mistyped(monkeypatch, place, given, message, single, vector):
    """Refused before the emulator starts, with a word on what to do instead."""
    for owner, name in ((env_module, "make_game"), (gym, "make_vec")):
        monkeypatch.setattr(owner, name, lambda *a, **k: pytest.fail("ALE was started"))
    with pytest.raises(SpaceError, match=message) as error:
        adv.atari.atari(PONG, **place, **given)
    assert str(error.value).startswith("atari() ") and single in str(error.value)
    with pytest.raises(SpaceError, match=message) as error:
        adv.atari.atari_vec(PONG, 2, **place, **given)
    assert str(error.value).startswith("atari_vec() ") and vector in str(error.value)


def test_what_the_preprocessing_does_anyway_may_be_said():
    for place in ({}, {"raw": "jpeg"}):
        env = adv.atari.atari(PONG, frameskip=4, obs_type="grayscale", mode=0, **place)
        venv = adv.atari.atari_vec(PONG, 1, frameskip=4, obs_type="grayscale", stack_num=4, **place)
        assert env.observation_space == venv.single_observation_space
        same_bytes(env.reset(seed=1)[0], adv.atari.atari(PONG, **place).reset(seed=1)[0], "as ever")


def test_an_id_that_hides_a_game_has_arguments_of_its_own():
    def hidden(colour, **kwargs):
        return gym.make(PONG, **kwargs)

    gym.register("tests/Hidden-v0", hidden)
    try:
        assert adv.atari.atari("tests/Hidden-v0", colour="red").observation_space.shape == (4, 84, 84)
        with pytest.raises(SpaceError, match="frameskip=1"):
            adv.atari.atari("tests/Hidden-v0", colour="red", frameskip=1)
    finally:
        del gym.registry["tests/Hidden-v0"]
