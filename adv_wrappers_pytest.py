"""pytest's option --adv-budget: the seconds of every ``adv_wrappers.studies.gate.assert_robust`` that names none.

It is a module beside the package and imports nothing of it: pytest loads plugins in every project, and the package
imports Gymnasium.
"""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("adv_wrappers")
    group.addoption("--adv-budget", type=float, metavar="SECONDS", help="of every assert_robust that names no budget_s")


def pytest_configure(config: pytest.Config) -> None:
    """Tell ``assert_robust``, also that of pytest-xdist's processes, by their environment."""
    seconds = config.getoption("--adv-budget")
    if seconds is not None:
        os.environ["ADV_WRAPPERS_BUDGET"] = str(seconds)
