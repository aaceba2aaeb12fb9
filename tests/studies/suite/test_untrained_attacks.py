"""Entries that need no training: every one is run here on something small, and under the budget that is its own."""

from __future__ import annotations

import gymnasium as gym
import pytest
from torch import nn

import adv_wrappers as adv
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.environments.environment import Environment
from adv_wrappers.studies import SUITES, AttackSetting, run_suite
from adv_wrappers.studies.suite.attack_lists import entry_named
from tests.evaluation.agents import Film, balancing, watcher
from tests.training.toys import Toy, toy_victim

NEW = [
    "square", "hop-skip-jump", "lower-bound-pgd", "flip", "max-worst", "min-value", "min-played-q", "carlini-wagner",
    "strategic-max-diff", "action-noise", "action-flip", "half-action-flip", "worst-action", "half-worst-action",
]  # fmt: skip


def brief() -> gym.Env:
    """CartPole that ends after 2 steps."""
    return gym.make("CartPole-v1", max_episode_steps=2)


def reason(name, victim, env, budget=None, **more):
    return entry_named(name).applies(AttackSetting(victim, env, adv.Linf(0.1) if budget is None else budget, **more))


@pytest.mark.slow
def test_every_new_entry_runs_within_the_budget():
    report = run_suite("everything", "zoo:cartpole-dqn", brief, 0.1, attacks=NEW, episodes=1)
    assert report.attacks == tuple(NEW)
    rows = {row["threat"]: row for row in report.report.threats}
    within = [name for name in NEW if "action" not in name]
    assert all((rows[name]["linf"] or 0) <= 0.1 + 1e-6 for name in within)
    assert {*report.other_budgets} == {*NEW} - {*within} and {*report.other_budgets.values()} == {"any action"}


def test_the_lowest_bounds_are_those_of_the_same_agent():
    setting = AttackSetting("zoo:cartpole-dqn", brief, adv.Linf(0.1))
    made = entry_named("lower-bound-pgd").attack(setting)
    assert made.threat.how.victim.ref == "lower-bound:zoo:cartpole-dqn?eps=0.1&method=crown"
    assert "certified lower bounds" in made.protocol
    assert "of Q-values" in str(reason("lower-bound-pgd", balancing(), brief))
    assert "l-infinity ball" in str(reason("lower-bound-pgd", "zoo:cartpole-dqn", brief, adv.L2(0.1)))


def test_continuous_actions_and_a_model(tmp_path):
    victim = toy_victim()
    model = adv.train_dynamics(victim, Toy, 200, hidden=(), num_envs=2)
    names = ["action-noise", "bernoulli-action-noise", "action-flip", "worst-action", "action-model-based"]
    report = run_suite("action", victim, Toy, 0.2, attacks=names, episodes=2, dynamics=model)
    assert report.attacks == tuple(names) and report.protocol["action-model-based"].endswith("the model that was given")
    assert {*report.other_budgets.values()} == {"actions within eps=0.2"}
    rows = {row["threat"]: row for row in report.report.threats}
    assert rows["bernoulli-action-noise"]["layers"][0]["within"] == {"type": "linf", "eps": 0.2}
    assert "continuous" in str(reason("bernoulli-action-noise", balancing(), brief))
    assert "own units" in str(reason("action-noise", victim, Toy, adv.Linf(0.1, 2.0)))
    assert "own units" in str(reason("action-model-based", victim, Toy, adv.Linf(0.1, 2.0), dynamics=model))
    assert "one discrete action" in str(reason("strategic-max-diff", victim, Toy))


def test_daylight_by_the_game_or_by_default():
    report = run_suite("daylight", watcher(Film()), Film, episodes=1)
    assert report.attacks == tuple(entry.name for entry in SUITES["daylight"]) and report.other_budgets == {}
    assert report.settings["budget"] == "no budget" and "the preset's own numbers" in report.protocol["rotation"]
    made = [
        entry_named("rotation").attack(AttackSetting(watcher(Film()), Environment(id, make=lambda id: Film())))
        for id in ("PongNoFrameskip-v4", "ALE/TimePilot-v5", "Breakout-v5")
    ]
    assert [getattr(one.threat.how, "game", None) for one in made] == ["Pong", "TimePilot", None]
    assert made[0].protocol == "one run with the daylight paper's numbers, daylight:game=Pong,transform=rotation"
    assert all(one.threat.budget == adv.Valid() for one in made)


def test_texts_are_under_the_budget_of_what_they_perturb():
    setting = AttackSetting("zoo:cartpole-dqn", brief, adv.Linf(0.1))
    made = {
        text: entry_named(text).attack(setting).threat
        for text in ("carlini-wagner:steps=3", "action-flip:p=0.25", "max-diff:when=every(2)", "rotation:degrees=5")
    }
    assert [one.budget for one in made.values()] == [adv.Linf(0.1), adv.Valid(), adv.Linf(0.1), adv.Valid()]
    assert made["max-diff:when=every(2)"].when == adv.Every(2)
    late = "max-diff:when=every(2)&strategic(0.1)"
    assert "one discrete action" in str(reason(late, toy_victim(), Toy)) and reason(late, balancing(), brief) is None


def test_an_adversary_that_is_there_is_an_entry_by_its_text(tmp_path):
    victim = adv.load_victim("zoo:cartpole-dqn")
    folder = tmp_path / "adversary"
    Learned(Director(nn.Sequential(nn.Linear(4, 4)), discrete=False), adv.SARL()).save(folder, adv.Linf(0.1))
    report = run_suite(["noise", f"learned:card={folder}"], victim, brief, 0.05, episodes=1)
    assert report.attacks == ("noise", f"learned:card={folder}") and report.other_budgets == {}
    assert 0 < report.report.threats[2]["linf"] <= 0.05 + 1e-6  # and not the 0.1 that it was trained with
    assert "this director sees 4 numbers" in str(reason(f"learned:card={folder}", toy_victim(), Toy))
    with pytest.raises(adv.AdvWrappersError, match="nowhere"):
        entry_named("learned:card=nowhere")


def test_discrete_observations_have_noise_and_a_search():
    lake = gym.make("FrozenLake-v1")
    victim = adv.from_module(nn.Embedding(16, 4), lake.observation_space, lake.action_space, "q")
    report = run_suite("everything", victim, "FrozenLake-v1", within=adv.L0(1), episodes=4)
    assert [name for name in report.attacks if "action" not in name] == ["noise", "discrete-search"]
    assert "moves values by distances" in report.left_out["pgd"] and "distances" in report.left_out["square"]
    why = reason("discrete-search", watcher(Film()), Film, adv.Linf(2.0))
    assert "square searches a Box" in why
