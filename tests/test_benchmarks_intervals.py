"""The page of what intervals cover, made with few repetitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import python

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "intervals.py"


@pytest.mark.slow
def test_the_page_has_what_was_measured(tmp_path):
    done = python(SCRIPT, "--repetitions", "400", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    data, page = json.loads((tmp_path / "intervals.json").read_text()), (tmp_path / "intervals.md").read_text()
    by = {(row["returns"], row["n"]): row for row in data["rows"]}
    assert by["normal", 10]["ours"]["coverage"] >= 0.92 > by["normal", 10]["percentile"]["coverage"]
    assert by["falls, 1 in 20", 10]["ours"]["coverage"] < 0.5 and by["falls, 1 in 20", 10]["caveats"] > 0.98
    for row in data["suite"]:  # nine equal attacks: the lowest of their means is too low, fresh episodes are not
        assert row["before"]["bias"] < -40 < -15 < row["now"]["bias"] < 15 and row["now"]["coverage"] >= 0.92
    assert all(row["ours"]["coverage"] >= 0.92 > row["percentile"]["coverage"] for row in data["seeds"])
    assert "| normal | 10 |" in page and "## The worst case of a suite" in page
