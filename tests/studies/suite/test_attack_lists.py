"""The lists of attacks: what they hold, names that mean one thing, and which entries apply to a setting."""

from __future__ import annotations

import pickle
from collections import defaultdict

import gymnasium as gym
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, ThreatError
from adv_wrappers.studies import SUITES, AttackSetting, Entry, entries_that_apply
from adv_wrappers.studies.suite.attack_lists import LEARNED, NOT_TRAINED, chosen_entries, entries_of, entry_named
from tests.evaluation.agents import Film, balancing, short, watcher
from tests.every_case import every_case
from tests.studies.suite.test_entry import no_reason, noise

STANDARD = [
    "noise", "min-best", "pgd", "apgd", "multi-targeted", "momentum", "min-q", "max-diff", "strong-max-diff", "beam",
    "model-based", "robust-sarsa", "sa-rl", "pa-ad",
]  # fmt: skip


def test_the_standard_suite_stays_what_it_is():
    assert [entry.name for entry in SUITES["standard"]] == STANDARD


def test_a_name_is_one_entry_in_all_suites():
    found = defaultdict(set)
    for suite in SUITES.values():
        assert len({entry.name for entry in suite}) == len(suite)
        for entry in suite:
            found[entry.name].add(id(entry))
    assert all(len(entries) == 1 for entries in found.values())
    assert {*found} == {entry.name for entry in SUITES["everything"]}
    assert [entry.name for entry in SUITES["everything"]][: len(STANDARD)] == STANDARD


def test_every_preset_is_in_the_suite_of_everything():
    """But for those of which it has another form."""
    names = {entry.name for entry in SUITES["everything"]}
    assert {*adv.presets} - names == {
        "fgsm",  # is min-best
        "daylight",  # is one of the six transforms
        "learned",  # needs a folder: by its text
        # faults that no budget bounds
        "saturation", "stuck-sensor", "sensor-dropout", "swapped-sensors", "observation-delay", "observation-jitter",
        "observation-loss", "occlusion", "trigger", "action-delay", "action-loss",
        # of the environment, whose parameters a suite does not know, and of trainings
        "dynamics-noise", "fixed-dynamics", "reward-noise", "reward-flip", "reward-clip", "reward-delay",
    }  # fmt: skip


def test_entries_are_found_by_name_in_another_process():
    for entry in SUITES["everything"]:
        assert entry_named(entry.name) is entry
        assert pickle.loads(pickle.dumps(entry)).name == entry.name
    again = entry_named("max-diff:steps=3")
    assert again.name == "max-diff:steps=3" and not again.trained
    assert {"sa-rl", "pa-ad", "pa-ad-action", "induce", "timed-max-diff", "transfer"} == {*LEARNED}


def test_a_suite_of_ones_own():
    mine = Entry("mine", no_reason, noise)
    entries = entries_of([*SUITES["daylight"], "max-diff:steps=3", "beam", mine])
    assert [entry.name for entry in entries[-3:]] == ["max-diff:steps=3", "beam", "mine"] and entries[-1] is mine
    assert entries[-2] is SUITES["standard"][9]
    assert entries_of("action") is SUITES["action"]


@every_case(
    ("suite", "error", "match"),
    [
        ("all", ThreatError, "unknown suite 'all'; known: standard, action"),
        ([], ThreatError, "at least one entry"),
        (3, ThreatError, "the name of a suite or its entries, got 3"),
        (["noise", "pgd", "noise"], ThreatError, "got noise twice"),
        ([adv.Noise()], ThreatError, "a suite holds entries, their names and texts"),
        (["nois"], ThreatError, "did you mean noise"),
        (["noise:eps=0.1"], BudgetError, "goes beside the attacks, not in them: eps in 'noise:eps=0.1'"),
        (["max-diff:stepz=3"], ThreatError, "not stepz"),
    ],
)
def test_what_is_no_suite(suite, error, match):
    with pytest.raises(error, match=match):
        entries_of(suite)


def test_chosen_names_keep_the_order_of_the_suite():
    assert [entry.name for entry in chosen_entries(SUITES["standard"], ["pgd", "noise"])] == ["noise", "pgd"]
    assert chosen_entries(SUITES["action"], None) == SUITES["action"]
    with pytest.raises(ThreatError, match=r"attacks must be names out of brightness, .*, got 'pgd'"):
        chosen_entries(SUITES["daylight"], "pgd")


def why_left_out(suite, setting):
    applying, left_out = entries_that_apply(suite, setting)
    assert [entry.name for entry in applying] == [e.name for e in entries_of(suite) if e.name not in left_out]
    return left_out


def test_trained_attacks_are_left_out_unless_they_are_asked_for():
    setting = AttackSetting(balancing(), short, adv.Linf(0.1))
    left_out = why_left_out(["noise", "sa-rl", "transfer", "robust-sarsa"], setting)
    assert left_out["sa-rl"] == left_out["transfer"] == NOT_TRAINED and "--train" in NOT_TRAINED
    assert "continuous actions" in left_out["robust-sarsa"]  # a better reason


def test_without_a_budget_what_needs_none_is_left():
    setting = AttackSetting(balancing(), short)
    left_out = why_left_out("everything", setting)
    assert left_out["noise"] == left_out["beam"] == left_out["transfer"] == "it needs a budget: eps=, or within="
    applying, _ = entries_that_apply("everything", setting)
    assert {"action-noise", "action-flip", "half-action-flip", "worst-action", "half-worst-action"} == {
        entry.name for entry in applying
    }


def test_daylight_asks_for_no_budget():
    setting = AttackSetting(watcher(Film()), Film)
    assert why_left_out("daylight", setting) == {}
    assert "rows and columns" in why_left_out("daylight", AttackSetting(balancing(), short))["rotation"]


def test_what_takes_hours_on_images_is_left_out():
    left_out = why_left_out("certified", AttackSetting(watcher(Film()), Film, adv.Linf(2.0)))
    hours = {
        name for name, reason in left_out.items() if reason == "on images it takes too long: evaluate it by itself"
    }
    assert hours == {"apgd", "multi-targeted", "square", "hop-skip-jump", "lower-bound-pgd", "beam"}


def test_arguments_that_cannot_work_cost_no_step():
    class Unplayed(gym.Wrapper):
        def step(self, action):
            raise AssertionError("something was spent")

    pytest.importorskip("stable_baselines3")
    env = lambda: Unplayed(short())  # noqa: E731
    setting = AttackSetting(balancing(), env, adv.Linf(0.1), train=True, training={"checkz": 3})
    with pytest.raises(ThreatError, match="not checkz"):
        entries_that_apply("everything", setting)
