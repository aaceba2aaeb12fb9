"""Ids for ``make`` and ``make_vec``."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, ThreatError
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
    moved = np.abs(obs - entry["true"]) if entry["attacked"] else np.array([0.5])
    assert moved.max() == pytest.approx(0.5)
    for wrong in ({"steps": 3}, {"eps": -1}, {"name": "x"}):
        with pytest.raises(adv.AdvWrappersError, match=next(iter(wrong))):
            gym.make("adv_wrappers:adv/noise-v0", env="CartPole-v1", **{"eps": 0.5, **wrong})
    with pytest.raises(ThreatError, match="which environment"):
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
    with pytest.raises(ThreatError, match="already"):
        adv.register("lab/Hostile-v0", env="CartPole-v1", threats=["noise:eps=0.05"])


def test_a_stack_that_cannot_work_is_refused_at_registration(fresh):
    for threats, message in (
        (["noise:eps=-1"], "eps must be .*-1"),
        (["pgd:eps=0.1"], "needs a victim"),
        (["nothing"], "unknown preset 'nothing'"),
        (["noise:norm=valid"], "valid is unbounded"),
        ([3], "expected a threat, .*got 3"),
        ("noise:eps=0.1", "threats is a list"),
    ):
        with pytest.raises(adv.AdvWrappersError, match=message):
            adv.register("lab/Wrong-v0", env="CartPole-v1", threats=threats)
        assert "lab/Wrong-v0" not in gym.registry
    with pytest.raises(ThreatError, match="JSON"):
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
        with pytest.raises(ThreatError, match="not frameskip"):
            gym.make(id, frameskip=1)
    venv = gym.make_vec("adv/noise-v0", num_envs=2, env_id="CartPole-v1", eps=0.05)
    assert venv.reset(seed=0)[0].shape == (2, 4)
    with pytest.raises(ThreatError, match="two names"):
        gym.make("adv/noise-v0", env_id="CartPole-v1", env="CartPole-v1", eps=0.05)


def test_ids_of_the_control_suite_are_found():
    pytest.importorskip("dm_control")
    env = gym.make("adv/noise-v0", env="dm_control/pendulum-swingup-v0", eps=0.1, at="velocity")
    assert set(env.reset(seed=0)[0]) == {"orientation", "velocity"}


def test_ids_of_the_control_suite_without_shimmy(monkeypatch):
    monkeypatch.setitem(sys.modules, "shimmy", None)
    for name in [name for name in gym.registry if name.startswith("dm_control/")]:
        monkeypatch.delitem(gym.registry, name)
    with pytest.raises(SpaceError, match=r"adv_wrappers\[dmc\]"):
        gym.make("adv/noise-v0", env="dm_control/pendulum-swingup-v0", eps=0.1)
