"""Entries of suites and what they may know: spaces, budgets of observations and of actions, and what they make."""

from __future__ import annotations

import pickle
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, SpaceError, ThreatError, VictimError
from adv_wrappers.studies import AttackSetting, Entry, MadeAttack
from tests.evaluation.agents import Film, balancing, watcher
from tests.every_case import every_case
from tests.training.toys import Toy, toy_victim


def no_reason(setting):
    return None


def noise(setting):
    return adv.ThreatModel("observation", adv.Noise(), setting.budget)


def test_a_setting_loads_what_is_named_and_knows_the_spaces(tmp_path):
    setting = AttackSetting("zoo:cartpole-dqn", "CartPole-v1", adv.Linf(0.1), out=tmp_path)
    assert setting.victim.ref == "zoo:cartpole-dqn" and setting.environment.name == "CartPole-v1"
    assert setting.spaces[0].shape == (4,) and setting.spaces[1] == spaces.Discrete(2) and not setting.images
    assert setting.folder("pa-ad") == tmp_path / "pa-ad" and replace(setting, out=None).folder("pa-ad") is None
    again = pickle.loads(pickle.dumps(setting))
    assert again.budget == adv.Linf(0.1) and again.spaces == setting.spaces


def test_images_that_are_made_float():
    setting = AttackSetting(watcher(Film()), Film, adv.Linf(0.5))
    assert setting.images and setting.spaces[0].dtype == np.uint8
    assert replace(setting, quantize=False).spaces[0].dtype == np.float32


def test_the_budget_of_actions():
    setting = AttackSetting(balancing(), "CartPole-v1", adv.Linf(0.1))
    assert setting.within("observation") == adv.Linf(0.1) and setting.within("action") == adv.Valid()
    toy = AttackSetting(toy_victim(), Toy, adv.Linf(0.1))
    assert toy.within("action") == adv.Linf(0.1)
    assert replace(toy, budget=adv.Linf(0.1, scale=2.0)).within("action") is None  # a unit of observations
    assert replace(toy, budget=None).within("action") is None
    assert replace(toy, budget=None, action_budget=adv.Linf(0.3)).within("action") == adv.Linf(0.3)


@every_case(
    ("changes", "error", "match"),
    [
        ({"victim": "zoo:nobody"}, VictimError, "no agent 'nobody'"),
        ({"budget": adv.Linf(0.1, scale="victim")}, BudgetError, "unit of its own"),
        ({"dynamics": "card:nowhere"}, adv.AdvWrappersError, "nowhere"),
    ],
)
def test_settings_that_cannot_work(changes, error, match):
    with pytest.raises(error, match=match):
        replace(AttackSetting(balancing(), "CartPole-v1"), **changes)
    with pytest.raises(SpaceError, match="Nothing-v7"):
        _ = AttackSetting(balancing(), "Nothing-v7").spaces


def test_what_an_entry_makes():
    setting, received = AttackSetting(balancing(), "CartPole-v1", adv.Linf(0.1)), []
    assert Entry("mine", no_reason, noise).attack(setting) == MadeAttack(noise(setting), "one setting, one run")
    whole = MadeAttack(noise(setting), "best of 3", ("look out",))
    assert Entry("mine", no_reason, lambda setting: whole).attack(setting) is whole
    with pytest.raises(
        ThreatError, match="make of the entry 'mine' must return a ThreatModel or a MadeAttack, got 'noise'"
    ):
        Entry("mine", no_reason, lambda setting: "noise").attack(setting)  # type: ignore[arg-type,return-value]
    replace(setting, progress=lambda *at: received.append(at)).report("mine", 1, 2)
    setting.report("mine", 2, 2)
    assert received == [("mine", 1, 2)]


def test_whether_an_entry_is_trained_may_depend_on_the_setting():
    setting = AttackSetting(balancing(), "CartPole-v1")
    assert not Entry("mine", no_reason, noise).trains(setting)
    assert Entry("mine", no_reason, noise, trained=True).trains(setting)
    entry = Entry("mine", no_reason, noise, trained=lambda setting: setting.steps > 10)
    assert entry.trains(setting) and not entry.trains(replace(setting, steps=10))


@every_case("name", ["", " ", "none", 3])
def test_names_that_are_none(name):
    with pytest.raises(ThreatError, match="the name of an entry"):
        Entry(name, no_reason, noise)


def test_spaces_are_read_from_one_environment():
    made = []

    def counted() -> gym.Env:
        made.append(1)
        return gym.make("CartPole-v1")

    setting = AttackSetting(balancing(), counted)
    assert setting.spaces is setting.spaces and len(made) == 1
