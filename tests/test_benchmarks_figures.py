"""Figures and tables of the pages of results."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def figures():
    with result_script("figures") as module:
        yield module


def test_a_span_is_a_mean_and_a_range_of_what_is_known(figures):
    assert figures.span([1.0, None, 2.0]) == "2 (1 to 2)" and figures.span([0.25, 0.5], 2) == "0.38 (0.25 to 0.50)"
    assert figures.span([499.6, 500.4]) == "500" and figures.span([None]) == figures.span([]) == ""


def test_a_table_fills_its_cells_and_leaves_out_columns_that_say_nothing(figures):
    assert figures.table(["a", "b"], [["", 0], [None, "x"]]).splitlines()[2:] == ["| - | 0 |", "| None | x |"]
    assert figures.filled(["a", "b", "c"], [["", 1, "-"], ["-", 2, 3]]).splitlines() == [
        "| b | c |",
        "|---|---|",
        "| 1 | - |",
        "| 2 | 3 |",
    ]
