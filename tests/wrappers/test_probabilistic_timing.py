"""One coin a step for a whole stack."""

from __future__ import annotations

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import OrderError, ValueRangeError
from tests.every_case import every_case
from tests.rigs import RIGS, ReplayEnv, vector

NOISE, FLIP = "noise:eps=0.1", "action-noise:eps=0.1"


def _long(rig="mean", steps=400):
    still = [[RIGS[rig].env().recordings[0][0]] * (steps + 1)]
    return ReplayEnv(still, RIGS[rig].space, RIGS[rig].actions)


def _flags(env, steps, reset=True, **kwargs):
    """Which layers attacked, at the observation t and at the action t, a row of booleans a step."""
    info = env.reset(**kwargs)[1]
    out = []
    for _ in range(steps):
        seen = {k: e["attacked"] for k, e in info["adv_wrappers"].items() if "action" not in k}
        info = env.step(np.zeros(3, np.float32))[4]
        acted = {k: e["attacked"] for k, e in info["adv_wrappers"].items() if "action" in k}
        out.append([*seen.values(), *acted.values()])
    return np.array(out)


@pytest.mark.parametrize("seed", [3, None])
def test_one_coin_for_every_layer_actions_included(seed):
    """The draw for observation t also rules action t, with and without a seed; its frequency is p."""
    env = adv.ProbabilisticTiming(adv.wrap(_long(), NOISE, FLIP, NOISE), 0.3)
    flags = _flags(env, 400, seed=seed)
    assert (flags == flags[:, :1]).all()
    assert abs(flags[:, 0].mean() - 0.3) < 4 * (0.3 * 0.7 / 400) ** 0.5


def test_two_gates_have_different_coins():
    env = adv.wrap(adv.ProbabilisticTiming(adv.wrap(_long(), NOISE), 0.5), NOISE)
    env = adv.ProbabilisticTiming(env, 0.5)  # rules both layers; the inner gate only the first
    flags = _flags(env, 400, seed=1)
    assert (flags[:, 0] <= flags[:, 1]).all()  # the inner layer needs both coins
    assert abs(flags[:, 0].mean() - 0.25) < 0.09 and abs(flags[:, 1].mean() - 0.5) < 0.1


def test_a_gate_combines_with_a_layers_own_timing():
    env = adv.ProbabilisticTiming(adv.wrap(_long(), f"{NOISE},when=every(2)", FLIP), 0.5)
    flags = _flags(env, 200, seed=1)
    even = np.arange(200) % 2 == 0
    assert (flags[even, 0] == flags[even, 1]).all() and not flags[~even, 0].any() and flags[~even, 1].any()


def test_what_is_gated_off_costs_and_spends_nothing():
    calls = []

    def how(x, context):
        calls.append(1)
        return x + 1

    env = adv.ProbabilisticTiming(adv.PerturbObservation(_long(), how, adv.Linf(1.0), adv.AtMost(30)), 0.25)
    flags = _flags(env, 300, seed=2)
    assert len(calls) == flags.sum() == 30 and np.flatnonzero(flags[:, 0])[29] > 60
    never = adv.ProbabilisticTiming(adv.PerturbObservation(_long(), how, adv.Linf(1.0)), 0.0)
    assert not _flags(never, 20, seed=2).any() and len(calls) == 30
    assert _flags(adv.ProbabilisticTiming(adv.wrap(_long(), NOISE), 1.0), 20, seed=2).all()


@every_case("kind", ["next", "same", "tensor", "sb3"])
def test_rows_of_a_vector_have_their_own_coins_which_are_those_of_single_environments(kind):
    def gated(env):
        return adv.ProbabilisticTiming(adv.wrap(env, NOISE), 0.5)

    from tests.laws.checks import run, same

    outside = run(kind, RIGS["mean"], gated, seeds=(3, 4, 5, 6), episodes=2)
    same(outside, run("env", RIGS["mean"], gated, seeds=(3, 4, 5, 6), episodes=2), True, kind)
    attacked = [
        o.tobytes() != c.tobytes()
        for row, bare in zip(outside, run(kind, RIGS["mean"], seeds=(3, 4, 5, 6)), strict=True)
        for e, b in zip(row, bare, strict=True)
        for o, c in zip(e.seen, b.seen, strict=True)
    ]
    assert any(attacked) and not all(attacked)


@pytest.mark.parametrize("seed", [3, None])
def test_layers_inside_a_sync_vector_env_are_ruled_by_the_same_coin(seed):
    from gymnasium.vector import SyncVectorEnv

    inner = SyncVectorEnv([lambda: adv.wrap(_long(), NOISE)] * 3)
    env = adv.ProbabilisticTiming(adv.wrap(inner, NOISE), 0.5)
    info = env.reset(seed=seed)[1]
    seen = []
    for _ in range(60):
        entries = info["adv_wrappers"]
        seen.append([entries["0:noise"]["attacked"].tolist(), entries["1:noise"]["attacked"].tolist()])
        info = env.step(np.zeros((3, 3), np.float32))[4]
    seen = np.array(seen)
    assert (seen[:, 0] == seen[:, 1]).all() and 0.3 < seen.mean() < 0.7
    assert (seen[:, 0, 0] != seen[:, 0, 1]).any(), "two rows share their coin"


def test_nothing_to_gate():
    for env in (_long(), vector("next", RIGS["q"], 2), vector("sb3", RIGS["q"], 2)):
        with pytest.raises(OrderError, match="none"):
            adv.ProbabilisticTiming(env, 0.5)


@every_case("p", [-0.1, 1.1, float("nan"), "half", True])
def test_probabilities(p):
    with pytest.raises(ValueRangeError, match=f"^p must be .*{p}"):
        adv.ProbabilisticTiming(adv.wrap(_long(), NOISE), p)
