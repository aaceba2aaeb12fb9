"""The papers' tables and figures beside ours: none is left out, and figures are read by their paths."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.every_case import every_case
from tests.result_scripts import result_script

ROOT = Path(__file__).resolve().parents[1]
PAPERS = json.loads((ROOT / "docs/results/reproductions.json").read_text(encoding="utf-8"))
LAST = {
    "pa_ad": {"Table": 8, "Figure": 15}, "resilience": {"Table": 6, "Figure": 12},
    "model_based": {"Table": 5, "Figure": 3}, "radial": {"Table": 1, "Figure": 3},
    "daylight": {"Table": 21, "Figure": 3},
}  # fmt: skip


@pytest.fixture(scope="module")
def script():
    with result_script("reproductions") as module:
        yield module


@pytest.mark.parametrize("paper", LAST)
def test_what_is_said_of_an_item_is_whole(script, paper):
    for item in PAPERS[paper]["items"]:
        assert item["status"] in script.STATUSES and item["theirs"] and item["title"], item
        assert item["why"] or item["status"] == "came out", f"{item['item']} does not say why"
        assert all((ROOT / path).exists() for path in item.get("files", ()))


@every_case("paper", LAST)
def test_no_table_or_figure_of_a_paper_is_left_out(paper):
    found = {kind: set() for kind in LAST[paper]}
    for label in (item["item"] for item in PAPERS[paper]["items"] if not item["item"].startswith("Appendix")):
        kind, numbers = re.match(r"(Table|Figure)s? ([^A-Z]*)", label).groups()
        for first, last in re.findall(r"(\d+)[a-d]?(?: to (\d+))?", numbers):
            found[kind] |= {*range(int(first), int(last or first) + 1)}
    assert found == {kind: {*range(1, last + 1)} for kind, last in LAST[paper].items()}


def test_figures_are_read_by_their_paths(script, monkeypatch):
    rows = {"a": {"s0": {"rows": [{"threat": "x=1", "m": 2.0}, {"threat": "y", "m": [3, 5]}]}, "s1": {"rows": []}}}
    monkeypatch.setattr(script, "rows_of", rows.get)
    assert script.filled_in("{a > s* > rows > threat=x=1 > m} and {a > s0 > rows > * > m | .2f}") == "2 and 3.33"
    assert script.figures("a > s0 > rows > 1 > m") == [3, 5]
    for path in ("a > s2 > rows", "a > s1 > rows", "a > s0 > rows > 0 > threat"):
        with pytest.raises(LookupError, match="expected figures under"):
            script.figures(path)
