"""RawFrames and ShrinkFrames: together they are AtariPreprocessing, to the byte."""

from __future__ import annotations

import functools

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing

import adv_wrappers as adv
from adv_wrappers.atari.raw_screen import grey
from tests.every_case import every_case
from tests.rigs import same_bytes


def game(name="Pong", **kwargs):
    return gym.make(f"{name}NoFrameskip-v4", obs_type="grayscale", **kwargs)


def both(name, noop_max=30, frame_skip=4, **kwargs):
    """The reference and its double."""
    return (
        AtariPreprocessing(game(name, **kwargs), noop_max, frame_skip),
        adv.atari.ShrinkFrames(adv.atari.RawFrames(game(name, **kwargs), noop_max, frame_skip)),
    )


def compare(reference, double, *episodes, idle=False):
    """Random episodes on both (or idle ones), of a seed and so many steps at most: the steps taken, and whether the
    last one showed something new.
    """
    reference.action_space.seed(1)
    taken, new = [], []
    for seed, steps in episodes:
        (one, info), (other, more) = reference.reset(seed=seed), double.reset(seed=seed)
        same_bytes(one, other, f"reset {seed}")
        assert {**info, "seeds": 0} == {**more, "seeds": 0}
        for t in range(steps):
            action = 0 if idle else reference.action_space.sample()
            before = one
            (one, *rest), (other, *others) = reference.step(action), double.step(action)
            same_bytes(one, other, f"seed {seed}, step {t}")
            assert rest == others and type(rest[0]) is type(others[0])
            if rest[1] or rest[2]:
                break
        taken.append(t + 1)
        new.append(bool((one != before).any()))
    return taken, new


@pytest.mark.parametrize("skip", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_an_end_between_frames(skip):
    """The emulator stops after any of the skipped frames; only the last one can bring a new picture."""
    for extra in {0, skip - 1}:
        pair = both("Riverraid", noop_max=0, frame_skip=skip, max_num_frames_per_episode=16 + extra)
        taken, new = compare(*pair, (3, 70), (None, 70))
        assert taken == [-(-(16 + extra) // skip)] * 2
        assert skip < 4 or new[0] == (extra == 0)


def test_what_was_shown_before_stands_beside_the_only_new_screen():
    """Which is the case at an end on the last of the skipped frames."""
    raw = adv.atari.RawFrames(game("Riverraid", max_num_frames_per_episode=120), noop_max=0)
    pair = raw.reset(seed=3)[0]
    over = False
    while not over:
        before, (pair, _, terminated, over, _) = pair, raw.step(2)
    assert over and not terminated
    assert not np.array_equal(pair[0], before[1])
    np.testing.assert_array_equal(grey(pair[1]), grey(before).max(0))


def test_grey_is_one_rule_for_every_colour():
    green, blue = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    for red in range(0, 256, 15):
        colours = np.stack([np.full_like(green, red), green, blue], -1)
        exact = (colours @ np.array([2989, 5870, 1140]) + 5000) // 10000
        np.testing.assert_array_equal(grey(colours.astype(np.uint8)), exact)


@pytest.mark.slow
def test_grey_of_the_emulators_palettes():
    ale, seen = ale_py.ALEInterface(), set()
    ale.setLoggerMode(ale_py.LoggerMode.Error)
    for rom in ("bank_heist", "jamesbond", "riverraid", "time_pilot", "space_invaders", "qbert"):
        ale.loadROM(ale_py.roms.get_rom_path(rom))
        ale.reset_game()
        actions = ale.getMinimalActionSet()
        for t in range(6):
            for _ in range(10):
                ale.act(actions[t % len(actions)])
            colours = ale.getScreenRGB()
            np.testing.assert_array_equal(grey(colours), ale.getScreenGrayscale(), err_msg=rom)
            seen |= set(np.unique(colours.astype(int) @ [65536, 256, 1]).tolist())
    assert len(seen) > 30


def test_observations():
    raw = adv.atari.RawFrames(game())
    first, _ = raw.reset(seed=0)
    kept = first.copy()
    np.testing.assert_array_equal(first[0], first[1])  # there is only one screen
    assert first in raw.observation_space and raw.observation_space.shape == (2, 210, 160, 3)
    for _ in range(3):
        second = raw.step(2)[0]
    np.testing.assert_array_equal(first, kept)
    assert (second != first).any() and (second[0] != second[1]).any()
    np.testing.assert_array_equal(second[1], raw.unwrapped.ale.getScreenRGB())


made = functools.cache(gym.make)  # a game that nobody steps


@every_case(
    ("make", "message"),
    [
        (lambda: adv.atari.RawFrames(gym.make("CartPole-v1")), "made with frameskip=1"),
        (lambda: adv.atari.RawFrames(made("ALE/Pong-v5")), "made with frameskip=1"),
        (lambda: adv.atari.RawFrames(made("PongNoFrameskip-v4"), noop_max=-1), "noop_max must be"),
        (lambda: adv.atari.RawFrames(made("PongNoFrameskip-v4"), frame_skip=0), "frame_skip must be"),
        (lambda: adv.atari.ShrinkFrames(made("ALE/Pong-v5")), "takes screens in colour"),
        (lambda: adv.atari.ShrinkFrames(adv.atari.RawFrames(made("PongNoFrameskip-v4")), 0), "size must be"),
    ],
)
def test_errors(make, message):
    with pytest.raises(adv.AdvWrappersError, match=message):
        make()
