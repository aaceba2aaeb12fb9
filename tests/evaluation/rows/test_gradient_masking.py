"""Masked gradients: found where they are planted, and not where an agent's gradients lead to its weakness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.evaluation.rows import gradient_masking as masking
from adv_wrappers.evaluation.rows.checked_row import CheckedRow
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.utils.parsing import split_outside_quotes
from adv_wrappers.victims import Victim
from tests.evaluation.agents import balancing, short
from tests.evaluation.masked import saturated, straight_through

HIGH, LOW = np.full(8, 90.0), np.full(8, 20.0)
SPREAD = np.array([10.0, 190.0] * 4)  # as wide as to hide any of the differences that are tried
ROWS = ["noise:eps=0.2", "pgd:eps=0.2", "max-diff:eps=0.2", "square:queries=60,eps=0.2"]


def outcome(text: str, victim: Victim, returns: np.ndarray, **more: bool) -> CheckedRow:
    return CheckedRow(text, (adv.threat(*[text.partition(":")[0]], victim, **arguments(text)),), returns, **more)


def arguments(text: str) -> dict[str, float]:
    pairs = (part.split("=") for part in split_outside_quotes(text.partition(":")[2], ","))
    return {key: float(value) if key == "eps" else int(value) for key, value in pairs}


def returns_of(report: Report) -> dict[str, float]:
    return {row["threat"]: row["mean_return"] for row in report.threats}


@pytest.mark.slow
@pytest.mark.parametrize("make", [saturated, straight_through])
def test_planted_masked_gradients_are_found(make) -> None:
    """Attacks by gradients leave the agent nearly whole, where a search without them breaks it."""
    report = adv.evaluate(make(), short, ROWS, episodes=16)
    left = returns_of(report)
    assert left["none"] == left["noise:eps=0.2"] == left["max-diff:eps=0.2"] == 40
    assert left["pgd:eps=0.2"] > 35 and left["square:queries=60,eps=0.2"] < 30
    [said] = [warning for warning in report.warnings if "needs no gradient and is stronger than" in warning]
    assert said.startswith("square:queries=60,eps=0.2") and "pgd:eps=0.2, the strongest gradient attack" in said
    assert sum("is no stronger than noise:eps=0.2" in warning for warning in report.warnings) == 2
    blind = [warning for warning in report.warnings if "zero gradients at" in warning]
    assert len(blind) == (2 if make is saturated else 0)
    honest = adv.evaluate(balancing("q"), short, ROWS, episodes=6)
    left = returns_of(honest)
    assert left["pgd:eps=0.2"] < 20 > left["square:queries=60,eps=0.2"] and honest.warnings == ()


def test_masked_agents_act_as_the_honest_one_does() -> None:
    observations = np.random.default_rng(0).uniform(-1, 1, (500, 4)).astype(np.float32)
    same = balancing("q").act_on(observations)
    for victim in (saturated(), straight_through()):
        assert (victim.act_on(observations) == same).all()


def test_a_gradient_free_attack_is_compared_with_the_strongest_by_gradient(victim: Victim) -> None:
    square, weak = outcome("square:eps=0.1", victim, LOW), outcome("fgsm:eps=0.1", victim, HIGH)
    check = masking.gradient_free_is_stronger
    [said] = check([weak, square])
    assert said.startswith("square:eps=0.1 needs no gradient and is stronger than fgsm:eps=0.1") and "masking" in said
    assert check([weak, square, outcome("pgd:eps=0.1", victim, LOW)]) == []
    assert check([outcome("fgsm:eps=0.2", victim, HIGH), square]) == []
    assert check([weak, outcome("square:eps=0.1", victim, SPREAD - 20)]) == []
    assert check([replace(weak, returns=HIGH[:1]), replace(square, returns=LOW[:1])]) == []


def test_attacks_at_chance_where_more_can_be_taken(victim: Victim) -> None:
    clean, noise = CheckedRow("none", (), HIGH), outcome("noise:eps=0.1", victim, HIGH - 10)
    attack, large = outcome("pgd:eps=0.1", victim, HIGH - 10), outcome("pgd:eps=0.3", victim, LOW)
    square, check = outcome("square:eps=0.1", victim, LOW), masking.no_stronger_than_noise
    assert "(80 against 80), as square:eps=0.1 is (20)" in check([clean, noise, attack, square])[0]
    assert "as pgd:eps=0.3 is (20)" in check([clean, noise, attack, large])[0]
    assert check([clean, noise, attack]) == []
    assert check([clean, replace(noise, returns=HIGH), replace(attack, returns=HIGH), large]) == []  # a small budget
    assert check([clean, noise, attack, square, outcome("fgsm:eps=0.1", victim, LOW)]) == []  # gradients lead there
    assert check([clean, noise, replace(attack, returns=HIGH), square]) == []  # weaker_than_noise says it


def test_transfer_is_compared_with_the_same_attack(victim: Victim) -> None:
    other = outcome("pgd:eps=0.1", victim, LOW, transfer=True)
    check = masking.transfer_is_stronger
    assert len(check([outcome("pgd:eps=0.1", victim, HIGH), other])) == 1
    assert check([outcome("max-diff:eps=0.1", victim, HIGH), other]) == []
    assert check([outcome("pgd:eps=0.2", victim, HIGH), other]) == []
    assert check([outcome("pgd:eps=0.1", victim, LOW), replace(other, returns=HIGH)]) == []


def test_steps_that_have_not_converged(victim: Victim) -> None:
    clean, check = CheckedRow("none", (), HIGH), masking.more_steps_are_stronger
    few, many = (outcome(f"max-diff:steps={n},eps=0.1", victim, r) for n, r in ((5, HIGH - 20), (50, LOW)))
    [said] = check([clean, many, few])
    assert "max-diff:steps=50,eps=0.1 is stronger by far than max-diff:steps=5,eps=0.1 (20 against 70)" in said
    assert "5 steps have not converged" in said
    assert check([clean, few, replace(many, returns=HIGH - 21)]) == []  # a little of what was taken
    assert check([clean, few, many, outcome("max-diff:steps=200,eps=0.1", victim, LOW)]) == []  # 50 have
    assert check([clean, few, outcome("max-diff:steps=50,eps=0.2", victim, LOW)]) == []
    queries = [outcome(f"square:queries={n},eps=0.1", victim, r) for n, r in ((10, HIGH), (90, LOW))]
    assert "10 queries have not converged" in check([clean, *queries])[0]
    delays = [outcome(f"observation-delay:steps={n}", victim, r) for n, r in ((1, HIGH), (3, LOW))]
    assert check([clean, *delays]) == []  # which search nothing


def test_an_attack_weaker_than_noise(victim: Victim) -> None:
    noise, attack = outcome("noise:eps=0.1", victim, LOW), outcome("max-diff:eps=0.1", victim, HIGH)
    assert "max-diff:eps=0.1 is weaker than noise:eps=0.1" in masking.weaker_than_noise([noise, attack])[0]
    assert masking.weaker_than_noise([replace(noise, returns=HIGH), replace(attack, returns=LOW)]) == []
    assert masking.weaker_than_noise([outcome("noise:eps=0.2", victim, LOW), attack]) == []


def test_a_difference_within_the_interval_is_no_warning(victim: Victim) -> None:
    spread = np.array([10.0, 190.0] * 4)
    pair = [outcome("noise:eps=0.1", victim, spread), outcome("max-diff:eps=0.1", victim, spread[::-1] + 1)]
    assert masking.weaker_than_noise(pair) == []


def test_a_return_that_does_not_fall(victim: Victim) -> None:
    small, large = outcome("max-diff:eps=0.1", victim, LOW), outcome("max-diff:eps=0.3", victim, HIGH)
    assert "max-diff:eps=0.3 leaves a higher return" in masking.return_rises_with_eps([large, small])[0]
    assert masking.return_rises_with_eps([replace(small, returns=HIGH), replace(large, returns=LOW)]) == []
    assert masking.return_rises_with_eps([small, outcome("pgd:eps=0.3", victim, HIGH)]) == []
