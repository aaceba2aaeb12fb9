"""Ids for ``make`` and ``make_vec``."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import adv_wrappers as adv
from adv_wrappers.daylight.paper_tables import PROBABILITIES, SETTINGS, TRANSFORMS
from adv_wrappers.daylight_ids import daylight_ids, make_daylight, make_daylight_vec
from tests.laws.checks import check_spec
from tests.rigs import same_bytes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture
def fresh():
    """Ids that a test registers are gone after it."""
    before = set(gym.registry)
    yield
    for name in set(gym.registry) - before:
        del gym.registry[name]


def test_every_preset_has_an_id():
    assert all(f"adv/{name}-v0" in gym.registry for name in adv.presets)


def test_arguments_of_ids():
    env = gym.make(
        "adv_wrappers:adv/noise-v0",
        env="CartPole-v1",
        eps=0.5,
        kind="sign",
        when="every(2)",
        keep_true=True,
        timing=0.75,
    )
    layer = env.env
    assert isinstance(env, adv.ProbabilisticTiming) and layer.threat.when == adv.Every(2)
    obs, info = env.reset(seed=1)
    entry = info["adv_wrappers"]["0:noise"]
    moved = np.abs(obs - entry["true"]) if entry["struck"] else np.array([0.5])
    assert moved.max() == pytest.approx(0.5)
    for wrong in ({"steps": 3}, {"eps": -1}, {"name": "x"}):
        with pytest.raises(adv.AdvWrappersError):
            gym.make("adv_wrappers:adv/noise-v0", env="CartPole-v1", **{"eps": 0.5, **wrong})
    with pytest.raises(adv.ThreatError, match="which environment"):
        gym.make("adv_wrappers:adv/noise-v0", eps=0.5)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_autoreset_modes(mode):
    venv = gym.make_vec("adv_wrappers:adv/noise-v0", num_envs=2, env="CartPole-v1", eps=0.5, autoreset_mode=mode)
    assert venv.unwrapped.autoreset_mode == mode
    venv.reset(seed=1)
    venv.step(np.array([0, 1]))


def test_register(fresh):
    adv.register(
        "lab/Hostile-v0", env="CartPole-v1", threats=["noise:eps=0.05", adv.threat("action-flip", p=0.5)], timing=0.5
    )
    env, venv = gym.make("lab/Hostile-v0"), gym.make_vec("lab/Hostile-v0", num_envs=2, autoreset_mode="SameStep")
    single, rows = env.reset(seed=4)[0], venv.reset(seed=3)[0]
    same_bytes(rows[1], single, "row 1")
    assert env.spec.id == "lab/Hostile-v0"
    again = gym.make(env.spec)
    same_bytes(again.reset(seed=4)[0], single, "from the spec")
    with pytest.raises(adv.ThreatError, match="already"):
        adv.register("lab/Hostile-v0", env="CartPole-v1", threats=["noise:eps=0.05"])


def test_a_stack_that_cannot_work_is_refused_at_registration(fresh):
    for threats in (["noise:eps=-1"], ["pgd:eps=0.1"], ["nothing"], ["noise:norm=valid"], [3], "noise:eps=0.1"):
        with pytest.raises(adv.AdvWrappersError):
            adv.register("lab/Wrong-v0", env="CartPole-v1", threats=threats)
        assert "lab/Wrong-v0" not in gym.registry
    with pytest.raises(adv.ThreatError, match="JSON"):
        adv.register(
            "lab/Wrong-v0", env="CartPole-v1", threats=[adv.ThreatModel("observation", lambda x, c: x, adv.Linf(1))]
        )


def test_layers_around_an_id_are_recorded(fresh):
    adv.register("lab/Inner-v0", env="CartPole-v1", threats=["noise:eps=0.05"])
    env = adv.wrap(gym.make("lab/Inner-v0"), "action-flip:p=0.5")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    same_bytes(again.reset(seed=2)[0], env.reset(seed=2)[0], "reset")
    same_bytes(again.step(0)[0], env.step(0)[0], "step")
    assert set(again.step(0)[4]["adv_wrappers"]) == {"0:noise", "1:action-flip"}


def greedy(id, **kwargs):
    """What TorchRL's GymEnv does: it offers a frameskip, and keeps it back on Python's own error."""
    kwargs["frameskip"] = 1
    while True:
        try:
            return gym.make(id, **kwargs)
        except TypeError as error:
            assert "unexpected keyword argument 'frameskip'" in str(error)
            kwargs.pop("frameskip")


def test_libraries_that_offer_a_frameskip_and_have_an_env_of_their_own(fresh):
    adv.register("lab/Skipped-v0", env="CartPole-v1", threats=["noise:eps=0.05"])
    envs = [
        greedy("adv_wrappers:adv/noise-v0", env_id="CartPole-v1", eps=0.05),
        greedy("lab/Skipped-v0"),
        gym.make("adv/noise-v0", env="CartPole-v1", eps=0.05),
    ]
    first, *others = (env.reset(seed=1)[0] for env in envs)
    assert all(np.array_equal(first, other) for other in others)
    greedy("adv-daylight/Pong-Rotation-v0").close()
    for id in ("adv/noise-v0", "adv-daylight/Pong-Rotation-v0", "lab/Skipped-v0"):
        with pytest.raises(adv.ThreatError, match="not frameskip"):
            gym.make(id, frameskip=1)
    venv = gym.make_vec("adv/noise-v0", num_envs=2, env_id="CartPole-v1", eps=0.05)
    assert venv.reset(seed=0)[0].shape == (2, 4)
    with pytest.raises(adv.ThreatError, match="two names"):
        gym.make("adv/noise-v0", env_id="CartPole-v1", env="CartPole-v1", eps=0.05)


def test_ids_of_the_control_suite_are_found():
    pytest.importorskip("dm_control")
    env = gym.make("adv/noise-v0", env="dm_control/pendulum-swingup-v0", eps=0.1, at="velocity")
    assert set(env.reset(seed=0)[0]) == {"orientation", "velocity"}


def test_ids_of_the_control_suite_without_shimmy(monkeypatch):
    monkeypatch.setitem(sys.modules, "shimmy", None)
    for name in [name for name in gym.registry if name.startswith("dm_control/")]:
        monkeypatch.delitem(gym.registry, name)
    with pytest.raises(adv.SpaceError, match=r"adv_wrappers\[dmc\]"):
        gym.make("adv/noise-v0", env="dm_control/pendulum-swingup-v0", eps=0.1)


# daylight


def layer_of(env):
    return next(shell for shell in adv.wrappers.layer.chain(env) if hasattr(shell, "threat"))


def test_every_game_and_transform_has_an_id():
    ids = daylight_ids()
    assert len(ids) == 30 and all(name in gym.registry for name in ids)
    assert {(k["game"], k["transform"]) for k in ids.values()} == {(g, t) for g in SETTINGS for t in TRANSFORMS}
    assert ids["adv-daylight/JamesBond-MedianBlur-v0"] == {"game": "JamesBond", "transform": "median-blur"}


@pytest.mark.parametrize("game", list(SETTINGS))
def test_daylight_by_game(game):
    """The paper's parameters on its game, and the probability of its table 7."""
    transform = TRANSFORMS[list(SETTINGS).index(game)]
    name = next(id for id, k in daylight_ids().items() if k == {"game": game, "transform": transform})
    env = gym.make(f"adv_wrappers:{name}", p="paper")
    assert env.observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert env.unwrapped._game == {"BankHeist": "bank_heist", "TimePilot": "time_pilot"}.get(game, game.lower())
    threat = layer_of(env).threat
    assert threat.how == adv.threat(transform, **SETTINGS[game][transform]).how
    assert threat.when == adv.Bernoulli(PROBABILITIES[game]) and env.unwrapped.ale.getFloat(
        "repeat_action_probability"
    ) == pytest.approx(0.0)
    assert env.spec.id == name


