"""Warnings: each one where it belongs, and none where it does not."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from adv_wrappers.evaluation.episodes import checkpoint_seeds, draw_seeds
from adv_wrappers.evaluation.rows import report_warnings
from adv_wrappers.evaluation.rows.checked_row import CheckedRow
from adv_wrappers.victims import Victim, from_module
from adv_wrappers.victims.smoothed import Smoothed
from tests.evaluation.agents import balancing, make_short, short
from tests.evaluation.masked import noisy

HIGH, LOW = np.full(8, 90.0), np.full(8, 20.0)


def brief() -> gym.Env:
    """CartPole that ends after 10 steps."""
    return make_short("CartPole-v1", 10)


def outcome(text: str, victim: Victim, returns: np.ndarray, **more: object) -> CheckedRow:
    name, eps = text.split(":eps=")
    return CheckedRow(text, (adv.threat(name, victim, eps=float(eps)),), returns, **more)  # type: ignore[arg-type]


def test_a_trained_adversary_that_learned_nothing(victim: Victim) -> None:
    how = adv.Learned(lambda x: torch.zeros(len(x), 4), adv.SARL())
    clean, learned = (
        CheckedRow("none", (), HIGH),
        CheckedRow("mine", (adv.ThreatModel("observation", how, adv.Linf(0.1)),), HIGH),
    )
    assert "mine takes nothing of the clean return (90 of 90)" in report_warnings.learned_nothing([clean, learned])[0]
    assert report_warnings.learned_nothing([clean, replace(learned, returns=LOW)]) == []
    assert report_warnings.learned_nothing([clean, outcome("noise:eps=0.1", victim, HIGH)]) == []
    assert report_warnings.find_warnings([clean, learned], victim)[-1].startswith("mine takes nothing")


def test_zero_gradients_and_lost_perturbations(victim: Victim) -> None:
    def said(unchanged: int, gradients: int = 0, zero: int = 0, integers: bool = False) -> list[str]:
        counts = {"attacked": 10, "unchanged": unchanged, "gradients": gradients, "zero_gradients": zero}
        return report_warnings.without_effect(CheckedRow("a", (), LOW, checks={**counts, "integers": integers}))

    assert "a: zero gradients at 8 of 8" in said(0, 8, 8)[0] and said(1, 8, 1) == []
    assert "lost by rounding" in said(10, integers=True)[0] and said(10)[0].endswith("came out unchanged")


def test_a_stochastic_victim_played_by_its_mode(victim: Victim) -> None:
    logits = balancing("logits")
    assert "select='sample'" in report_warnings.mode_of_stochastic_policy(logits)[0]
    assert (
        report_warnings.mode_of_stochastic_policy(victim) == []
        and report_warnings.mode_of_stochastic_policy(balancing("logits", "sample")) == []
    )
    logits.card = {"action": {"select": "mode"}}
    assert report_warnings.mode_of_stochastic_policy(logits) == []
    logits.card = {"action": {"select": "sample"}}
    assert "source samples" in report_warnings.mode_of_stochastic_policy(logits)[0]


class Flat(nn.Module):
    """A law behind a step function: the right actions, and no gradient."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        lead = (obs @ torch.tensor([0.1, 0.3, 3.0, 1.0], dtype=obs.dtype) > 0).to(obs.dtype)[:, None]
        return torch.cat([1 - lead, lead], 1) + 0 * obs[:, :1]


def test_a_masked_gradient_is_found_in_an_evaluation(victim: Victim) -> None:
    env = gym.make("CartPole-v1")
    flat = from_module(Flat(), env.observation_space, env.action_space, "q")
    report = adv.evaluate(flat, brief, ["max-diff:eps=0.05"], episodes=2)
    assert any("zero gradients" in warning for warning in report.warnings)
    honest = adv.evaluate(victim, brief, ["max-diff:eps=0.05", "pgd:eps=0.05,steps=5,restarts=1"], episodes=2)
    assert honest.warnings == ()


def test_a_radius_that_covers_the_whole_space(victim: Victim) -> None:
    space = gym.spaces.Box(0, 1, (3,), np.float32)
    victim = from_module(nn.Linear(3, 2), space, gym.spaces.Discrete(2), "q")
    [said] = report_warnings.budget_covers_space(outcome("noise:eps=8", victim, LOW), victim)
    assert said.startswith("noise:eps=8: a radius of eps=8 in units of the space covers the whole range of the observ")
    assert "(0 to 1)" in said
    assert report_warnings.budget_covers_space(outcome("noise:eps=0.5", victim, LOW), victim) == []
    frozen = CheckedRow("a", (adv.threat("noise", eps=8, scale=(1, 1, 0)),), LOW)
    assert report_warnings.budget_covers_space(frozen, victim) == []
    scaled = CheckedRow("a", (adv.threat("noise", eps=0.5, scale=2),), LOW)
    assert "in units of its scale" in report_warnings.budget_covers_space(scaled, victim)[0]
    ball = CheckedRow("a", (adv.threat("noise", eps=8, norm="l2"), adv.threat("noise", norm="valid")), LOW)
    assert (
        report_warnings.budget_covers_space(ball, victim) == []
        and report_warnings.budget_covers_space(CheckedRow("none", (), LOW), victim) == []
    )


