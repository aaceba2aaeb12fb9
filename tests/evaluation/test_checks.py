"""Warnings: each one where it belongs, and none where it does not."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import ThreatError, VictimError
from adv_wrappers.evaluation import checks
from adv_wrappers.evaluation.checks import Outcome
from adv_wrappers.victims import Victim, from_module
from tests.evaluation.agents import balancing, short

HIGH, LOW = np.full(8, 90.0), np.full(8, 20.0)


def outcome(text: str, victim: Victim, returns: np.ndarray, **more: object) -> Outcome:
    name, eps = text.split(":eps=")
    return Outcome(text, (adv.threat(name, victim, eps=float(eps)),), returns, **more)  # type: ignore[arg-type]


def test_an_attack_weaker_than_noise(victim: Victim) -> None:
    noise, attack = outcome("noise:eps=0.1", victim, LOW), outcome("max-diff:eps=0.1", victim, HIGH)
    assert "max-diff:eps=0.1 is weaker than noise:eps=0.1" in checks.weaker_than_noise([noise, attack])[0]
    assert checks.weaker_than_noise([replace(noise, returns=HIGH), replace(attack, returns=LOW)]) == []
    assert checks.weaker_than_noise([outcome("noise:eps=0.2", victim, LOW), attack]) == []


def test_a_difference_within_the_interval_is_no_warning(victim: Victim) -> None:
    spread = np.array([10.0, 190.0] * 4)
    pair = [outcome("noise:eps=0.1", victim, spread), outcome("max-diff:eps=0.1", victim, spread[::-1] + 1)]
    assert checks.weaker_than_noise(pair) == []


def test_a_trained_adversary_that_learned_nothing(victim: Victim) -> None:
    how = adv.Learned(lambda x: torch.zeros(len(x), 4), adv.SARL())
    clean, learned = (
        Outcome("none", (), HIGH),
        Outcome("mine", (adv.ThreatModel("observation", how, adv.Linf(0.1)),), HIGH),
    )
    assert "mine takes nothing of the clean return (90 of 90)" in checks.learned_nothing([clean, learned])[0]
    assert checks.learned_nothing([clean, replace(learned, returns=LOW)]) == []
    assert checks.learned_nothing([clean, outcome("noise:eps=0.1", victim, HIGH)]) == []
    assert checks.find_warnings([clean, learned], victim)[-1].startswith("mine takes nothing")


def test_a_return_that_does_not_fall(victim: Victim) -> None:
    small, large = outcome("max-diff:eps=0.1", victim, LOW), outcome("max-diff:eps=0.3", victim, HIGH)
    assert "max-diff:eps=0.3 leaves a higher return" in checks.return_rises_with_eps([large, small])[0]
    assert checks.return_rises_with_eps([replace(small, returns=HIGH), replace(large, returns=LOW)]) == []
    assert checks.return_rises_with_eps([small, outcome("pgd:eps=0.3", victim, HIGH)]) == []


def test_zero_gradients_and_lost_perturbations(victim: Victim) -> None:
    assert "zero gradients at 8 of 8" in checks.without_effect(Outcome("a", (), LOW, 10, 0, 8, 8))[0]
    assert checks.without_effect(Outcome("a", (), LOW, 10, 1, 8, 1)) == []
    assert "lost by rounding" in checks.without_effect(Outcome("a", (), LOW, 10, 10, 0, 0, True))[0]
    assert "came out unchanged" in checks.without_effect(Outcome("a", (), LOW, 10, 10))[0]


def test_a_stochastic_victim_played_by_its_mode(victim: Victim) -> None:
    logits = balancing("logits")
    assert "select='sample'" in checks.mode_of_stochastic_policy(logits)[0]
    assert (
        checks.mode_of_stochastic_policy(victim) == []
        and checks.mode_of_stochastic_policy(balancing("logits", "sample")) == []
    )
    logits.card = {"action": {"select": "mode"}}
    assert checks.mode_of_stochastic_policy(logits) == []
    logits.card = {"action": {"select": "sample"}}
    assert "source samples" in checks.mode_of_stochastic_policy(logits)[0]


class Flat(nn.Module):
    """A law behind a step function: the right actions, and no gradient."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        lead = (obs @ torch.tensor([0.1, 0.3, 3.0, 1.0], dtype=obs.dtype) > 0).to(obs.dtype)[:, None]
        return torch.cat([1 - lead, lead], 1) + 0 * obs[:, :1]


