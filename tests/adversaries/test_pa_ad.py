"""PA-AD's forms: which is taken when none is given, and ranges of actions in which there is no target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.adversaries.pa_ad import ChangeAndCosine
from adv_wrappers.errors import ValueRangeError
from tests.core.helpers import chooser, context, randn

SEEN = spaces.Box(-1, 1, (3,), np.float64)
STEERS = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])


def acting_in(high: float) -> adv.Victim:
    torch.manual_seed(0)
    return adv.from_module(torch.nn.Linear(3, 2).double(), SEEN, spaces.Box(-high, high, (2,), np.float64), "mean")


def test_a_range_without_bounds_has_directions_only():
    assert (
        adv.PAAD(acting_in(1.0)).resolved_form == "target" and adv.PAAD(acting_in(np.inf)).resolved_form == "direction"
    )
    for actor in (adv.PAAD, adv.ActionPAAD):
        with pytest.raises(ValueRangeError, match="form='target' needs bounded actions"):
            actor(acting_in(np.inf), form="target")


@pytest.mark.parametrize("high", [1.0, np.inf])
def test_every_action_of_the_adversary_moves_the_action_its_own_way(high):
    victim, x = acting_in(high), randn(4, 3, seed=1)
    y = adv.PAAD(victim)(x, STEERS, context(x, adv.Linf(0.1)))
    moved = victim.params(y) - victim.params(x)
    assert ((moved * STEERS).sum(1) > 0).all()


DQN = adv.load_victim("zoo:mountaincar-dqn")


def mountaincar(count):
    """Observations all over MountainCar, float32, among them many at which a small move decides."""
    u = torch.rand(count, 2, generator=torch.Generator().manual_seed(0))
    return u * torch.tensor([1.6, 0.1]) - torch.tensor([1.1, 0.05])


def played(pad, x, action, eps=0.01):
    around = context(x, adv.Linf(eps))
    y = pad(x, torch.full((len(x),), action), around)
    assert torch.equal(y, around.project(y))
    return DQN.mode(DQN.params(y)) == action


@pytest.fixture(scope="module")
def reachable():
    x, ends = mountaincar(300), torch.linspace(-0.01, 0.01, 21)
    found = torch.zeros(len(x), 3, dtype=torch.bool)
    for a in ends:
        for b in ends:
            found[torch.arange(len(x)), DQN.mode(DQN.params(x + torch.stack([a, b])))] = True
    return x, found


def share(pad, reachable):
    x, there = reachable
    found = torch.stack([played(pad, x, action) for action in range(3)], 1)
    return float((found & there).sum() / there.sum())


@pytest.mark.slow
def test_the_target_actor_finds_the_actions_that_a_box_holds(reachable):
    one, best, default = (
        share(adv.PAAD(DQN, **more), reachable)
        for more in ({"restarts": 1, "keep": "last"}, {"restarts": 1, "keep": "best"}, {})
    )
    assert one < best < default and default >= 0.95


def test_what_one_ascent_finds_several_find(reachable):
    x, _ = reachable
    for action in range(3):
        fgsm, best, several = (
            played(adv.PAAD(DQN, **more), x, action)
            for more in ({"steps": 1, "step": 1.0, "restarts": 1, "keep": "last"}, {"restarts": 1, "keep": "best"}, {})
        )
        assert (best | ~fgsm).all() and (several | ~best).all() and several.sum() > best.sum()


@pytest.mark.parametrize("variant", ["literal", "released"])
def test_published_forms_climb_once_and_keep_the_last(variant):
    x, adversary_action = mountaincar(40), torch.zeros(40, dtype=torch.int64)
    for form, given in (("target", adversary_action), ("direction", torch.rand(40, 2) - 0.5)):
        plain = adv.PAAD(DQN, form=form, variant=variant)
        received = adv.PAAD(DQN, form=form, variant=variant, restarts=1, keep="last")
        assert plain.ascents == (1, "last")
        assert torch.equal(*(pad(x, given, context(x, adv.Linf(0.01))) for pad in (plain, received)))


def test_who_climbs_how_often():
    assert adv.PAAD(DQN).ascents == (3, "best") and adv.PAAD(DQN, restarts=5).ascents == (5, "best")
    assert adv.PAAD(DQN, keep="last").ascents == (3, "last") and adv.PAAD(DQN, form="direction").ascents == (1, "last")
    assert adv.PAAD(acting_in(1.0)).ascents == (1, "last")
    assert adv.PAAD(adv.load_victim("zoo:pong-ppo"), form="target").ascents == (1, "last")
    for bad in ({"restarts": 0}, {"restarts": True}, {"restarts": 2.0}, {"keep": "first"}):
        with pytest.raises(ValueRangeError, match="must be"):
            adv.PAAD(**bad)
    for bad in ({"restarts": 2}, {"keep": "best"}):
        with pytest.raises(ValueRangeError, match="the released code takes one ascent"):
            adv.PAAD(variant="released", **bad)


@pytest.mark.parametrize("variant", ["linear-first", "literal"])
@pytest.mark.parametrize("steps", [1, 4])
def test_several_ascents_of_a_direction_go_further_along_their_objective(variant, steps):
    x, adversary_action = mountaincar(60), torch.rand(60, 2, generator=torch.Generator().manual_seed(2)) * 2 - 1
    values = []
    for more in ({}, {"keep": "best"}, {"keep": "best", "restarts": 4}):
        pad = adv.PAAD(DQN, form="direction", variant=variant, steps=steps, **more)
        around = context(x, adv.Linf(0.05))
        y = pad(x, adversary_action, around)
        assert torch.equal(y, around.project(y))
        values.append(ChangeAndCosine(DQN, DQN.params(x), pad._direction(adversary_action), 1.0)(DQN.params(y)))
    last, best, several = values
    assert (best >= last - 1e-6).all() and (several >= best - 1e-6).all() and several.sum() > last.sum()


def test_the_form_that_is_taken_where_none_is_given():
    torch.manual_seed(0)
    made = {kind: adv.from_module(torch.nn.Linear(3, 2), SEEN, spaces.Discrete(2), kind) for kind in ("q", "logits")}
    for variant, continuous in (("linear-first", "target"), ("literal", "direction"), ("released", "direction")):
        forms = [
            adv.PAAD(victim, variant=variant).resolved_form for victim in (made["q"], made["logits"], acting_in(1.0))
        ]
        assert forms == ["target", "direction", continuous]


class _Cusp(torch.nn.Module):
    """Finite answers, and a slope that is none."""

    def forward(self, x):
        return torch.stack([x.sum(-1), -x.sum(-1), (x[:, 0] - x[:, 0].detach()).abs().sqrt()], -1)


@pytest.mark.parametrize("restarts", [None, 1, 3])
def test_a_slope_that_is_not_finite_reaches_the_engine(restarts):
    """Which refuses values that are no numbers: a search must not keep the start instead, and say nothing."""
    x = randn(4, 4)
    actor = adv.PAAD(chooser(_Cusp(), "q", dtype=torch.float64), restarts=restarts)
    y = actor(x, torch.ones(4, dtype=torch.int64), context(x, adv.Linf(0.1)))
    assert y.isnan().any(-1).all()