def test_features_without_bounds_are_not_covered(victim: Victim) -> None:
    assert report_warnings.budget_covers_space(outcome("noise:eps=2", victim, LOW), victim) == []
    assert (
        "covers" in report_warnings.budget_covers_space(outcome("noise:eps=10", victim, LOW), victim)[0]
    )  # the others have none
    open_ = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    wide = from_module(nn.Linear(4, 2), open_, gym.spaces.Discrete(2), "q")
    assert report_warnings.budget_covers_space(outcome("noise:eps=10", wide, LOW), wide) == []


def test_a_clean_run_far_below_its_card(victim: Victim) -> None:
    clean = CheckedRow("none", (), np.full(8, 90.0))
    entry = {"attack": "none", "mean": 200.0, "std": 20.0, "episodes": 30}
    victim.card = {"environment": {"id": "CartPole-v1"}, "measured": [{**entry, "attack": "mad", "mean": 999.0}, entry]}
    [said] = report_warnings.far_below_training([clean], victim, "CartPole-v1")
    assert "earns 90, its card says 200" in said and "VecNormalize" in said and "keyword arguments" in said
    assert report_warnings.find_warnings([clean], victim, "CartPole-v1") == [said]
    assert report_warnings.far_below_training([clean], victim, "CartPole-v0") == []
    assert report_warnings.far_below_training([clean], victim, None) == []
    assert report_warnings.far_below_training([replace(clean, returns=np.full(8, 185.0))], victim, "CartPole-v1") == []
    victim.card["measured"].append({**entry, "mean": 100.0, "std": 80.0})  # other seeds, with falls
    assert report_warnings.far_below_training([clean], victim, "CartPole-v1") == []


def test_single_runs_are_told_of_stronger_forms_once(victim: Victim) -> None:
    rows = [outcome("fgsm:eps=0.1", victim, LOW), outcome("max-diff:eps=0.1", victim, LOW)]
    [said] = report_warnings.only_single_runs(rows, victim)
    assert said.startswith("fgsm:eps=0.1, max-diff:eps=0.1 are single runs with published settings: pgd")
    assert said in report_warnings.find_warnings(rows, victim)
    assert report_warnings.only_single_runs(rows[:1], victim)[0].startswith("fgsm:eps=0.1 is a single run")
    assert report_warnings.only_single_runs([*rows, outcome("pgd:eps=0.1", victim, LOW)], victim) == []
    assert report_warnings.only_single_runs([outcome("noise:eps=0.1", victim, LOW)], victim) == []


def test_an_environment_that_is_perturbed_already(victim: Victim) -> None:
    def hostile() -> gym.Env:
        return adv.wrap(brief(), "noise:eps=0.1", "max-diff:eps=0.05", victim=victim)

    report = adv.evaluate(victim, hostile, "noise:eps=0.2", episodes=2, minimum=0)
    first, second = report.threats
    assert first["threat"] == "none (on an environment already perturbed by noise:eps=0.1 + max-diff:eps=0.05)"
    assert report.warnings[0].startswith("the environment is perturbed already, by noise:eps=0.1 + max-diff:eps=0.05")
    assert second["threat"] == "noise:eps=0.2" and second["impact"] is None and second["general_impact"] is None
    clean = adv.evaluate(victim, brief, "noise:eps=0.2", episodes=2, minimum=0)
    assert clean.threats[0]["threat"] == "none" and clean.threats[1]["impact"] is not None


@pytest.mark.parametrize("named", [False, True])
def test_a_mask_without_a_name(named: bool) -> None:
    class Masked(gym.Env):  # type: ignore[type-arg]
        action_space = gym.spaces.Discrete(3)
        observation_space = gym.spaces.Tuple([gym.spaces.Box(-1, 1, (2,)), gym.spaces.MultiBinary(3)])
        if named:
            action_masks = staticmethod(lambda: np.array([0, 1, 1], np.int8))

        def reset(self, **given: object) -> object:
            super().reset(seed=given.get("seed"))  # type: ignore[arg-type]
            return self.observation_space.sample(), {}

        def step(self, action: object) -> object:
            return self.observation_space.sample(), 1.0, True, False, {}

    agent = from_module(lambda x: x[1].float(), Masked.observation_space, Masked.action_space, "logits")
    found = [w for threat in ("action-flip", []) for w in adv.evaluate(agent, Masked, threat, episodes=1).warnings]
    said = [w for w in found if w.startswith("observation[1] has a bit for every action") and "action_masks()" in w]
    assert len(said) == (not named)


def test_a_victim_says_how_its_own_environment_is_made(victim: Victim) -> None:
    victim.card = {"environment": {"id": "Own-v1", "kwargs": {"use_contact_forces": True}}}
    with pytest.raises(VictimError, match=r"made: gymnasium.make\('Own-v1', use_contact_forces=True\)"):
        adv.wrap(gym.make("Acrobot-v1"), adv.threat("pgd", victim, eps=0.1))
    victim.card = {"environment": {"id": "Own-v1", "kwargs": {}}}
    with pytest.raises(VictimError, match="this environment has Box") as error:
        adv.evaluate(victim, "MountainCar-v0", episodes=1)
    assert "card" not in str(error.value)


