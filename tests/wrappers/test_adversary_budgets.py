"""The adversary environment once it is made: another budget, rewards of its own, the adversary's actions."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.adversaries.actor import check_actions, unit_box
from adv_wrappers.errors import BudgetError, SpaceError, ValueRangeError
from tests.rigs import same_bytes

WIDE, NARROW = adv.Linf(0.3), adv.Linf(0.05)
SHELLS = ["env", "vector", "sb3"]


def game(wrapper, name="CartPole-v1", rows=3):
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make():
        return gym.make(name)

    if wrapper == "vector":
        return SyncVectorEnv([make] * rows, autoreset_mode=AutoresetMode.SAME_STEP)
    return make() if wrapper == "env" else DummyVecEnv([make] * rows)


def hopper(wrapper, actor, within):
    return adv.AdversaryEnv(game(wrapper, "Hopper-v5"), "zoo:hopper-ppo", actor, within)


def action_of(env, wrapper, value=0.0):
    shape = env.action_space.shape  # SB3's is of one row
    return np.full((env.num_envs, *shape) if wrapper == "sb3" else shape, value, np.float32)


@pytest.mark.parametrize("actor", ["sa-rl", "pa-ad", "pa-ad-action"])
def test_choices_are_refused(actor):
    lake = gym.make("FrozenLake-v1")
    victim = adv.from_module(torch.nn.Embedding(16, 4), lake.observation_space, lake.action_space, "q")
    with pytest.raises(SpaceError, match=r"needs Box observations, got Discrete\(16\)"):
        adv.AdversaryEnv(lake, victim, actor, adv.Valid())


@pytest.mark.parametrize("wrapper", SHELLS)
def test_another_budget_of_the_observations(wrapper):
    env = hopper(wrapper, "sa-rl", WIDE)
    shown, act = [], env.runner.act
    env.runner.act = lambda seen: shown.append(np.array(seen)) or act(seen)
    env.reset(**({} if wrapper == "sb3" else {"seed": 0}))
    for within in (WIDE, NARROW):
        if within is NARROW:
            env.set_budget(within)
        true = np.array(env._true)
        env.step(action_of(env, wrapper, 1.0))
        assert np.abs(shown[-1] - true).max() == pytest.approx(within.eps)
        assert env.whole_threat.within == env.threat.within == env.engine.applied.budget == within
    with pytest.raises(BudgetError, match="scale has 2 numbers"):
        env.set_budget(adv.Linf(1.0, scale=(1.0, 2.0)))
    assert env.whole_threat.within == env.engine.applied.budget == NARROW


@pytest.mark.parametrize("wrapper", SHELLS)
def test_another_budget_of_the_actions(wrapper):
    """The layer of actions gets it, not the one around it that never attacks."""
    env = hopper(wrapper, "pa-ad-action", NARROW)
    inner = env.venv if wrapper == "sb3" else env.env
    moved, apply = [], inner.engine.apply

    def watched(value, *more, **named):
        out = apply(value, *more, **named)
        moved.append(np.abs(np.asarray(out) - np.clip(value, -1, 1)).max())
        return out

    inner.engine.apply = watched
    env.reset(**({} if wrapper == "sb3" else {"seed": 0}))
    for within in (NARROW, WIDE):
        if within is WIDE:
            env.set_budget(within)
        env.step(action_of(env, wrapper, 1.0))
        assert moved[-1] == pytest.approx(within.eps, abs=1e-5)
        assert inner.whole_threat.within == inner.threat.within == within
    for bad, message in ((adv.Linf(1.0, scale=(1.0, 2.0)), "scale has 2 numbers"), (0.3, "must be a budget .*got 0.3")):
        with pytest.raises(BudgetError, match=message):
            env.set_budget(bad)
    assert inner.whole_threat.within == inner.engine.applied.budget == WIDE
    assert env.threat.within == adv.Valid()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("actor", ["sa-rl", "pa-ad", "pa-ad-action"])
def test_another_budget_is_recorded(actor):
    env = hopper("env", actor, NARROW)
    assert '"eps": 0.05' in env.spec.to_json()
    env.set_budget(WIDE)
    again = gym.make(EnvSpec.from_json(json.loads(json.dumps(env.spec.to_json()))))
    same_bytes(again.reset(seed=3)[0], env.reset(seed=3)[0], "reset")
    for t in range(3):
        action = np.full(env.action_space.shape, 0.7, np.float32)
        same_bytes(again.step(action)[0], env.step(action)[0], f"step {t}")
    assert '"eps": 0.3' in env.spec.to_json() and '"eps": 0.05' not in env.spec.to_json()


def test_another_budget_of_a_hybrid():
    """That of the observations; the reach stays."""
    env = hopper("env", adv.Hybrid(adv.PAAD(), adv.ActionPAAD(), adv.Linf(0.2)), NARROW)
    env.set_budget(WIDE)
    assert env.whole_threat.within == env.engine.applied.budget == WIDE
    assert env.env.whole_threat.within == env.env.engine.applied.budget == adv.Linf(0.2)
    again = gym.make(EnvSpec.from_json(json.loads(json.dumps(env.spec.to_json()))))
    assert again.threat.within == WIDE and again.env.whole_threat.within == adv.Linf(0.2)


def test_discrete_actions_take_no_distance():
    env = adv.AdversaryEnv(game("env"), "zoo:cartpole-a2c", "pa-ad-action")
    with pytest.raises(BudgetError, match="no distance"):
        env.set_budget(WIDE)
    assert env.env.whole_threat.within == adv.Valid()


OWN = {
    "scalar": (lambda r: 1.0, r"shape \(\)"),
    "column": (lambda r: -np.reshape(r, (-1, 1)), r"shape \((3|1), 1\)"),
    "longer": (lambda r: np.zeros(4), r"shape \(4,\)"),
    "ragged": (lambda r: [[1.0], [1.0, 2.0]], "no array"),
    "nan": (lambda r: np.nan * r, "nan"),
}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("wrapper", SHELLS)
def test_rewards_of_another_shape(wrapper, own):
    function, got = OWN[own]
    env = adv.AdversaryEnv(game(wrapper), "zoo:cartpole-a2c", "sa-rl", NARROW, reward=lambda r, **more: function(r))
    env.reset()
    if wrapper == "env" and own == "scalar":
        assert env.step(action_of(env, wrapper))[1] == 1.0
        return
    expected = r"\(\)" if wrapper == "env" else r"\(3,\)"
    with pytest.raises(ValueRangeError, match=f"reward must be finite.*expected shape {expected}, got .*{got}"):
        env.step(action_of(env, wrapper))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.uint64])
def test_choices(dtype):
    checked = check_actions(torch.tensor([0, 2], dtype=dtype), spaces.Discrete(3), 2)
    assert checked.dtype == torch.int64 and checked.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [(torch.float64, torch.float64), (torch.float16, torch.float16), (torch.int64, torch.float32)],
)
def test_numbers_are_clipped(given, dtype):
    checked = check_actions(torch.tensor([[-3, 1], [0, 2]], dtype=given), unit_box(2), 2)
    assert checked.dtype == dtype and checked.tolist() == [[-1, 1], [0, 1]]


BAD = [
    (torch.zeros(3, 7), unit_box(4), r"shape \(3, 4\), got \(3, 7\)"),
    (torch.zeros(4), unit_box(4), r"shape \(3, 4\), got \(4,\)"),
    (torch.zeros(3, 1, dtype=torch.int64), spaces.Discrete(2), r"shape \(3,\), got \(3, 1\)"),
    (torch.zeros(3), spaces.Discrete(2), "integers below 2"),
    (torch.zeros(3, dtype=torch.bool), spaces.Discrete(2), "integers below 2"),
    (torch.tensor([0, 9, 1]), spaces.Discrete(2), "integers below 2"),
    (torch.tensor([0, -1, 1]), spaces.Discrete(2), "integers below 2"),
    (torch.tensor([0, 2**63 + 5, 1], dtype=torch.uint64), spaces.Discrete(2), "integers below 2"),
    (torch.full((3, 4), torch.nan), unit_box(4), "finite"),
    (torch.full((3, 4), torch.inf), unit_box(4), "finite"),
    (torch.zeros(3, 4, dtype=torch.complex64), unit_box(4), "finite"),
]


@pytest.mark.parametrize(("action", "space", "match"), BAD, ids=lambda value: str(value)[:40])
def test_actions_that_are_none(action, space, match):
    with pytest.raises(ValueRangeError, match=match):
        check_actions(action, space, 3)


def test_other_devices_are_not_waited_for():
    """A meta tensor has a shape and a dtype but no values: looking at one would raise."""
    choices = check_actions(torch.zeros(3, dtype=torch.int32, device="meta"), spaces.Discrete(2), 3)
    numbers = check_actions(torch.zeros(3, 4, device="meta"), unit_box(4), 3)
    assert choices.dtype == torch.int64 and numbers.shape == (3, 4)
    for action, space, message in (
        (torch.zeros(3, device="meta"), spaces.Discrete(2), "integers below 2"),
        (torch.zeros(2, 4, device="meta"), unit_box(4), r"of shape \(3, 4\), got \(2, 4\)"),
    ):
        with pytest.raises(ValueRangeError, match=message):
            check_actions(action, space, 3)


@pytest.mark.parametrize("wrapper", SHELLS)
@pytest.mark.parametrize("actor", ["sa-rl", "pa-ad-action"])
def test_steers_from_outside_that_are_none(wrapper, actor):
    within = NARROW if actor == "sa-rl" else None
    env = adv.AdversaryEnv(game(wrapper), "zoo:cartpole-a2c", actor, within)
    env.reset()
    for action in (None, "left", np.array([None] * 3)):
        with pytest.raises(ValueRangeError, match="expected actions of shape"):
            env.step(action)


def test_actions_that_numpy_keeps_otherwise():
    """Bytes swapped, read only, reversed, or of another precision: what counts is the numbers."""
    env = adv.AdversaryEnv(game("env"), "zoo:cartpole-a2c", "sa-rl", NARROW)
    plain = np.array([0.5, -2.0, 1.0, 0.0], np.float32)
    locked = plain.copy()
    locked.flags.writeable = False
    env.reset(seed=1)
    expected = env.step(plain)[0]
    for action in (plain.astype(">f4"), locked, plain[::-1].copy()[::-1], plain.astype(np.float64), plain.tolist()):
        env.reset(seed=1)
        same_bytes(env.step(action)[0], expected, "step")
        assert env.engine.memory["action"].dtype == torch.float32
