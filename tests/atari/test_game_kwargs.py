"""Keyword arguments of games: what the preprocessing fixes, and what is mistyped."""

from __future__ import annotations

import gymnasium as gym
import pytest

import adv_wrappers as adv
from adv_wrappers.atari import env as env_module
from adv_wrappers.errors import SpaceError

PONG = "PongNoFrameskip-v4"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frameskip": 2}, "so it cannot take frameskip=2: leave it away"),
        ({"frame_skip": 4}, r"frame_skip \(did you mean frameskip\?\)"),
        ({"obs_type": "rgb"}, "cannot take obs_type='rgb'.*raw= reaches the colour screens"),
        ({"grayscale": False}, "AtariPreprocessing"),
        ({"stack_num": 3}, "stacks 4 grey pictures of 84x84, so it cannot take stack_num=3"),
        ({"stak": "rotation:degrees=3"}, r"stak \(did you mean stack\?\), but raw, frame, stack, victim"),
        ({"frames": "jpeg"}, r"frames \(did you mean frame\?\)"),
        ({"repeat_probability": 0}, r"\(did you mean repeat_action_probability\?\)"),
        ({"game": "breakout"}, "takes no argument game"),
        ({"sound_obs": True}, "takes no argument sound_obs"),
    ],
)
@pytest.mark.parametrize("place", [{}, {"raw": "jpeg"}])
def test_what_is_fixed_and_what_is_mistyped(monkeypatch, place, given, message):
    """Refused before the emulator starts, with a word on what to do instead."""
    for owner, name in ((env_module, "make_game"), (gym, "make_vec")):
        monkeypatch.setattr(owner, name, lambda *a, **k: pytest.fail("ALE was started"))
    with pytest.raises(SpaceError, match=message):
        adv.atari.atari(PONG, **place, **given)
    with pytest.raises(SpaceError, match=message):
        adv.atari.atari_vec(PONG, 2, **place, **given)


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
