"""Transforms beneath and above a gradient attack, and one coin for all of them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.daylight import JPEG, Brightness, MedianBlur, Perspective, Rotation, Shift
from tests.every_case import every_case
from tests.laws.checks import Case, by_turns, check_vector
from tests.rigs import KINDS, RIGS, ReplayEnv, recorded, run, same, vector

RIG = RIGS["image"]
SIX = {
    "brightness": Brightness(1.7, 40), "median-blur": MedianBlur(3), "rotation": Rotation(3),
    "shift": Shift(2, 1), "jpeg": JPEG(10), "perspective": Perspective(3),
}  # fmt: skip


def attack():
    # in float64: which of two points that are as good is kept must not depend on the size of a batch
    return adv.threat("pgd", RIG.victim(torch.float64), eps=2, steps=2, step=1.0, restarts=2)


def played(*threats):
    """Two episodes of one environment under the threats."""
    return run("env", RIG, lambda env: adv.wrap(env, *threats), (8,))


@pytest.mark.parametrize("name", ["rotation", "jpeg"])
def test_the_attack_is_relative_to_the_transformed_frame(name):
    under, both = played(SIX[name]), played(SIX[name], attack())
    moved = [
        np.abs(a.astype(int) - b).max()
        for row, other in zip(under, both, strict=True)
        for e, f in zip(row, other, strict=True)
        for a, b in zip(e.seen, f.seen, strict=True)
    ]
    assert max(moved) == 2  # the whole budget, and no more


@pytest.mark.parametrize("name", ["median-blur", "perspective"])
def test_the_transform_of_the_attacked_frame(name):
    """The other way round the attack acts first, and the transform is what the agent gets."""
    attacked, both = played(attack()), played(attack(), SIX[name])
    space = RIG.space
    for row, other in zip(attacked, both, strict=True):
        for e, f in zip(row, other, strict=True):
            again = adv.wrap(ReplayEnv([e.seen], space, RIG.actions), SIX[name])
            seen = [again.reset(seed=0)[0], *(again.step(0)[0] for _ in e.seen[1:])]
            for a, b in zip(seen, f.seen, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["next", "tensor"])
def test_stacks_on_vectors(kind):
    same(stacked(kind), stacked("env"), False, f"{kind} and single environments")


@functools.cache
def stacked(kind):
    stack = [adv.daylight.Rotation((-5, 5)), attack(), adv.daylight.JPEG((20, 60), per="step")]
    return run(kind, RIG, lambda env: adv.wrap(env, *stack))


@pytest.mark.parametrize(("name", "kind"), by_turns(["brightness", "shift", "jpeg"], ["env", "next", "sb3"]))
def test_one_coin_for_all(name, kind):
    def build(env):
        return adv.ProbabilisticTiming(adv.wrap(env, SIX[name], attack(), adv.threat("action-flip")), 0.5)

    env = build(RIG.env() if kind == "env" else vector(kind, RIG, 3))
    attacked = []
    out = env.reset() if kind == "sb3" else env.reset(seed=1)[1]["adv_wrappers"]
    for t in range(12):
        action = RIG.act(0, 0, t) if kind == "env" else np.stack([RIG.act(i, 0, t) for i in range(3)])
        out = env.step(action)
        if kind == "env" and (out[2] or out[3]):
            env.reset()
        infos = out[-1] if kind == "sb3" else [out[-1]]
        for info in infos:
            layers = {k: np.asarray(v["attacked"]) for k, v in info["adv_wrappers"].items() if not k.startswith("_")}
            seen = [v for k, v in layers.items() if "action" not in k]
            assert len(seen) == 2 and (seen[0] == seen[1]).all()
            attacked.append(seen[0].ravel())
    rate = np.concatenate(attacked).mean()
    assert 0.2 < rate < 0.8


def test_a_transform_that_is_gated_off_costs_nothing(monkeypatch):
    def never(self, x, layout, limits, **parameters):
        raise AssertionError("a transform was computed for a step that is not attacked")

    monkeypatch.setattr(adv.daylight.Rotation, "change", never)
    env = adv.ProbabilisticTiming(adv.wrap(RIG.env(), adv.daylight.Rotation(3)), 0.0)
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs, recorded(RIG.space)[0][0])
    env.step(0)


@every_case("kind", KINDS[1:])
@every_case("preset", ["rotation", "median-blur"])
def test_timings(preset, kind):
    check_vector(Case(preset, RIG), kind, adv.Bernoulli(0.5) & adv.AtMost(3))
