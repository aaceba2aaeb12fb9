"""The index of reproductions: what it names exists, and it lists every entry of the bibliography."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.result_scripts import result_script

ROOT = Path(__file__).resolve().parents[1]
DATA = json.loads((ROOT / "docs/results/reproductions.json").read_text(encoding="utf-8"))
ITEMS = [item for paper in DATA["papers"] for item in paper["items"]]


@pytest.fixture(scope="module")
def script():
    with result_script("reproductions") as module:
        yield module


def test_every_entry_of_the_bibliography_appears_once(script):
    listed = Counter(one["key"] for part in ("papers", "others") for one in DATA[part])
    assert [*listed.elements()] == [*listed], "an entry stands twice"
    assert {*listed} == {*script.names()}, "docs/results/reproductions.json has another set of papers"


def test_every_page_file_and_command_exists(script):
    for one in [*ITEMS, *DATA["others"]]:
        for name in one.get("pages", ()):
            assert (ROOT / f"docs/results/{name}.md").is_file(), name
        for path in one.get("files", ()):
            assert (ROOT / path).exists(), path
    commands = [script.command(name) for paper in DATA["papers"] for name in paper["pages"]]
    assert all(commands), "a page without a command"
    scripts = re.findall(r"python (\S+\.py)", " ".join([*commands, *(item["ours"] for item in ITEMS)]))
    assert len(scripts) >= len(commands) and all((ROOT / path).is_file() for path in scripts)


def test_what_an_item_is_shown_on_is_among_the_pages_of_its_paper():
    for paper in DATA["papers"]:
        assert {name for item in paper["items"] for name in item.get("pages", ())} == {*paper["pages"]}


def test_what_is_said_of_an_item_is_whole(script):
    for item in ITEMS:
        assert item["status"] in script.STATUSES and item["theirs"] and item["title"], item
        assert item["why"] or item["status"] == "came out", f"{item['item']} does not say why"
        if item["status"] in ("came out", "in shape", "in part", "did not come out"):
            assert item["ours"] != "-" and (item.get("pages") or item.get("files")), item


@pytest.mark.parametrize("paper", DATA["papers"], ids=lambda paper: paper["key"])
def test_no_table_or_figure_of_a_paper_is_left_out(paper):
    last = {
        "sun2022": {"Table": 8, "Figure": 15}, "behzadan2019": {"Table": 6, "Figure": 12},
        "weng2020": {"Table": 5, "Figure": 3}, "oikarinen2020": {"Table": 1, "Figure": 3},
        "daylight-paper": {"Table": 21, "Figure": 3},
    }[paper["key"]]  # fmt: skip
    found = {re.sub(r"(?<=\d)(?:[a-d]|, .*)$", "", item["item"]) for item in paper["items"]}
    wanted = {f"{kind} {i}" for kind, count in last.items() for i in range(1, count + 1)}
    assert {one for one in found if not one.startswith("Appendix")} == wanted


def test_figures_are_read_by_their_paths(script, monkeypatch):
    rows = {"a": {"s0": {"rows": [{"threat": "x=1", "m": 2.0}, {"threat": "y", "m": [3, 5]}]}, "s1": {"rows": []}}}
    rows["b"] = {"record": [{"seconds": 5}, {"seconds": 3600}], "minutes": 60}
    monkeypatch.setattr(script, "rows_of", rows.get)
    assert script.filled_in("{a > s* > rows > threat=x=1 > m} and {a > s0 > rows > * > m | .2f}") == "2 and 3.33"
    assert script.figures("a > s0 > rows > 1 > m") == [3, 5]
    assert script.time_of("b", ["record > -1 > seconds", "minutes"]) == "2.0 hours"
    assert script.time_of("b", ["record > 0 > seconds"]) == "0 minutes" and script.time_of("b", []) == "none recorded"
    for path in ("a > s2 > rows", "a > s1 > rows", "a > s0 > rows > 0 > threat"):
        with pytest.raises(LookupError, match="expected figures under"):
            script.figures(path)