# random victims


def test_answers_that_differ_are_found_in_an_evaluation() -> None:
    """Without an attack too: whoever attacks the agent later is to know."""
    [said] = adv.evaluate(noisy(noise=0.01), short, episodes=2).warnings
    assert said.startswith("the agent answers differently when it is asked twice about one observation (4 of 4)")
    assert "averages many draws (as Smoothed does)" in said
    assert adv.evaluate(noisy(), short, episodes=2).warnings == ()


def test_attacks_that_see_one_draw_of_the_noise() -> None:
    def warnings(samples: int, *threats: str) -> list[str]:
        found = adv.evaluate(Smoothed(balancing("q"), 0.1, samples=samples), brief, threats, episodes=2).warnings
        return [warning for warning in found if "expectation" in warning]

    assert "see the agent without its noise" in warnings(0, "max-diff:eps=0.05")[0]
    assert "under one draw of its noise" in warnings(1, "max-diff:eps=0.05")[0]
    assert warnings(16, "max-diff:eps=0.05") == [] == warnings(0)


def test_decisions_of_an_agent_that_samples(sampler: Victim) -> None:
    rows = ["hop-skip-jump:queries=16,eps=0.05", "square:queries=4,eps=0.05"]
    found = adv.evaluate(sampler, brief, rows, episodes=2).warnings
    assert [w for w in found if "the agent samples its actions" in w] == [
        "hop-skip-jump:queries=16,eps=0.05 looks at the most likely action, and the agent samples its actions: square "
        "and max-diff look at the probabilities"
    ]
    greedy = adv.evaluate(balancing("logits"), brief, rows, episodes=2).warnings
    assert not any("the agent samples its actions:" in w for w in greedy)


# budgets without a bound


def test_an_attack_that_may_show_anything_takes_something() -> None:
    """An agent that acts by nothing that it sees, and one that acts by all of it."""
    env = gym.make("CartPole-v1")
    deaf = from_module(
        lambda x: torch.stack([x[:, 0] * 0, x[:, 0] * 0 + 1], 1), env.observation_space, env.action_space, "q"
    )
    rows = ["noise:eps=10", "square:queries=20,eps=10"]
    found = [w for w in adv.evaluate(deaf, short, rows, episodes=3).warnings if "leaves the clean return" in w]
    assert len(found) == 1 and found[0].startswith("square:queries=20,eps=10 leaves the clean return")
    assert not any("leaves the clean" in w for w in adv.evaluate(balancing("q"), short, rows, episodes=3).warnings)


# choices


def chosen(record: dict[str, object]) -> adv.Learned:
    director = adv.adversaries.Director(nn.Sequential(nn.Linear(4, 4)), False, True)
    director.record = record
    return adv.Learned(director, adv.SARL())


def test_an_adversary_that_was_chosen_on_the_scored_episodes(victim: Victim) -> None:
    record = {"seed": 3, "episodes": 4, "checkpoints": [{}], "environment": {"id": "CartPole-v1"}}
    rows = [CheckedRow("mine", (adv.ThreatModel("observation", chosen(record), adv.Linf(0.1)),), LOW)]
    seeds = checkpoint_seeds(3, 8)
    [said] = report_warnings.chosen_on_scored_episodes(rows, victim, "CartPole-v1", seeds)
    assert said.startswith("the checkpoint of mine was chosen on 4 of the 8 episodes") and "too low" in said
    assert said in report_warnings.find_warnings(rows, victim, "CartPole-v1", seeds=seeds)
    assert report_warnings.chosen_on_scored_episodes(rows, victim, "CartPole-v1", draw_seeds(3, 8)) == []
    assert report_warnings.chosen_on_scored_episodes(rows, victim, "Acrobot-v1", seeds) == []
    assert report_warnings.chosen_on_scored_episodes(rows, victim, "CartPole-v1", draw_seeds(3, 4) + seeds[3:4]) != []


def test_an_agent_that_was_chosen_on_the_scored_episodes(victim: Victim) -> None:
    clean, seeds = [CheckedRow("none", (), HIGH)], checkpoint_seeds(0, 8)
    about = {"seed": 0, "episodes": 20, "checks": 10, "environment": {"id": "CartPole-v1"}}
    victim.card = {"training": about, "environment": {"id": "CartPole-v1"}}
    [said] = report_warnings.chosen_on_scored_episodes(clean, victim, "CartPole-v1", seeds)
    assert said.startswith("the agent's checkpoint was chosen on 8 of the 8 episodes") and "too high" in said
    for other in ({}, {"seed": 0, "episodes": 20}, {**about, "seed": "0"}, {**about, "episodes": 10**12}, [1]):
        victim.card = {"training": other}
        assert report_warnings.chosen_on_scored_episodes(clean, victim, "CartPole-v1", seeds) == []
