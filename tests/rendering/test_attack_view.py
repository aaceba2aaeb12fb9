"""A view as a wrapper: of vectors, in specs, under Gymnasium's recorders; and what it refuses."""

from __future__ import annotations

import sys
import types

import gymnasium as gym
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordVideo, RenderCollection

import adv_wrappers as adv
from adv_wrappers.errors import OrderError, SpaceError, ValueRangeError
from adv_wrappers.rendering import attack_view
from adv_wrappers.rendering.attack_view import AttackView
from tests.rigs import IMAGE, RIGS, ReplayEnv, recorded


def still():
    return ReplayEnv(recorded(IMAGE, True), IMAGE, spaces.Discrete(3))


@pytest.mark.parametrize(("at", "panels"), [(1, "true"), (0, "observation")])
def test_leaves_of_a_tuple(monkeypatch, at, panels):
    """The image that is perturbed, or the number."""
    seen = []
    monkeypatch.setattr(attack_view, "compose_panels", lambda header, found: seen.append(found))
    space = spaces.Tuple([spaces.Discrete(3), IMAGE])
    env = ReplayEnv(recorded(space, True), space, spaces.Discrete(3))
    env = AttackView(adv.wrap(env, adv.threat("noise", norm="valid", at=at)), size=12)
    env.reset(seed=0)
    env.render()
    assert seen[0][0][0] == panels


def test_a_view_changes_nothing_and_draws_only_when_asked(monkeypatch):
    monkeypatch.setattr(attack_view, "compose_panels", lambda *_: pytest.fail("drawn without being asked"))
    plain, view = (adv.wrap(still(), "noise:eps=9", "action-flip:p=0.5") for _ in range(2))
    view = AttackView(view)
    assert (plain.reset(seed=3)[0] == view.reset(seed=3)[0]).all()
    for _ in range(3):
        a, b = plain.step(1), view.step(1)
        assert (a[0] == b[0]).all() and a[1] == b[1] and str(a[4]) == str(b[4])


def test_metadata_and_collections():
    env = AttackView(adv.wrap(still(), "noise:eps=9"), size=12)
    assert env.render_mode == "rgb_array" and env.metadata["render_modes"] == ["rgb_array"]
    assert env.metadata["render_fps"] == 30 and env.metadata["adv_wrappers.layers"] == 1
    env = RenderCollection(env)
    env.reset(seed=0)
    env.step(0)
    frames = env.render()
    assert len(frames) == 2 and frames[0].shape == frames[1].shape


def test_record_video(monkeypatch, tmp_path):
    """Gymnasium's own wrapper takes the pictures, though the environment beneath cannot render."""
    films = []

    class Clip:
        def __init__(self, frames, fps):
            films.append((list(frames), fps))

        def write_videofile(self, path, logger=None):
            pass

    for name in ("moviepy", "moviepy.video", "moviepy.video.io", "moviepy.video.io.ImageSequenceClip"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["moviepy.video.io.ImageSequenceClip"].ImageSequenceClip = Clip
    view = AttackView(adv.wrap(still(), "noise:eps=9"), size=12)
    assert view.env.render_mode is None
    env = RecordVideo(view, str(tmp_path / "film"))
    env.reset(seed=0)
    env.step(0)
    last = view.render()
    env.close()
    frames, fps = films[0]
    assert fps == 30 and len(frames) == 2 and (frames[1] == last).all()


def test_a_spec_builds_the_view_again():
    env = AttackView(adv.wrap(gym.make("tests/Frames-v0"), "noise:eps=9", "action-flip"), size=24)
    again = gym.make(env.spec)
    assert isinstance(again, AttackView) and gym.make(again.spec).spec == env.spec
    env.reset(seed=0), again.reset(seed=0)
    assert (env.render() == again.render()).all()


def test_errors():
    rig = RIGS["q"]
    with pytest.raises(OrderError, match="there are none"):
        AttackView(rig.env())
    with pytest.raises(OrderError, match="around each environment"):
        AttackView(adv.wrap(SyncVectorEnv([rig.env] * 2), "noise:eps=0.1"))
    with pytest.raises(SpaceError, match="gymnasium Env"):
        AttackView("CartPole-v1")
    env = adv.wrap(rig.env(), "noise:eps=0.1")
    for arguments in ({"size": 0}, {"size": "much"}):
        with pytest.raises(ValueRangeError, match=next(iter(arguments))):
            AttackView(env, **arguments)
    with pytest.raises(ResetNeeded):
        AttackView(env).render()
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
    with pytest.raises(OrderError, match="around each environment"):
        AttackView(adv.wrap(sb3.DummyVecEnv([rig.env]), "noise:eps=0.1"))


# threats to screens


def drawn(env, monkeypatch):
    """What a view would compose, by title."""
    seen = []
    monkeypatch.setattr(attack_view, "compose_panels", lambda header, panels: seen.append(dict(panels)))
    env.render()
    return [{title: image[::4, ::4] for title, image in one.items()} for one in seen]


@pytest.mark.parametrize("text", ["rotation:degrees=9", "rotation:degrees=9,layout=FHWC"])
def test_true_screens_are_shown_as_the_agent_would_see_them(monkeypatch, text):
    """Around ``ShrinkFrames`` true and shown screens have one form, and so there is a difference."""
    clean, env = adv.atari.atari("PongNoFrameskip-v4"), AttackView(adv.atari.atari("PongNoFrameskip-v4", raw=text))
    clean.reset(seed=1), env.reset(seed=1)
    for _ in range(3):
        true, shown = clean.step(2)[0], env.step(2)[0]
    (panels,) = drawn(env, monkeypatch)
    assert (panels["true"] == true[-1][..., None]).all()
    assert (panels["seen by the agent"] == shown[-1][..., None]).all() and (true[-1] != shown[-1]).any()
    assert (panels["difference x 1"] == 128).mean() < 0.9


def test_right_around_the_layer_screens_are_in_colour(monkeypatch):
    raw = adv.wrap(adv.atari.RawFrames(gym.make("PongNoFrameskip-v4")), "shift:dx=9")
    env = AttackView(raw, size=1)
    env.reset(seed=1)
    seen = []
    monkeypatch.setattr(attack_view, "compose_panels", lambda header, panels: seen.extend(panels))
    env.render()
    assert [title.split(" x ")[0] for title, _ in seen] == ["true", "seen by the agent", "difference"]
    assert (seen[0][1] == env.unwrapped.ale.getScreenRGB()).all()