def test_a_masked_gradient_is_found_in_an_evaluation(victim: Victim) -> None:
    env = gym.make("CartPole-v1")
    flat = from_module(Flat(), env.observation_space, env.action_space, "q")
    report = adv.evaluate(flat, short, ["max-diff:eps=0.05"], episodes=2)
    assert any("zero gradients" in warning for warning in report.warnings)
    honest = adv.evaluate(victim, short, ["max-diff:eps=0.05", "pgd:eps=0.05"], episodes=2)
    assert honest.warnings == ()


@pytest.mark.parametrize("text", ["noise:eps=0.1", "pgd:eps=0.1"])
def test_gradients_are_looked_at_where_an_attack_has_an_objective(victim: Victim, text: str) -> None:
    layer = adv.wrap(gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"), text, victim=victim)
    obs, _ = layer.reset(seed=0)
    assert checks.count_zero_gradients(layer.engine, obs, np.arange(2)) == ((0, 0) if "noise" in text else (2, 0))


class Cusp(Flat):
    """The same law on a smooth path, beside a root at zero: every gradient is NaN, every answer is finite."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        lead = (obs @ torch.tensor([0.1, 0.3, 3.0, 1.0], dtype=obs.dtype))[:, None]
        return torch.cat([-lead, lead], 1) + (0 * obs[:, :1]).sqrt()


def test_a_gradient_that_is_not_finite_is_none() -> None:
    env = gym.make("CartPole-v1")
    cusp = from_module(Cusp(), env.observation_space, env.action_space, "q", ref="cusp")
    attacked = adv.wrap(gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"), "pgd:eps=0.1", victim=cusp)
    obs = np.full((3, 4), 0.01, np.float32)
    assert checks.count_zero_gradients(attacked.engine, obs, np.arange(3)) == (3, 3)
    with pytest.raises(ThreatError, match="not finite"):
        attacked.engine.apply(obs, True)


def test_a_radius_that_covers_the_whole_space(victim: Victim) -> None:
    space = gym.spaces.Box(0, 1, (3,), np.float32)
    victim = from_module(nn.Linear(3, 2), space, gym.spaces.Discrete(2), "q")
    [said] = checks.budget_covers_space(outcome("noise:eps=8", victim, LOW), victim)
    assert said.startswith("noise:eps=8: a radius of eps=8 in units of the space covers the whole range of the observ")
    assert "(0 to 1)" in said
    assert checks.budget_covers_space(outcome("noise:eps=0.5", victim, LOW), victim) == []
    frozen = Outcome("a", (adv.threat("noise", eps=8, scale=(1, 1, 0)),), LOW)
    assert checks.budget_covers_space(frozen, victim) == []
    scaled = Outcome("a", (adv.threat("noise", eps=0.5, scale=2),), LOW)
    assert "in units of its scale" in checks.budget_covers_space(scaled, victim)[0]
    ball = Outcome("a", (adv.threat("noise", eps=8, norm="l2"), adv.threat("noise", norm="valid")), LOW)
    assert (
        checks.budget_covers_space(ball, victim) == []
        and checks.budget_covers_space(Outcome("none", (), LOW), victim) == []
    )


def test_features_without_bounds_are_not_covered(victim: Victim) -> None:
    assert checks.budget_covers_space(outcome("noise:eps=2", victim, LOW), victim) == []
    assert (
        "covers" in checks.budget_covers_space(outcome("noise:eps=10", victim, LOW), victim)[0]
    )  # the others have none
    open_ = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    wide = from_module(nn.Linear(4, 2), open_, gym.spaces.Discrete(2), "q")
    assert checks.budget_covers_space(outcome("noise:eps=10", wide, LOW), wide) == []


def test_a_clean_run_far_below_its_card(victim: Victim) -> None:
    clean = Outcome("none", (), np.full(8, 90.0))
    entry = {"attack": "none", "mean": 200.0, "std": 20.0, "episodes": 30}
    victim.card = {"environment": {"id": "CartPole-v1"}, "measured": [{**entry, "attack": "mad", "mean": 999.0}, entry]}
    [said] = checks.far_below_training([clean], victim, "CartPole-v1")
    assert "earns 90, its card says 200" in said and "VecNormalize" in said and "keyword arguments" in said
    assert checks.find_warnings([clean], victim, "CartPole-v1") == [said]
    assert checks.far_below_training([clean], victim, "CartPole-v0") == []
    assert checks.far_below_training([clean], victim, None) == []
    assert checks.far_below_training([replace(clean, returns=np.full(8, 185.0))], victim, "CartPole-v1") == []
    victim.card["measured"].append({**entry, "mean": 100.0, "std": 80.0})  # other seeds, with falls
    assert checks.far_below_training([clean], victim, "CartPole-v1") == []


def test_single_runs_are_told_of_stronger_forms_once(victim: Victim) -> None:
    rows = [outcome("fgsm:eps=0.1", victim, LOW), outcome("max-diff:eps=0.1", victim, LOW)]
    [said] = checks.only_single_runs(rows, victim)
    assert said.startswith("fgsm:eps=0.1, max-diff:eps=0.1 are single runs with published settings: pgd")
    assert said in checks.find_warnings(rows, victim)
    assert checks.only_single_runs(rows[:1], victim)[0].startswith("fgsm:eps=0.1 is a single run")
    assert checks.only_single_runs([*rows, outcome("pgd:eps=0.1", victim, LOW)], victim) == []
    assert checks.only_single_runs([outcome("noise:eps=0.1", victim, LOW)], victim) == []


def test_an_environment_that_is_perturbed_already(victim: Victim) -> None:
    def hostile() -> gym.Env:
        return adv.wrap(short(), "noise:eps=0.1", "max-diff:eps=0.05", victim=victim)

    report = adv.evaluate(victim, hostile, "noise:eps=0.2", episodes=2, minimum=0)
    first, second = report.threats
    assert first["threat"] == "none (on an environment already perturbed by noise:eps=0.1 + max-diff:eps=0.05)"
    assert report.warnings[0].startswith("the environment is perturbed already, by noise:eps=0.1 + max-diff:eps=0.05")
    assert second["threat"] == "noise:eps=0.2" and second["impact"] is None and second["general_impact"] is None
    clean = adv.evaluate(victim, short, "noise:eps=0.2", episodes=2, minimum=0)
    assert clean.threats[0]["threat"] == "none" and clean.threats[1]["impact"] is not None


def test_a_victim_says_how_its_own_environment_is_made(victim: Victim) -> None:
    victim.card = {"environment": {"id": "Own-v1", "kwargs": {"use_contact_forces": True}}}
    with pytest.raises(VictimError, match=r"made: gymnasium.make\('Own-v1', use_contact_forces=True\)"):
        adv.wrap(gym.make("Acrobot-v1"), adv.threat("pgd", victim, eps=0.1))
    victim.card = {"environment": {"id": "Own-v1", "kwargs": {}}}
    with pytest.raises(VictimError, match="this environment has Box") as error:
        adv.evaluate(victim, "MountainCar-v0", episodes=1)
    assert "card" not in str(error.value)


# lower precision


def test_flipped_actions_are_reported():
    net = nn.Linear(4, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, 0, 1, 0.2], [0, 0, -1, -0.2]]))
        net.bias.fill_(300.0)  # so large that bfloat16 sees no difference and takes the first action
    victim = from_module(net, spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2), "q")
    threats = ["pgd:eps=0.01", "pgd:eps=0.01,precision=bf16", "noise:eps=0.01"]
    report = adv.evaluate(victim, "CartPole-v1", threats, episodes=3)
    full, low, noise = report.threats[1:]
    assert full["flipped_actions"] is noise["flipped_actions"] is None
    assert 0.03 < low["flipped_actions"] < 0.8
    assert [w for w in report.warnings if "in the precision of the attack the victim acts otherwise at" in w]


def test_flips_differ_between_agents():
    """Q-values of 100 that differ by 0.1 are ties in bfloat16; logits are not."""
    threats = ["min-best:eps=0.1,steps=10,step=0.25,random_start=true,precision=bf16"]
    q, logits = (adv.evaluate(f"zoo:cartpole-{name}", "CartPole-v1", threats, episodes=2) for name in ("dqn", "ppo"))
    assert q.threats[1]["flipped_actions"] > 0.5 and any("in the precision" in w for w in q.warnings)
    assert logits.threats[1]["flipped_actions"] < 0.05
    assert any("in the precision" in w for w in logits.warnings) is (logits.threats[1]["flipped_actions"] > 0.01)
