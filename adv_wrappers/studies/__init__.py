"""Studies: what is played is chosen from rows, and rows end in a conclusion: plans, suites, reports, the standing."""

from adv_wrappers.evaluation.cost import Cost, Costs
from adv_wrappers.evaluation.rows.store import Store
from adv_wrappers.studies.plan import Grid, Plan
from adv_wrappers.studies.plan_cells import expand
from adv_wrappers.studies.run_time import suite_cost
from adv_wrappers.studies.runner import RunSummary, run
from adv_wrappers.studies.study import Study, play_study
from adv_wrappers.studies.suite.attack_lists import SUITES, entries_that_apply
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.studies.suite.report import SuiteReport
from adv_wrappers.studies.suite.runner import run_suite

__all__ = [
    "SUITES", "AttackSetting", "Cost", "Costs", "Entry", "Grid", "MadeAttack", "Plan", "RunSummary", "Store", "Study",
    "SuiteReport", "entries_that_apply", "expand", "play_study", "run", "run_suite", "suite_cost",
]  # fmt: skip
