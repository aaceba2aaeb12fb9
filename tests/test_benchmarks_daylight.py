"""The page of the daylight transforms' speed: rows that are measured again, and rows that stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import python

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "daylight_speed.py"
GIVEN = ("--rounds", "1", "--least", "0", "--only")


@pytest.mark.slow
def test_a_run_of_one_transform_leaves_the_rows_of_the_others(tmp_path):
    file = tmp_path / "daylight_speed.json"
    done = python(SCRIPT, *GIVEN, "shift", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    first = json.loads(file.read_text())
    assert [(row["transform"], row["batch"]) for row in first["rows"]] == [("shift", b) for b in (1, 64, 256)] * 3
    assert list(first["steps"]) == ["shift"] and not any("first" in row for row in first["rows"])

    first["rows"][1]["ratio"]["adv_wrappers"] = 1e6  # of a batch of 64
    file.write_text(json.dumps(first))
    done = python(SCRIPT, *GIVEN, "brightness", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    both = json.loads(file.read_text())
    assert both["rows"][9:] == first["rows"] and list(both["steps"]) == ["brightness", "shift"]
    assert both["command"] == "python benchmarks/daylight_speed.py"

    for _ in range(2):
        done = python(SCRIPT, *GIVEN, "shift", "--out", str(tmp_path))
        assert done.returncode == 0, done.stderr
        again = json.loads(file.read_text())["rows"][10]
        assert again["first"] == 1e6 and again["ratio"]["adv_wrappers"] < 1e6
    page = (tmp_path / "daylight_speed.md").read_text()
    assert "| shift, 84x84x4, 64: at least 0.95 of the ratio that was recorded first, 1000000.00 |" in page
    assert "| shift, 84x84x4, 1: within 15 microseconds of OpenCV's call |" in page
    assert "## One observation, microseconds beyond OpenCV's call\n\n| transform | 84x84x4 |" in page
