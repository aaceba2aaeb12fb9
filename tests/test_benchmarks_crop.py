"""The script of CROP's bounds: budgets of its attacks, and what its page claims."""

from __future__ import annotations

import pytest

from adv_wrappers.core.budgets import L2
from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("crop") as module:
        yield module


def test_attacks_are_within_the_budget_of_the_certificate(script):
    victim = script.AGENTS[0].victim()
    assert {script.attack(name, victim, 0.02).within for name in script.ATTACKS} == {L2(0.02)}
    assert script.attack("network", victim, 0.02).how.victim is victim.victim


def test_an_attack_below_its_certificate_is_named(script):
    agent = script.AGENTS[0]
    attacks = {"none": [9.0, 9.0]} | {f"{name}, {eps:g}": [9.0, 9.0] for eps in script.EPS for name in script.ATTACKS}
    lower = [[5.0, 5.0] for _ in script.EPS]
    row = {"attacks": attacks, "played": {"lower_returns": lower}}
    assert script.broken({str(agent): row}) == []
    attacks[f"pgd, {script.EPS[1]:g}"] = [9.0, 4.0]
    assert script.broken({str(agent): row}) == [f"{agent}, eps {script.EPS[1]:g}, episode 1"]
    assert script.lowest(attacks, script.EPS[1])[1] == "pgd" and script.lowest(attacks, script.EPS[0])[1] == ""
