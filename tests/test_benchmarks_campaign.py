"""The script of campaigns: its plan, its comparison of rows, and its page, from a small run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from adv_wrappers.studies import Store, expand, run

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "campaign.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("campaign")


def test_the_plan_has_about_so_many_cells(script):
    cells = expand(script.plan_of(500)).cells
    assert abs(len(cells) - 500) < 25 and {cell.episodes.seed for cell in cells} == {0, 1, 2}
    assert {cell.environment.name for cell in cells} == {"CartPole-v1", "Hopper-v5"}


def test_rows_are_compared_without_their_times(script):
    plan = script.plan_of(30, episodes=1)
    cells = [cell for cell in expand(plan).cells if cell.environment.name == "CartPole-v1"][:3]
    found = []
    for _ in range(2):
        with Store(":memory:") as store:
            run(script.Expansion(tuple(cells)), store)
            found.append(script.rows_of(store))
    assert found[0] == found[1] and {*found[0]} == {cell.key for cell in cells}