@pytest.mark.parametrize(
    "given",
    [
        {}, {"place": "frame", "p": 0.5}, {"place": "raw", "p": "paper", "repeat_action_probability": 0.25},
        {"newest": True, "p": 0.5}, {"max_num_frames_per_episode": 200, "mode": 0, "difficulty": 1},
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_daylight_specs(given):
    env = gym.make("adv-daylight/Pong-Rotation-v0", **given)
    assert env.spec.kwargs == {"game": "Pong", "transform": "rotation", **given} and not env.spec.additional_wrappers
    check_spec(env)
    if "place" in given:
        check_env(env, skip_render_check=True)
    place = {"raw": "raw", "frame": "frame"}.get(given.get("place"), "stack")
    more = {k: v for k, v in given.items() if k not in ("place", "p", "newest")}
    p = {"paper": 0.06}.get(given.get("p"), given.get("p"))
    threat = adv.threat("rotation", degrees=3, p=p, newest=given.get("newest"))
    by_hand = adv.atari("PongNoFrameskip-v4", **{place: threat}, **more)
    same_bytes(env.reset(seed=1)[0], by_hand.reset(seed=1)[0], "reset")
    for action in (2, 3, 0):
        same_bytes(env.step(action)[0], by_hand.step(action)[0], "step")


def test_daylight_renders():
    env = gym.make("adv-daylight/Pong-JPEG-v0", render_mode="rgb_array", place="frame")
    env.reset(seed=0)
    assert env.render().shape == (210, 160, 3)


@pytest.mark.parametrize("place", ["raw", "frame", "stack"])
def test_daylight_vectors(place):
    venv = gym.make_vec("adv-daylight/RiverRaid-Shift-v0", num_envs=2, place=place, p=1, autoreset_mode="SameStep")
    assert venv.single_observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert venv.unwrapped.autoreset_mode == AutoresetMode.SAME_STEP
    gym.envs.registration.EnvSpec.from_json(venv.spec.to_json())
    threat = adv.threat("shift", dx=1, dy=2, p=1)
    by_hand = adv.atari_vec("RiverraidNoFrameskip-v4", 2, **{place: threat}, autoreset_mode="SameStep")
    same_bytes(venv.reset(seed=1)[0], by_hand.reset(seed=1)[0], "reset")
    rewards = 0
    for action in [1] * 10:
        (obs, reward, *_), (other, *_) = venv.step(np.full(2, action)), by_hand.step(np.full(2, action))
        same_bytes(obs, other, "step")
        rewards = max(rewards, reward.max())
    assert "adv_wrappers" in venv.step(np.zeros(2, int))[4]


def test_rewards_of_daylight_vectors_are_the_games_own():
    venv = gym.make_vec("adv-daylight/RiverRaid-Shift-v0", num_envs=2, num_threads=1)
    venv.reset(seed=1)
    assert max(venv.step(np.full(2, 1))[1].max() for _ in range(60)) > 1  # not clipped


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"place": "screen"}, "place must be one of raw, frame, stack, got 'screen'"),
        ({"p": 1.5}, r"p must be a number from 0 to 1, or 'paper' \(0.06 for Pong\), got 1.5"),
        ({"p": "often"}, "p must be a number"),
        ({"p": True}, "p must be a number"),
        ({"newest": 3}, "newest must be true or false"),
        ({"newest": True, "place": "raw"}, "newest=True goes with place='stack'"),
        ({"nonsense": 1}, "this id takes place, p, newest, .*, not nonsense"),
        ({"frameskip": 2, "obs_type": "ram"}, "not frameskip, obs_type"),
        ({"game": "Tetris"}, "BankHeist, JamesBond"),
        ({"transform": "sepia"}, "median-blur"),
        ({"render_mode": "ansi"}, "render_mode"),
    ],
)
def test_wrong_arguments_of_daylight_ids(monkeypatch, given, message):
    for name in ("atari", "atari_vec"):
        monkeypatch.setattr(f"adv_wrappers.daylight_ids.{name}", lambda *a, **k: pytest.fail("ALE was started"))
    for make in (make_daylight, lambda **k: make_daylight_vec(2, **k)):
        with pytest.raises(adv.AdvWrappersError, match=message):
            make(**{"game": "Pong", "transform": "jpeg", **given})


def test_arguments_that_only_some_daylight_ids_have():
    with pytest.raises(adv.ThreatError, match="not mode"):
        gym.make_vec("adv-daylight/Pong-JPEG-v0", mode=1)
    with pytest.raises(adv.ThreatError, match="not num_threads"):
        gym.make_vec("adv-daylight/Pong-JPEG-v0", place="raw", num_threads=1)
    with pytest.raises(adv.ThreatError, match="not num_threads"):
        gym.make("adv-daylight/Pong-JPEG-v0", num_threads=1)
