"""The environment ids of the daylight paper."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import adv_wrappers as adv
from adv_wrappers import registry
from adv_wrappers.atari import daylight_ids
from adv_wrappers.daylight.daylight import PROBABILITIES, SETTINGS, TRANSFORMS
from adv_wrappers.errors import ThreatError
from tests.every_case import every_case
from tests.laws.checks import check_spec
from tests.rigs import same_bytes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def perturbing(env):
    """The wrapper that perturbs."""
    while not hasattr(env, "threat"):
        env = env.env
    return env


def test_every_game_and_transform_has_an_id():
    ids = registry.daylight_ids()
    assert len(ids) == 30 and all(name in gym.registry for name in ids)
    assert {(k["game"], k["transform"]) for k in ids.values()} == {(g, t) for g in SETTINGS for t in TRANSFORMS}
    assert ids["adv-daylight/JamesBond-MedianBlur-v0"] == {"game": "JamesBond", "transform": "median-blur"}


@pytest.mark.parametrize("game", ["BankHeist", "Pong"])
def test_daylight_by_game(game):
    """The paper's parameters on its game, and the probability of its table 7."""
    transform = TRANSFORMS[list(SETTINGS).index(game)]
    name = next(id for id, k in registry.daylight_ids().items() if k == {"game": game, "transform": transform})
    env = gym.make(f"adv_wrappers:{name}", p="paper")
    assert env.observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert env.unwrapped._game == {"BankHeist": "bank_heist", "Pong": "pong"}[game]
    threat = perturbing(env).threat
    assert threat.how == adv.threat(transform, **SETTINGS[game][transform]).how
    assert threat.when == adv.Bernoulli(PROBABILITIES[game]) and env.unwrapped.ale.getFloat(
        "repeat_action_probability"
    ) == pytest.approx(0.0)
    assert env.spec.id == name


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"place": "raw", "p": "paper", "repeat_action_probability": 0.25}, marks=pytest.mark.slow),
        pytest.param(
            {"newest": True, "p": 0.5, "max_num_frames_per_episode": 200, "mode": 0, "difficulty": 1},
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_daylight_specs(given):
    env = gym.make("adv-daylight/Pong-Rotation-v0", **given)
    assert env.spec.kwargs == {"game": "Pong", "transform": "rotation", **given} and not env.spec.additional_wrappers
    check_spec(env)
    if given.get("place") == "raw":
        check_env(env, skip_render_check=True)
    place = {"raw": "raw", "frame": "frame"}.get(given.get("place"), "stack")
    more = {k: v for k, v in given.items() if k not in ("place", "p", "newest")}
    p = {"paper": 0.06}.get(given.get("p"), given.get("p"))
    threat = adv.threat("rotation", degrees=3, p=p, newest=given.get("newest"))
    by_hand = adv.atari.atari("PongNoFrameskip-v4", **{place: threat}, **more)
    same_bytes(env.reset(seed=1)[0], by_hand.reset(seed=1)[0], "reset")
    for action in (2, 3, 0):
        same_bytes(env.step(action)[0], by_hand.step(action)[0], "step")


def test_daylight_renders():
    env = gym.make("adv-daylight/Pong-JPEG-v0", render_mode="rgb_array", place="frame")
    env.reset(seed=0)
    assert env.render().shape == (210, 160, 3)


@pytest.mark.parametrize("place", [pytest.param("raw", marks=pytest.mark.slow), "stack"])
def test_daylight_vectors(place):
    venv = gym.make_vec("adv-daylight/RiverRaid-Shift-v0", num_envs=2, place=place, p=1, autoreset_mode="SameStep")
    assert venv.single_observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert venv.unwrapped.autoreset_mode == AutoresetMode.SAME_STEP
    gym.envs.registration.EnvSpec.from_json(venv.spec.to_json())
    threat = adv.threat("shift", dx=1, dy=2, p=1)
    by_hand = adv.atari.atari_vec("RiverraidNoFrameskip-v4", 2, **{place: threat}, autoreset_mode="SameStep")
    same_bytes(venv.reset(seed=1)[0], by_hand.reset(seed=1)[0], "reset")
    rewards = 0
    for _ in range(10 if place == "raw" else 60):
        (obs, reward, *_), (other, *_) = venv.step(np.full(2, 1)), by_hand.step(np.full(2, 1))
        same_bytes(obs, other, "step")
        rewards = max(rewards, reward.max())
    assert "adv_wrappers" in venv.step(np.zeros(2, int))[4]
    assert place == "raw" or rewards > 1  # the game's own, not clipped


@every_case(
    ("given", "message"),
    [
        ({"place": "screen"}, "place must be 'raw', 'frame' or 'stack', got 'screen'"),
        ({"p": 1.5}, r"p must be a number from 0 to 1, or 'paper' \(0.06 for Pong\), got 1.5"),
        ({"p": "often"}, "p must be a number"),
        ({"p": True}, "p must be a number"),
        ({"newest": 3}, "newest must be True or False"),
        ({"newest": True, "place": "raw"}, "newest=True goes with place='stack'"),
        ({"nonsense": 1}, "this id takes place, p, newest, .*, not nonsense"),
        ({"frameskip": 2, "obs_type": "ram"}, "not frameskip, obs_type"),
        ({"game": "Tetris"}, "'BankHeist', 'JamesBond'"),
        ({"transform": "sepia"}, "median-blur"),
        ({"render_mode": "ansi"}, "render_mode"),
    ],
)
def test_wrong_arguments_of_daylight_ids(monkeypatch, given, message):
    for name in ("atari", "atari_vec"):
        monkeypatch.setattr(daylight_ids, name, lambda *a, **k: pytest.fail("ALE was started"))
    for make in (
        daylight_ids.make_daylight,
        lambda **k: daylight_ids.make_daylight_vec(2, **k),
    ):
        with pytest.raises(adv.AdvWrappersError, match=message):
            make(**{"game": "Pong", "transform": "jpeg", **given})


def test_arguments_that_only_some_daylight_ids_have():
    with pytest.raises(ThreatError, match="not mode"):
        gym.make_vec("adv-daylight/Pong-JPEG-v0", mode=1)
    with pytest.raises(ThreatError, match="not num_threads"):
        gym.make_vec("adv-daylight/Pong-JPEG-v0", place="raw", num_threads=1)
    with pytest.raises(ThreatError, match="not num_threads"):
        gym.make("adv-daylight/Pong-JPEG-v0", num_threads=1)
