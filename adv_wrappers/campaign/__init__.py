"""Campaigns: many attacks on one agent, or many agents, and what is left of them under the strongest."""

from adv_wrappers.campaign.expand import expand
from adv_wrappers.campaign.plan import Grid, Plan
from adv_wrappers.campaign.run import RunSummary, run
from adv_wrappers.campaign.store import Store
from adv_wrappers.campaign.suite_report import SuiteReport
from adv_wrappers.campaign.suites import standard

__all__ = ["Grid", "Plan", "RunSummary", "Store", "SuiteReport", "expand", "run", "standard"]
