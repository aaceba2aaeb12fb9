"""Atari made right: three places for a threat, and what is equal to what."""

from __future__ import annotations

import functools
import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

import adv_wrappers as adv
from adv_wrappers.atari.ale import PressFire
from adv_wrappers.atari.raw_screen import grey, shrink
from adv_wrappers.errors import SpaceError, VictimError
from tests.every_case import every_case
from tests.rigs import same_bytes

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"  # the second loses lives soon, and waits for FIRE
SIX = (
    "brightness:alpha=1.7",
    "median-blur:k=3",
    "rotation:degrees=3",
    "shift:dx=2,dy=1",
    "jpeg:quality=20",
    "perspective:distance=2",
)
PLACES = ("raw", "frame", "stack")


def play(env, steps=12, seed=3, key=None):
    """Observations, and where the layer ``key`` attacked; actions are those of a seed."""
    rng = np.random.default_rng(0)
    obs, info = env.reset(seed=seed)
    seen, attacked = [obs], [info]
    for _ in range(steps):
        obs, _, terminated, truncated, info = env.step(int(rng.integers(env.action_space.n)))
        seen.append(obs)
        attacked.append(info)
        if terminated or truncated:
            seen.append(env.reset()[0])
    if key is None:
        return np.stack(seen)
    return np.stack(seen), [one["adv_wrappers"][key]["attacked"] for one in attacked]


def test_without_threats_it_is_the_classic_pipeline():
    base = gym.make(BREAKOUT, obs_type="grayscale", frameskip=1)
    by_hand = FrameStackObservation(PressFire(AtariPreprocessing(base, noop_max=30, frame_skip=4)), 4)
    env = adv.atari.atari(BREAKOUT)
    assert str(env) == str(by_hand)
    same_bytes(play(env, 40), play(by_hand, 40), "by hand")


@functools.cache
def clean_pong():
    return play(adv.atari.atari(PONG))


@pytest.mark.slow
@pytest.mark.parametrize("text", SIX)
def test_a_fixed_transform_at_every_step_is_the_same_on_frames_and_stacks(text):
    frame = play(adv.atari.atari(PONG, frame=text))
    same_bytes(play(adv.atari.atari(PONG, stack=text)), frame, "around the stack")
    same_bytes(play(adv.atari.atari(PONG, stack=f"{text},newest=true")), frame, "around the stack, new frames alone")
    assert (frame != clean_pong()).any()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["rotation:degrees=-5;5,per=step,when=every(3)"])
def test_frames_keep_how_they_were_shown(text):
    """Inside the stack, and around it under Newest; a plain layer around the stack renders the past anew."""
    frame = play(adv.atari.atari(BREAKOUT, frame=text), 20)
    same_bytes(play(adv.atari.atari(BREAKOUT, stack=f"{text},newest=true"), 20), frame, "new frames alone")
    stack = play(adv.atari.atari(BREAKOUT, stack=text), 20)
    assert (stack != frame).any()
    past = [(a[1:] == b[:-1]).all() for a, b in itertools.pairwise(frame)]
    assert all(past)
    assert not all((a[1:] == b[:-1]).all() for a, b in itertools.pairwise(stack))


@pytest.mark.slow
def test_steps_are_those_of_the_agent_at_every_place():
    """FIRE is pressed beneath: a lost life does not move the clock of any place."""
    received = [play(adv.atari.atari(BREAKOUT, **{place: "shift:p=0.5"}), 60, key="0:shift")[1] for place in PLACES]
    assert received[0] == received[1] == received[2] and 20 < sum(received[0]) < 40


@pytest.mark.parametrize("text", ["rotation:degrees=3"])
def test_a_raw_threat_changes_both_screens_before_they_are_grey(text):
    env = adv.atari.atari(PONG, raw=text)
    raw, transform = adv.atari.RawFrames(gym.make(PONG)), adv.threat(text.split(":")[0], **_arguments(text)).how
    env.reset(seed=1), PressFire(raw).reset(seed=1)
    for action in (2, 2, 3, 0):
        screens = transform(torch.from_numpy(raw.step(action)[0])[None], None)[0].numpy()
        by_hand = shrink(grey(screens).max(0)[None], 84)[0]
        same_bytes(env.step(action)[0][-1], by_hand, "the new frame")


def _arguments(text):
    return {key: float(value) for key, value in (pair.split("=") for pair in text.partition(":")[2].split(","))}


