"""The pages of results: what scripts write from what was measured, without a cell that says nothing."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.every_case import every_case
from tests.result_scripts import result_script

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
ROWS = sorted(path.stem for path in RESULTS.glob("*.json"))
LONG = {  # whose scripts take longest; others draw plots and tables as they do
    "learned_timing", "model_based_ablations", "pa_ad_small", "pa_ad_sweeps", "rarl", "resilience", "smoothing",
    "standing",
}  # fmt: skip
SCRIPTS = {"daylight_bankheist": "daylight"}  # a script has the name of its rows, but for one that has two


def content(page: Path) -> str:
    """What a page of HTML shows."""
    return page.read_text(encoding="utf-8").partition("<main")[2].partition("</main>")[0]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in ROWS])
def test_a_section_is_what_its_script_makes_of_its_rows(name, tmp_path):
    pytest.importorskip("stable_baselines3")
    shutil.copy(RESULTS / f"{name}.json", tmp_path)
    with result_script(SCRIPTS.get(name, name)) as script:
        pages = [page for page in getattr(script, "PAGES", {"": getattr(script, "PAGE", None)}).values()]
        for page in (page for page in pages if page.name == name):
            text = (RESULTS / f"{page.page}.md").read_text(encoding="utf-8")
            before, begin, rest = text.partition(f"<!-- {name}: begin -->")
            section, end, after = rest.partition(f"<!-- {name}: end -->")
            made = tmp_path / f"{page.page}.md"
            made.write_text(before + begin + end + after, encoding="utf-8")
            page.write(tmp_path)
            assert made.read_text(encoding="utf-8") == text and section
            pictures = {path.name for path in tmp_path.glob("*.png")}
            assert pictures == {*re.findall(r"\]\(([a-z0-9_]+\.png)\)", section)} and pictures <= {*os.listdir(RESULTS)}
    for path in tmp_path.glob("*.html"):  # whose style is that of reports, and may be older
        assert content(path) == content(RESULTS / path.name)


def test_every_section_is_of_a_script():
    found = [name for page in RESULTS.glob("*.md") for name in re.findall("<!-- ([a-z_]+): begin", page.read_text())]
    assert sorted({*found}) == ROWS


@every_case("page", sorted(path.name for path in RESULTS.glob("*.md")))
def test_no_cell_of_a_table_is_empty(page):
    lines = (RESULTS / page).read_text(encoding="utf-8").splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("|---")]
    rows = [line for i, line in enumerate(lines) if line.startswith("|") and i + 1 not in heads]
    assert [row for row in rows if any(not cell.strip() for cell in row[1:-1].split("|"))] == []
