"""The page of attacks beside their floor: rows that are measured again, and rows that stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import python

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "attacks.py"


@pytest.mark.slow
def test_a_run_of_one_network_leaves_the_rows_of_the_others(tmp_path):
    pytest.importorskip("stable_baselines3")
    common = {"ratio": 0.25, "milliseconds": 1.0, "kernels": 3, "kernel_ratio": 1.0, "syncs": 0, "weight_gradients": 0}
    more = {"contestant": "adv_wrappers", "same_as_ours": 1.0, "machine": "another machine", **common}
    kept, replaced = ({"network": name, "batch": 1, **more} for name in ("elu", "sac-actor"))
    (tmp_path / "results").mkdir()
    gone = {"network": "a network of the past", "batch": 1, **more}
    (tmp_path / "results" / "attacks.json").write_text(json.dumps({"rows": [kept, replaced, gone]}))
    summary = tmp_path / "performance.md"
    summary.write_text("before\n<!-- attacks: begin -->\nold\n<!-- attacks: end -->\nafter\n")
    given = ("--only", "sac-actor", "--batches", "1", "--rounds", "1", "--least", "0")
    done = python(SCRIPT, *given, "--out", str(tmp_path / "results"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "results" / "attacks.json").read_text())["rows"]
    assert rows[0] == kept
    found = [(row["network"], row["contestant"]) for row in rows[1:]]
    assert found == [("sac-actor", "floor"), ("sac-actor", "adv_wrappers")]
    assert all(row["machine"] != "another machine" for row in rows[1:])
    page, text = (tmp_path / "results" / "attacks.md").read_text(), summary.read_text()
    assert "another machine (elu)" in page and "| elu, batch 1: at most 1.2 times the floor | 0.25 | yes |" in page
    assert text.startswith("before\n<!-- attacks: begin -->\n| victim |") and text.endswith("end -->\nafter\n")
    assert "| 17-64-64-6 with ELU | pgd | written out | 1 | 0.25 | - |" in text
