"""What a view draws, through AttackView: panels of pixels, what changed, charts of vectors, and the captions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

import adv_wrappers as adv
from adv_wrappers.rendering import attack_view, frames
from adv_wrappers.rendering.attack_view import LINE, MARGIN, NARROWEST, AttackView
from adv_wrappers.rendering.frames import UNCHANGED
from tests.every_case import every_case
from tests.rigs import RIGS, ReplayEnv, recorded

ATTACKED = frames.rgb(frames.ATTACKED)
PICTURES = {
    "stack": (spaces.Box(0, 255, (4, 12, 12), np.uint8), lambda x: x[-1][..., None].repeat(3, -1)),
    "colour": (spaces.Box(0, 255, (12, 10, 3), np.uint8), lambda x: x),
    "planes": (spaces.Box(0, 255, (3, 10, 12), np.uint8), lambda x: x.transpose(1, 2, 0)),
    "float": (
        spaces.Box(-1, 1, (2, 10, 12), np.float32),
        lambda x: np.rint((x[-1][..., None].repeat(3, -1).astype(np.float64) + 1) * 127.5).clip(0, 255),
    ),
}


def replay(space, **kwargs):
    return ReplayEnv(recorded(space, True), space, spaces.Discrete(3), **kwargs)


def panels(frame, count, size, lines):
    """The pictures beside each other, without captions, one pixel a pixel of the observation."""
    high, wide, factor = size[0], size[1], -(-60 // max(size))
    top, step = MARGIN + LINE * (lines + 1), max(wide * factor, NARROWEST) + MARGIN
    found = []
    for i in range(count):
        x = MARGIN + i * step
        large = frame[top : top + high * factor, x : x + wide * factor]
        small = large[::factor, ::factor]
        assert (small.repeat(factor, 0).repeat(factor, 1) == large).all()
        found.append(small)
    return found


@every_case("name", PICTURES)
def test_the_panels_are_the_true_and_the_perturbed_observation(name):
    space, look = PICTURES[name]
    eps = 20 if space.dtype == np.uint8 else 0.1
    env = AttackView(adv.wrap(replay(space), f"noise:eps={eps}", keep_true=True), size=60)
    obs, info = env.reset(seed=2)
    for _ in range(2):
        frame = env.render()
        assert frame.dtype == np.uint8 and frame.shape[0] % 2 == 0 and frame.shape[1] % 2 == 0
        true = look(info["adv_wrappers"]["0:noise"]["true"])
        first, second, third = panels(frame, 3, true.shape[:2], 2)
        assert (first == true).all() and (second == look(obs)).all() and (first != second).any()
        gain = 5 if space.dtype == np.uint8 else 10  # the largest that 20 levels allow; 0.1 of 2 is 12.75 of them
        wanted = UNCHANGED + gain * (look(obs).astype(int) - true.astype(int))
        assert np.abs(third - np.clip(wanted, 0, 255)).max() <= (0 if space.dtype == np.uint8 else gain)
        obs, _, _, _, info = env.step(0)


def test_nothing_changed_is_grey_all_over():
    env = AttackView(adv.wrap(replay(PICTURES["stack"][0]), "noise:eps=9,when=never()"), size=60)
    env.reset(seed=0)
    frame = env.render()
    first, second, third = panels(frame, 3, (12, 12), 2)
    assert (first == second).all() and (third == UNCHANGED).all()
    assert not (frame == ATTACKED).all(-1).any()


def test_the_dot_is_red_where_a_threat_attacked():
    env = AttackView(adv.wrap(replay(PICTURES["stack"][0]), "noise:eps=1,when=every(2)"), size=60)
    env.reset(seed=0)
    dots = []
    for _ in range(3):
        dots.append(bool((env.render()[MARGIN + LINE : MARGIN + 2 * LINE, :24] == ATTACKED).all(-1).any()))
        env.step(0)
    assert dots == [True, False, True]


def captured(monkeypatch, env):
    """Header and titles of the picture that an environment renders."""
    seen = {}

    def compose(header, pictures):
        seen.update(header=header, titles=[title for title, _ in pictures], pictures=[p for _, p in pictures])
        return np.zeros((2, 2, 3), np.uint8)

    monkeypatch.setattr(attack_view, "compose_panels", compose)
    env.render()
    return seen


def test_a_frame_stack_outside_the_layer(monkeypatch):
    """The layer sees single frames; the newest of the stack is compared with it."""
    space = spaces.Box(0, 255, (12, 14), np.uint8)
    env = AttackView(FrameStackObservation(adv.wrap(replay(space), "noise:eps=30"), 3), size=14)
    obs, _ = env.reset(seed=1)
    seen = captured(monkeypatch, env)
    assert (seen["pictures"][1][..., 0] == obs[-1]).all() and len(seen["pictures"]) == 3
    other = gym.wrappers.ResizeObservation(adv.wrap(replay(space), "noise:eps=30"), (20, 20))
    env = AttackView(other, size=10)
    env.reset(seed=1)
    assert captured(monkeypatch, env)["titles"] == ["true", "seen by the agent"]


def test_captions(monkeypatch):
    def other(a, context):
        return (a + 1) % 3

    threats = ["daylight:game=Pong,transform=shift", "noise:eps=2,p=0", adv.ThreatModel("action", other, adv.Valid())]
    env = AttackView(adv.wrap(replay(PICTURES["stack"][0]), *threats))
    env.reset(seed=0)
    lines = [text for _, text in captured(monkeypatch, env)["header"]]
    assert lines == [
        "t = 0",
        "shift:dx=2,dy=1   attacked",
        "noise:eps=2,when=bernoulli(0)   not attacked",
        "<other>:norm=valid   not attacked",
        "the agent's action -, the environment received -",
    ]
    env.step(np.int64(1))
    lines = [text for _, text in captured(monkeypatch, env)["header"]]
    assert lines[0] == "t = 1" and lines[3] == "<other>:norm=valid   attacked"
    assert lines[-1] == "the agent's action 1, the environment received 2" and env.unwrapped.received[-1] == [2]
    env.reset()
    assert captured(monkeypatch, env)["header"][-1][1].endswith("received -")


def test_vectors_beside_the_environments_own_rendering(monkeypatch):
    class Rendering(ReplayEnv):
        render_mode = "rgb_array"

        def render(self):
            return np.full((50, 100, 3), (9, 200, 30), np.uint8)

    rig = RIGS["q"]
    env = Rendering(rig.env().recordings, rig.space, rig.actions)
    env = AttackView(adv.wrap(env, "noise:eps=0.2,kind=sign"), size=80)
    env.reset(seed=0)
    seen = captured(monkeypatch, env)
    assert seen["titles"] == ["environment", "observation"]
    assert seen["pictures"][0].shape == (80, 160, 3) and (seen["pictures"][0] == (9, 200, 30)).all()
    bars = seen["pictures"][1]
    assert (bars == ATTACKED).all(-1).any()
    # noise by signs reaches the edge of the budget in every feature: 80 columns to the left or to the right
    for i in range(4):
        columns = np.flatnonzero((bars[LINE * (i + 1) + 10] == ATTACKED).all(-1))
        columns = columns[columns > 240]
        assert {columns.min(), columns.max()} & {350 - 80 - 4, 350 + 80 + 4}


def test_dictionaries_and_many_features(monkeypatch):
    env = AttackView(adv.wrap(RIGS["dict"].env(), "noise:eps=0.2,at=vector"))
    env.reset(seed=0)
    assert captured(monkeypatch, env)["pictures"][0].shape[0] == LINE * 6
    space = spaces.Box(-3, 3, (40,), np.float32)
    env = AttackView(adv.wrap(replay(space), "noise:eps=0.2"))
    env.reset(seed=0)
    assert captured(monkeypatch, env)["pictures"][0].shape == (LINE + 8 * 40, 460, 3)
