"""The budgets of the standing, which no submission chooses, and the check of an agent's own unit."""

from __future__ import annotations

import pytest

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.errors import BudgetError
from adv_wrappers.studies.standing.budgets import budget_of_environment, check_unit, chosen_budget
from adv_wrappers.threats.presets import parse_threat


def test_versions_of_an_environment_share_a_budget():
    assert budget_of_environment("Hopper-v4") == budget_of_environment("Hopper-v5") is not None
    assert budget_of_environment("ALE/Pong-v5") == budget_of_environment("PongNoFrameskip-v4") is not None
    assert budget_of_environment("LunarLander-v3") is None


@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCar-v0", "Hopper-v5", "ALE/Pong-v5"])
def test_a_budget_as_arguments_is_the_budget_of_a_threat(env):
    budget = budget_of_environment(env)
    assert parse_threat(f"noise:{budget.arguments}").budget == Linf(budget.eps, budget.scale)


def test_another_eps_or_scale_than_the_tables_is_refused():
    assert chosen_budget("Hopper-v5", 0.075, "victim").eps == 0.075
    with pytest.raises(BudgetError, match=r"all attacked at eps=0\.075"):
        chosen_budget("Hopper-v5", 0.01, None)
    with pytest.raises(BudgetError, match="leave it out"):
        chosen_budget("Hopper-v5", None, 0.5)


def test_an_environment_without_a_budget_needs_one():
    assert chosen_budget("LunarLander-v3", 0.1, None).eps == 0.1
    with pytest.raises(BudgetError, match="no budget for LunarLander-v3"):
        chosen_budget("LunarLander-v3", None, None)
    with pytest.raises(BudgetError, match="allows nothing"):
        chosen_budget("LunarLander-v3", 0.0, None)


def test_a_unit_must_not_shrink_the_budget():
    check_unit([1.0, 0.0], [1.0, 0.0])
    with pytest.raises(BudgetError, match=r"0\.1 times the standard deviation"):
        check_unit([0.1, 0.1], [1.0, 1.0])
    with pytest.raises(BudgetError, match="is 0 for speed"):
        check_unit([1.0, 0.0], [1.0, 1.0], ["place", "speed"])
