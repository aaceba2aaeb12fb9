"""Pages in Chromium: no error, nothing too wide, it sorts, filters, prints, and an audit of accessibility passes.

CONTRIBUTING.md says how to install the browser and axe-core; what is missing is skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from adv_wrappers.studies.report.comparison_page import compare_pages
from adv_wrappers.studies.report.page import write_page
from adv_wrappers.studies.standing.page import standing_page
from tests.studies.standing.test_entry import ENTRY, FIGURES

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = [
    Path(path)
    for path in (os.environ.get("AXE_CORE", ""), "node_modules/axe-core/axe.min.js")
    if path and Path(path).is_file()
]
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright: pip install playwright"),
]
WINDOWS = [(width, scheme) for width in (1440, 390) for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


def mean_of(mean):
    """Figures of a run without an interval of 95%."""
    return replace(FIGURES, mean=mean, low=mean - 1, high=mean + 1, caveat="few")


@pytest.fixture(scope="module")
def pages(played, tmp_path_factory):
    """A report with everything on it, a comparison, and a standing, as addresses."""
    folder = shutil.copytree(played, tmp_path_factory.mktemp("browser") / "cartpole")
    names = ("position", "speed", "angle", "turn")
    choices = {
        "features": [{"name": name, "low": -0.1, "high": 0.1, "std": 0.05} for name in names],
        "reasons": ["A reason for these budgets."],
        "training": {"by": "radial"},
        "certificates": [{"eps": eps, "lower": lower, "episodes": 3} for eps, lower in ((0, 500), (0.01, 460))],
        "untried": [{"threat": "pa-ad", "why": "needs training", "seconds": 720}],
        "more": "adv-wrappers report",
    }
    (folder / "choices.json").write_text(json.dumps(choices))
    for part in ("evaluation", "fresh"):
        shutil.copytree(played, folder / "suite" / part)
    agents = [
        replace(ENTRY, name=name, environment={"id": env}, claim=f"{name} claim", clean=mean_of(mean))
        for name, env, mean in (("first", "E-v1", 30.0), ("second", "E-v1", 4.0), ("third", "F-v1", 200.0))
    ]
    standing = folder / "standing.html"
    standing.write_bytes(standing_page(agents, {"first": "report.html"}))
    return {
        "standing": standing.as_uri(),
        "report": write_page(folder, folder / "report.html").as_uri(),
        "comparison": compare_pages(folder, played, folder / "both.html").page.as_uri(),
        "several": write_page(folder / "suite", folder / "several.html").as_uri(),
    }


@pytest.fixture
def opened(browser, pages):
    """Opens a page in a window, and fails where anything was said on the console or asked of a network."""
    said, contexts = [], []

    def open_page(name="report", width=1440, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else said.append(asked.url))
        page.goto(pages[name])
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


@pytest.mark.parametrize("name", ["report", "comparison"])
@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_a_page_fits_its_window(opened, name, width, scheme):
    page = opened(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".plot svg:visible").count() == page.locator("figure.chart").count() >= 1
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.plot')].map((s) => s.clientWidth))") <= width - 40
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(251, 250, 248)") == (scheme == "light")


def names(page):
    return page.locator("table.sortable tbody tr:visible th").all_text_contents()


def test_the_table_sorts_by_click_and_by_keyboard(opened):
    page = opened()
    page.locator("form.filter select").select_option("")
    page.get_by_role("button", name="Show all").click()
    head = page.get_by_role("columnheader", name="worst episode")
    numbers = "[...document.querySelectorAll('table.sortable tbody tr')].map((r) => Number(r.cells[4].dataset.v))"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.evaluate(numbers) == sorted(page.evaluate(numbers))
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert page.evaluate(numbers) == sorted(page.evaluate(numbers), reverse=True)
    assert page.locator("th[aria-sort]:not([aria-sort='none'])").count() == 1


def test_the_table_is_short_until_it_is_asked_for_more_or_filtered(opened):
    page = opened()
    assert page.locator("form.filter output").text_content() == "7 of 17 runs"
    assert sum("eps=0.2" in name for name in names(page)) == 5  # of the radius of the verdict, beside the clean run
    page.locator("form.filter select").select_option("")
    assert len(names(page)) == 12 and page.locator("form.filter output").text_content() == "12 of 17 runs"
    page.get_by_label("Find").fill("NOISE 0.4")
    assert [name.split()[0] for name in names(page)] == ["noise:eps=0.4"]
    page.get_by_label("Find").fill("few steps")
    assert len(names(page)) == 2
    page.get_by_label("Find").fill("")
    page.get_by_role("button", name="Show all 17 runs").click()
    assert len(names(page)) == 17


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_a_standing_fits_its_window(opened, width, scheme):
    page = opened("standing", width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    table = page.evaluate(
        "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('.scroll'))"
    )
    assert table[0] <= table[1] <= width
    assert page.locator("tbody tr").first.locator("th").inner_text().startswith("first")


def test_one_of_several_reports_is_shown(opened):
    page = opened("several")
    shown = page.locator("article.agent:visible")
    assert shown.count() == 1 and shown.get_attribute("id") == "a0"
    page.locator("#chooser").select_option("a1")
    assert shown.count() == 1 and shown.get_attribute("id") == "a1"
    page.locator(".overview a").first.click()
    assert shown.get_attribute("id") == "a0" and page.locator("#chooser").input_value() == "a0"
    page.locator("#chooser").select_option("")
    assert shown.count() == 2


def test_a_command_is_copied(opened):
    page = opened()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("button.copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("adv-wrappers train-agent")


def test_the_page_prints_with_all_of_its_numbers(opened):
    page = opened(scheme="dark")
    assert page.pdf(format="A4", print_background=True).startswith(b"%PDF")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0 and len(names(page)) == 17
    assert not page.locator("form.filter").is_visible() and not page.locator("nav.contents").is_visible()


@pytest.mark.skipif(not AXE, reason="no axe-core: npm install axe-core, or AXE_CORE=/path/to/axe.min.js")
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("report", 1440, "light"),
        ("report", 390, "dark"),
        ("comparison", 1440, "dark"),
        ("several", 1440, "light"),
        ("standing", 1440, "light"),
        ("standing", 390, "dark"),
    ],
)
def test_an_audit_of_accessibility_finds_nothing(opened, name, width, scheme):
    page = opened(name, width, scheme)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate(AXE[0].read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found] == []
