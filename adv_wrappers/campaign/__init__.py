"""Campaigns: many attacks on one agent, and what is left of it under the strongest."""

from adv_wrappers.campaign.entries import AttackSetting, Entry, MadeAttack
from adv_wrappers.campaign.run_suite import run_suite, standard
from adv_wrappers.campaign.suite_report import SuiteReport
from adv_wrappers.campaign.suites import SUITES, entries_that_apply

__all__ = [
    "SUITES", "AttackSetting", "Entry", "MadeAttack", "SuiteReport", "entries_that_apply", "run_suite", "standard",
]  # fmt: skip