def test_threats_at_all_places_at_once():
    given = {
        "raw": ["jpeg:quality=20", adv.daylight.Rotation(2)],
        "frame": ("noise:eps=3",),
        "stack": "action-noise:p=0.5",
    }
    env = adv.ProbabilisticTiming(adv.atari.atari(PONG, **given), 0.5)
    obs, info = env.reset(seed=0)
    assert obs in env.observation_space
    received = []
    for _ in range(12):
        received.append([layer["attacked"] for layer in info["adv_wrappers"].values() if "jpeg" not in layer])
        info = env.step(0)[4]
        assert list(info["adv_wrappers"]) == ["0:jpeg", "1:rotation", "2:noise", "3:action-noise"]
    assert {tuple(one[:3]) for one in received} == {(True,) * 3, (False,) * 3}


def test_the_spec_builds_it_again():
    env = adv.atari.atari(PONG, raw="rotation:degrees=2", frame="noise:eps=4", stack="shift:newest=true,p=0.5")
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    same_bytes(play(again, 10), play(env, 10), "from the spec")


@pytest.fixture(scope="module")
def victim():
    net = torch.nn.Sequential(torch.nn.AvgPool2d(12), torch.nn.Flatten(), torch.nn.Linear(4 * 49, 6))
    space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    return adv.from_module(net, space, gym.spaces.Discrete(6), "logits")


def test_a_gradient_attack_belongs_at_the_stack(victim):
    env = adv.atari.atari(PONG, frame="shift", stack=["pgd:eps=2,newest=true", "fgsm:eps=1"], victim=victim)
    clean, both = adv.atari.atari(PONG, frame="shift").reset(seed=0)[0], env.reset(seed=0)[0]
    assert 0 < np.abs(clean.astype(int) - both).max() <= 3
    for place in ("raw", "frame"):
        for text, given in (("pgd:eps=2", victim), ("pgd:eps=2", None), ("shift:when=strategic(0.5)", victim)):
            for make in (adv.atari.atari, lambda *a, **k: adv.atari.atari_vec(*a, 2, **k)):
                with pytest.raises(VictimError, match=f"at {place}= there is no stack yet: give it as stack="):
                    make(PONG, **{place: text}, victim=given)


# vectors


@pytest.mark.parametrize("mode", [pytest.param("SameStep", marks=pytest.mark.slow), "NextStep"])
def test_rows_under_a_raw_threat_are_single_games(mode):
    given = {"raw": "jpeg:quality=20,p=0.5", "frame": "noise:eps=2", "max_num_frames_per_episode": 60}
    venv = adv.atari.atari_vec(PONG, 2, stack="shift", autoreset_mode=mode, **given)
    assert type(venv.unwrapped).__name__ == "SyncVectorEnv" and venv.unwrapped.autoreset_mode == AutoresetMode(mode)
    env = adv.atari.atari(PONG, stack="shift", **given)
    obs, one = venv.reset(seed=4)[0], env.reset(seed=5)[0]
    for t in range(20):
        same_bytes(obs[1], one, f"step {t}")
        obs, _, _, truncated, info = venv.step(np.array([2, 3]))
        one, _, _, over, _ = env.step(3)
        assert truncated[1] == over
        if over:
            break
    same_bytes(info["final_obs"][1] if mode == "SameStep" else obs[1], one, "the end")
    obs = obs if mode == "SameStep" else venv.step(np.array([0, 0]))[0]
    same_bytes(obs[1], env.reset()[0], "the next episode")
    assert over


@every_case(
    ("given", "message"),
    [
        ({"id": "CartPole-v1", "raw": "jpeg"}, "'CartPole-v1' is no game of the Arcade"),
        ({"id": "CartPole-v1"}, "is no game of the Arcade"),
        ({"id": "adv-daylight/Pong-JPEG-v0"}, "is no game of the Arcade"),
        ({"id": "Pingpong-v4"}, "unknown environment 'Pingpong-v4'"),
        ({"id": PONG, "nonsense": 1}, "nonsense"),
        ({"id": PONG, "raw": "jpeg:newest=true"}, "newest=true is for stacks, and at raw= jpeg"),
        ({"id": PONG, "frame": "jpeg:newest=true"}, "newest=true is for stacks, and at frame= jpeg"),
        ({"id": PONG, "frame": "jpg"}, "did you mean jpeg"),
        ({"id": PONG, "frame": "jpeg:layout=HWC"}, "layout HWC"),
        ({"id": PONG, "stack": [3]}, "expected a threat"),
    ],
)
def test_errors(given, message):
    with pytest.raises(adv.AdvWrappersError, match=message):
        adv.atari.atari(**given)
    with pytest.raises(adv.AdvWrappersError, match=message):
        adv.atari.atari_vec(**given, num_envs=1)


def test_arguments_that_raw_rows_do_not_have():
    with pytest.raises(SpaceError, match="num_threads of AtariVectorEnv cannot be given with raw="):
        adv.atari.atari_vec(PONG, 2, raw="jpeg", num_threads=1)
