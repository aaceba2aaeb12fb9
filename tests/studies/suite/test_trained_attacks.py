"""Entries that are trained: every one is run here for a few steps, and what they are trained with is checked before."""

from __future__ import annotations

import functools

import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import adv_wrappers as adv
from adv_wrappers.errors import ThreatError
from adv_wrappers.studies import AttackSetting, run_suite
from adv_wrappers.studies.suite import trained_attacks
from adv_wrappers.studies.suite.attack_lists import LEARNED, entry_named
from adv_wrappers.training.folder import read_record
from tests.evaluation.agents import Film, balancing, watcher
from tests.studies.suite.test_untrained_attacks import brief
from tests.training.toys import Toy, toy_victim

pytest.importorskip("stable_baselines3")

BRIEF = {"checks": 1, "episodes": 2, "n_steps": 16, "batch_size": 32, "n_epochs": 1}
QUICK = {"episodes": 1, "steps": 32, "num_envs": 2, "training": BRIEF, "train": True}
NEW = ["timed-max-diff", "transfer", "pa-ad-action", "induce"]


@pytest.fixture(autouse=True)
def short_imitations(monkeypatch):
    """What a surrogate learns is tested with imitations."""
    monkeypatch.setattr(trained_attacks, "imitate", functools.partial(adv.imitate, epochs=2))


@pytest.mark.slow
def test_every_new_entry_is_trained_scored_and_kept(tmp_path, monkeypatch):
    told = []
    how = {**QUICK, "attacks": ["noise", *NEW], "out": tmp_path}
    report = run_suite("everything", "zoo:cartpole-dqn", brief, 0.1, tell=told.append, **how)
    assert report.attacks == ("noise", *NEW)
    assert told == [
        "trains timed-max-diff, transfer, pa-ad-action, induce: about 32 steps each; --no-train (train=False) leaves "
        "them out"
    ]
    rows = {row["threat"]: row for row in report.report.threats}
    assert all((rows[name]["linf"] or 0) <= 0.1 + 1e-6 for name in ("timed-max-diff", "transfer"))
    assert report.other_budgets == {"pa-ad-action": "any action", "induce": "any action"}
    assert rows["transfer"]["transfer"] and not rows["induce"]["transfer"]
    assert report.protocol["transfer"].startswith("pgd on one surrogate, trained from 350 queries, which predicts ")
    assert report.protocol["induce"].startswith("one training of 32 steps, best of 1 checkpoint")
    assert all(len(read_record(tmp_path / name)) == 1 for name in NEW if name != "transfer")
    assert (tmp_path / "transfer" / "350" / "card.json").exists()
    with monkeypatch.context() as finished:
        finished.setattr(CartPoleEnv, "step", lambda env, action: pytest.fail("a step is taken"))
        again = run_suite("everything", "zoo:cartpole-dqn", brief, 0.1, **how)  # what is finished is read
    assert again.report.threats == report.report.threats and again.protocol == report.protocol
    more = AttackSetting("zoo:cartpole-dqn", brief, adv.Linf(0.1), train=True, steps=400, out=tmp_path)
    assert "from 400 queries" in entry_named("transfer").attack(more).protocol  # beside the other


def test_continuous_actions(tmp_path):
    told, names = [], ["transfer", "pa-ad-action", "induce"]
    report = run_suite("everything", toy_victim(), Toy, 0.5, **QUICK, attacks=names, tell=told.append)
    assert told == ["trains transfer, pa-ad-action: about 32 steps each; --no-train (train=False) leaves them out"]
    assert report.attacks == ("transfer", "pa-ad-action")
    assert report.protocol["transfer"].startswith("max-diff on one surrogate") and "R2" in report.protocol["transfer"]
    assert report.other_budgets == {"pa-ad-action": "actions within eps=0.5"}
    assert "discrete actions" in report.left_out["induce"]


def test_what_does_not_apply():
    setting = AttackSetting(watcher(Film()), Film, adv.Linf(2.0), train=True)
    assert "on images it would choose" in str(entry_named("sa-rl").applies(setting))
    assert "does not imitate what acts on images" in str(entry_named("transfer").applies(setting))
    wide = AttackSetting(toy_victim(), Toy, adv.Linf(0.1, 2.0), train=True)
    assert "own units" in str(entry_named("pa-ad-action").applies(wide))
    nothing = AttackSetting(balancing(), brief, train=True)
    needs = {name for name in LEARNED if str(entry_named(name).applies(nothing)).startswith("it needs a budget")}
    assert needs == {"sa-rl", "pa-ad", "timed-max-diff", "transfer"}


def test_trainings_that_cannot_be_are_refused_where_they_are_asked_for():
    setting = AttackSetting(balancing(), brief, adv.Linf(0.1), training={"algorithm": "acktr"})
    assert entry_named("pa-ad").applies(setting) is None
    with pytest.raises(ThreatError, match="'acktr'"):
        entry_named("pa-ad").applies(
            AttackSetting(balancing(), brief, adv.Linf(0.1), train=True, training=setting.training)
        )
