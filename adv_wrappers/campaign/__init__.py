"""Campaigns: many attacks on one agent, and what is left of it under the strongest."""

from adv_wrappers.campaign.suite_report import SuiteReport
from adv_wrappers.campaign.suites import standard

__all__ = ["SuiteReport", "standard"]
