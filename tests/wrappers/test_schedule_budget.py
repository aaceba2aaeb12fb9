"""A curriculum over the budget: what it is at its ends, when it changes, what it leaves alone, and what it refuses."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, OrderError, SpaceError, ValueRangeError
from adv_wrappers.wrappers.schedule_budget import VectorScheduleBudget
from tests.every_case import every_case
from tests.rigs import RIGS, ReplayEnv, run, same, same_bytes

RAMP = adv.LinearSchedule(0.0, 1.0)


def wrapped(rig, threats, schedule=None, steps=1):
    """A wrapper of an environment in some threats and, if there is one, a schedule of their budgets."""

    def wrapper(env):
        env = adv.wrap(env, *threats, victim=RIGS[rig].victim())
        return env if schedule is None else adv.ScheduleBudget(env, schedule, steps)

    return wrapper


@pytest.mark.parametrize(
    ("rig", "kind", "inside"),
    [
        ("mean", "env", 0), ("mean", "tensor", 0), ("mean", "next", 1), ("mean", "disabled", 0),
        ("image", "same", 0), ("image", "same", 1),
    ],
)  # fmt: skip
def test_the_whole_budget_is_the_threat_to_the_bit_and_none_of_it_the_identity(rig, kind, inside):
    threats = {
        "mean": ["noise:eps=0.2", "max-diff:eps=0.1,scale=victim", "action-noise:eps=0.1"],
        "image": ["noise:eps=2.5,newest=true"],
    }[rig]
    whole = run(kind, RIGS[rig], wrapped(rig, threats, adv.LinearSchedule(1.0, 1.0), 5), inside=inside)
    same(whole, run(kind, RIGS[rig], wrapped(rig, threats), inside=inside), True, "share 1")
    none = run(kind, RIGS[rig], wrapped(rig, threats, 0.0), inside=inside)
    same(none, run(kind, RIGS[rig]), True, "share 0")


def test_once_the_schedule_is_at_its_end_the_threat_is_what_it_was():
    env, plain = (wrapped("mean", ["noise:eps=0.2"], s, 10)(RIGS["mean"].env()) for s in (RAMP, None))
    action, budgets = np.zeros(3, np.float32), []
    for e in (env, plain):
        e.reset(seed=1)
        for _ in range(12):
            _, _, terminated, truncated, _ = e.step(action)
            budgets.append(e.get_wrapper_attr("threat").budget.eps)
            if terminated or truncated:
                e.reset()
    np.testing.assert_allclose(budgets[:12], [*np.arange(1, 11) * 0.02, 0.2, 0.2])
    assert budgets[12:] == [0.2] * 12
    same_bytes(env.step(action)[0], plain.step(action)[0], "after the schedule")


def test_the_steps_of_all_rows_count():
    envs = adv.ScheduleBudget(adv.wrap(SyncVectorEnv([RIGS["mean"].env] * 4), "noise:eps=1"), RAMP, 40)
    assert isinstance(envs, VectorScheduleBudget)
    envs.reset(seed=0)
    for share in (0.1, 0.2, 0.3):
        envs.step(np.zeros((4, 3), np.float32))
        assert envs.env.budget_share == share and envs.env.threat.budget == adv.Linf(share)


def test_layers_inside_the_rows_are_found_and_their_steps_counted_by_the_wrapper_outside():
    envs = SyncVectorEnv([lambda: adv.wrap(RIGS["mean"].env(), "noise:eps=1")] * 2)
    outer = adv.ScheduleBudget(envs, RAMP, 4)
    outer.reset(seed=0)
    outer.step(np.zeros((2, 3), np.float32))
    assert [env.budget_share for env in envs.envs] == [0.5, 0.5]


def test_an_attack_remembers_and_shown_frames_stay_when_the_budget_changes_within_an_episode():
    """Frames of the past come out as they were shown, and memory goes on."""
    frames = [np.full((4, 12, 12), 9, np.uint8) + np.arange(t, t + 4, dtype=np.uint8)[:, None, None] for t in range(6)]
    env = adv.wrap(ReplayEnv([frames], RIGS["image"].space, RIGS["image"].actions), "noise:eps=4,newest=true")
    shown = [env.reset(seed=0)[0]]
    for share in (0.75, 0.5):
        env.set_budget_share(share)
        shown.append(env.step(0)[0])
        same_bytes(shown[-1][:-1], shown[-2][1:], "frames of the past")

    class Counting(adv.Noise):
        def initial_memory(self, x):
            return {"n": torch.zeros(len(x), 1)}

        def __call__(self, x, context):
            context.memory["n"] = context.memory["n"] + 1
            return x

    env = adv.PerturbObservation(RIGS["mean"].env(), Counting(), within=adv.Linf(1.0))
    env.reset(seed=0)
    env.set_budget_share(0.5)
    env.step(np.zeros(3, np.float32))
    assert env.engine.memory["n"].item() == 2


def test_a_budget_that_is_replaced_keeps_its_share_and_the_spec_the_whole():
    env = adv.wrap(gym.make("CartPole-v1"), "noise:eps=0.5")
    env.set_budget_share(0.5)
    env.set_budget(adv.Linf(1.0))
    assert env.threat.budget == adv.Linf(0.5) and env.whole_threat.budget == adv.Linf(1.0)
    with pytest.raises(BudgetError, match="scale has 2 numbers"):
        env.set_budget(adv.Linf(1.0, (1.0, 2.0)))
    assert env.threat.budget == adv.Linf(0.5) and env.budget_share == 0.5
    scheduled = adv.ScheduleBudget(env, RAMP, 100)
    again = gym.make(EnvSpec.from_json(scheduled.spec.to_json()))
    assert isinstance(again, adv.ScheduleBudget) and again.env.whole_threat.budget == adv.Linf(1.0)
    assert again.env.threat.budget == adv.Linf(0.0)
    env.set_budget_share(1.0)
    assert env.threat is env.whole_threat and env.threat.budget == adv.Linf(1.0)


def test_an_adversary_plays_with_a_share_of_its_budget():
    for actor, within in (("sa-rl", adv.Linf(0.5)), (adv.ActionPAAD(), adv.Linf(0.5))):
        victim = "zoo:cartpole-a2c" if actor == "sa-rl" else RIGS["mean"].victim()
        env = gym.make("CartPole-v1") if actor == "sa-rl" else RIGS["mean"].env()
        env = adv.AdversaryEnv(env, victim, actor, within)
        layer = env if actor == "sa-rl" else env._layer_beneath
        env.set_budget_share(0.5)
        assert layer.threat.budget == adv.Linf(0.25)
        env.set_budget(adv.Linf(1.0))
        assert layer.threat.budget == adv.Linf(0.5)
        assert env._saved_kwargs["within"] in (adv.Linf(1.0), adv.Linf(1.0).to_dict())


def test_a_scheduled_environment_pickles_with_its_steps():
    env = wrapped("mean", ["noise:eps=0.2"], RAMP, 10)(RIGS["mean"].env())
    env.reset(seed=0)
    env.step(np.zeros(3, np.float32))
    copy = pickle.loads(pickle.dumps(env))
    for e in (env, copy):
        e.step(np.zeros(3, np.float32))
        assert e.env.budget_share == 0.2


@every_case(
    ("threat", "schedule", "steps", "error", "message"),
    [
        ("noise:eps=1", adv.LinearSchedule(0.0, 1.5), 10, ValueRangeError, "from 0 to 1 .* got LinearSchedule"),
        ("noise:eps=1", -0.5, 10, ValueRangeError, "from 0 to 1 .* got -0.5"),
        ("noise:eps=1", "linear", 10, ValueRangeError, "schedule must be .* or a LinearSchedule"),
        ("noise:eps=1", adv.Linf(0.1).to_dict(), 10, ValueRangeError, "schedule must be .* or a LinearSchedule"),
        ("noise:eps=1", RAMP, 0, ValueRangeError, "steps must be an integer of at least 1, got 0"),
        (adv.ThreatModel("observation", lambda x, c: x, adv.Valid()), RAMP, 10, BudgetError, "has no radius"),
        (None, RAMP, 10, OrderError, "ScheduleBudget changes the budgets of the layers beneath it, and there are none"),
    ],
)
def test_what_cannot_be_scheduled(threat, schedule, steps, error, message):
    env = RIGS["mean"].env()
    env = env if threat is None else adv.wrap(env, threat)
    with pytest.raises(error, match=message):
        adv.ScheduleBudget(env, schedule, steps)


def make_noisy():
    return adv.wrap(gym.make("CartPole-v1"), "noise:eps=0.1")


def test_what_is_out_of_reach():
    envs = AsyncVectorEnv([make_noisy])
    with pytest.raises(OrderError, match="cannot reach the layers inside the workers"):
        adv.ScheduleBudget(envs, RAMP, 10)
    envs.close()
    with pytest.raises(SpaceError, match="expected a gymnasium Env or VectorEnv, got list"):
        adv.ScheduleBudget([], RAMP, 10)
    env = make_noisy()
    for share in (-0.1, 1.1, float("nan"), "1"):
        with pytest.raises(ValueRangeError, match="share must be a finite number from 0 to 1"):
            env.set_budget_share(share)
    assert env.budget_share == 1.0
