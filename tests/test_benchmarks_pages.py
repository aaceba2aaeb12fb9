"""The pages of results: what their scripts write from what was measured, without a cell that says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.result_scripts import result_script

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
# by page, the script of ``benchmarks/reproduce`` that writes it from its JSON alone
SCRIPTS = {
    **{name: f"{name}_page" for name in ("atla", "model_based", "resilience")},
    **{
        name: name
        for name in (
            "certificates", "everything", "hardened", "imitation", "model_based_ablations", "model_based_steps",
            "pa_ad", "pa_ad_pong", "pa_ad_small", "pa_ad_sweeps", "pa_ad_time", "radial", "radial_dqn", "smoothing",
            "worst_case",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("page", SCRIPTS)
def test_a_page_is_what_its_script_writes_from_what_was_measured(page):
    pytest.importorskip("stable_baselines3")
    data = json.loads((RESULTS / f"{page}.json").read_text(encoding="utf-8"))
    with result_script(SCRIPTS[page]) as script:
        if page == "model_based":
            with result_script("model_based") as rows:
                text = script.markdown(data, rows.ROWS)
        else:
            text = script.markdown(data)
    assert text == (RESULTS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(path.name for path in RESULTS.glob("*.md")))
def test_no_cell_of_a_table_is_empty(page):
    lines = (RESULTS / page).read_text(encoding="utf-8").splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("|---")]
    rows = [line for i, line in enumerate(lines) if line.startswith("|") and i + 1 not in heads]
    assert [row for row in rows if any(not cell.strip() for cell in row[1:-1].split("|"))] == []


def test_a_table_fills_its_cells_and_leaves_out_columns_that_say_nothing():
    with result_script("figures") as figures:
        assert figures.table(["a", "b"], [["", 0], [None, "x"]]).splitlines()[2:] == ["| - | 0 |", "| None | x |"]
        assert figures.filled(["a", "b", "c"], [["", 1, "-"], ["-", 2, 3]]).splitlines() == [
            "| b | c |",
            "|---|---|",
            "| 1 | - |",
            "| 2 | 3 |",
        ]
