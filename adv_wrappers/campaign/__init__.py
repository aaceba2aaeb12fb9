"""Campaigns: many attacks on one agent, or many agents, and what is left of them under the strongest."""

from adv_wrappers.campaign.plan import Grid, Plan
from adv_wrappers.campaign.plan_cells import expand
from adv_wrappers.campaign.run_plan import RunSummary, run
from adv_wrappers.campaign.run_suite import run_suite, standard, suite_cost
from adv_wrappers.campaign.suite_attack_entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.campaign.suite_report import SuiteReport
from adv_wrappers.campaign.suites import SUITES, entries_that_apply
from adv_wrappers.evaluation.cost import Cost, Costs
from adv_wrappers.evaluation.store import Store

__all__ = [
    "SUITES", "AttackSetting", "Cost", "Costs", "Entry", "Grid", "MadeAttack", "Plan", "RunSummary", "Store",
    "SuiteReport", "entries_that_apply", "expand", "run", "run_suite", "standard", "suite_cost",
]  # fmt: skip
