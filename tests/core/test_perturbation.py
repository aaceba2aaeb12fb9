"""What may stand for a perturbation or a timing, and what is said of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.core.perturbation import (
    ActionPerturbation,
    BoundedPerturbation,
    DecliningPerturbation,
    NativePerturbation,
    Perturbation,
    SimulatingPerturbation,
    VictimAttack,
    check_how,
    check_when,
)
from adv_wrappers.errors import BudgetError, SnapshotError, ThreatError, VictimError


class NoDataclass(Perturbation):
    name: ClassVar[str] = "test-no-dataclass"

    def __call__(self, x, context):
        return x


class NoName(Perturbation):
    def __call__(self, x, context):
        return x


class NoCall(Perturbation):
    name: ClassVar[str] = "test-no-call"


@pytest.mark.parametrize("kind", [NoDataclass, NoName, NoCall])
def test_a_perturbation_is_a_frozen_dataclass_with_a_name_that_can_be_called(kind):
    with pytest.raises(ThreatError, match=f"{kind.__name__} must be a frozen dataclass"):
        adv.PerturbObservation(gym.make("CartPole-v1"), kind(), within=adv.Linf(0.1))


def attack(name, *bases):
    """An instance of a class of these bases that hands back what it gets."""

    def call(self, x, context):
        return x

    return dataclass(frozen=True)(type(name, bases, {"name": f"test-base-{name}", "__call__": call}))()


def test_a_base_says_what_a_perturbation_is():
    plain, action = attack("plain", Perturbation), attack("action", ActionPerturbation, SimulatingPerturbation)
    assert (plain.on, plain.within, plain.native, plain.simulates) == ("observation", None, False, False)
    assert (action.on, action.within, action.simulates, action.declines) == ("action", adv.Valid(), True, False)
    assert adv.PerturbAction(gym.make("CartPole-v1"), action).threat.within == adv.Valid()
    with pytest.raises(SnapshotError, match="CartPoleVectorEnv has no simulator"):
        adv.PerturbAction(gym.make_vec("CartPole-v1", 1), action)
    with pytest.raises(ThreatError, match="test-base-action is a threat to the action"):
        adv.PerturbObservation(gym.make("CartPole-v1"), action)
    assert attack("native", NativePerturbation).native and attack("declining", DecliningPerturbation).declines


def test_what_goes_as_far_as_its_budget_needs_one_with_an_end():
    env = gym.make("CartPole-v1")
    for kind in (BoundedPerturbation, VictimAttack):
        made = attack(f"far-{kind.__name__}", kind)
        with pytest.raises(BudgetError, match=f"{made.name} searches its budget, but valid is unbounded"):
            adv.PerturbObservation(env, made, within=adv.Valid(), victim="zoo:cartpole-dqn")
    with pytest.raises(VictimError, match=f"{made.name} needs a victim"):
        adv.PerturbObservation(env, made, within=adv.Linf(0.1))


def test_presets_say_what_they_perturb_by_their_base():
    for name, preset in adv.presets.items():
        on = next((on for on in ("action", "dynamics", "reward") if on in name), "observation")
        assert preset.on == on


def test_classes_in_the_place_of_values():
    with pytest.raises(ThreatError, match=r"call it, as in Noise\(...\)"):
        check_how(adv.Noise)
    with pytest.raises(ThreatError, match=r"call it, as in Always\(...\)"):
        check_when(adv.Always)


def test_functions_take_a_batch_and_a_context():
    check_how(lambda x, context: x)
    check_how(torch.add)  # a builtin that does not say what it takes
    check_when(lambda x, context: x[:, 0] > 0)
    for function in (lambda x: x, lambda: 0, lambda a, b, c: a):
        with pytest.raises(ThreatError, match=r"must take \(x, context\)"):
            check_how(function)
        with pytest.raises(ThreatError, match=r"must take \(x, context\)"):
            check_when(function)


def test_a_layer_takes_the_victim_that_its_threat_leaves_open():
    env = adv.PerturbObservation(gym.make("CartPole-v1"), "pgd:eps=0.1", victim="zoo:cartpole-dqn")
    assert env.threat.victims[0].ref == "zoo:cartpole-dqn"
    assert env.spec.make().threat.to_dict() == env.threat.to_dict()


def test_a_victim_without_a_gradient_is_told_apart():
    space = gym.make("CartPole-v1")
    net = torch.nn.Linear(4, 2)
    spaces = space.observation_space, space.action_space
    with pytest.raises(VictimError, match=r"detaches.*square"):  # of a function it is known at once
        adv.MinBest(adv.from_module(lambda x: net(x).detach(), *spaces, "q"))

    class Detached(torch.nn.Linear):
        cut = True

        def forward(self, x):
            return super().forward(x).detach() if self.cut else super().forward(x)

    module = Detached(4, 2)
    with pytest.raises(VictimError, match=r"detaches.*square"):  # and of a module
        adv.MinBest(adv.from_module(module, *spaces, "q"))
    module.cut = False
    victim = adv.from_module(module, *spaces, "q", live=True)
    module.cut = True
    env = adv.PerturbObservation(space, adv.MinBest(victim), within=adv.Linf(0.1))
    with pytest.raises(VictimError, match="carries no gradient"):
        env.reset(seed=0)
