"""The page of a standing: all agents, what strangers wrote as text, and no file but this one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from adv_wrappers.studies.report.choices import CertifiedReturn
from adv_wrappers.studies.standing.entry import AttackedMean
from adv_wrappers.studies.standing.page import standing_page
from tests.studies.report.test_page import NASTY, Page
from tests.studies.standing.test_entry import ENTRY

DASH = "\N{EN DASH}"
FIGURES = AttackedMean(4.0, 3.0, 5.0, "all 10 returns are equal", "noise:eps=0.1", 2.0)


def cells(html):
    """The cells of every row of the table, as they are read."""
    body = html.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    texts = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in rows]
    return [[" ".join("".join(Page(cell).text).split()) for cell in row] for row in texts]


@pytest.fixture(scope="module")
def html():
    other = {"environment": {"id": "F-v1"}, "attacks": {"noise": FIGURES}, "left_out_seconds": {"pgd": 300.0}}
    entries = [
        replace(ENTRY, training_seconds=90.0, trained_with="ppo, sa", claim="5 under PGD"),
        replace(ENTRY, name="b", certificate=CertifiedReturn(2.0, "crown"), clean=FIGURES),
        replace(ENTRY, name="c", **other),
    ]
    return standing_page(entries, {"a": "agents/a.html"}, "../standing.html", ["A note."]).decode()


def test_every_agent_has_a_row_with_its_intervals(html):
    first, second, third = cells(html)
    assert first[0].startswith("a E-v1, pgd MIT, ffff") and first[1] == "E-v1 0.1 in raw units, 10 episodes"
    assert first[2:6] == ["10 9 to 11", "10 9 to 11", "4 3 to 5", "pgd"]
    assert first[6:] == ["2 of 10", DASH, "ppo, sa", "1.5", "2", "5 under PGD"]
    assert second[2] == "4 3 to 5†" and second[7] == "2"
    assert third[4:7] == ["not attacked yet", DASH, "1 of 10 5 min left out"]
    assert "† no interval of 95% (all returns are equal" in html and '<p class="note">A note.</p>' in html
    assert "<li>a, c: no bounds</li>" in html


def test_columns_sort_by_buttons_and_what_they_hold(html):
    page = Page(html)
    heads = [found for tag, found in page.elements if tag == "th" and found.get("scope") == "col"]
    assert len(heads) == 12 and sum(tag == "button" for tag, _ in page.elements) == 12
    assert [head["aria-sort"] for head in heads].count("ascending") == 1
    assert all("data-v" in found for tag, found in page.elements if tag == "td" or found.get("scope") == "row")
    assert [*re.findall(r"<option.*?>(.*?)</option>", html)] == ["all", "E-v1", "F-v1"]


def test_the_page_is_one_file_with_links_to_agents_and_rules(html):
    page = Page(html)
    assert page.links == ["#main", "#rules", "agents/a.html", "../standing.html"]
    assert "default-src 'none'" in html and sum(tag == "script" for tag, _ in page.elements) == 1
    assert not re.search(r"""(?:src|href)=["']?(?:https?:|//)|@import|url\((?!#)""", html)
    assert Page(standing_page([ENTRY]).decode()).links == ["#main", "#rules"]


def test_words_of_a_submission_are_text():
    words = {name: NASTY for name in ("name", "licence", "claim", "trained_with", "budget", "no_certificate")}
    attacks = {"noise": FIGURES, NASTY: replace(FIGURES, caveat=NASTY, threat=NASTY)}
    nasty = replace(ENTRY, **words, environment={"id": NASTY}, attacks=attacks, victim={"fingerprint": NASTY})
    page = Page(standing_page([nasty], {NASTY: f"agents/{NASTY}.html"}, NASTY, [NASTY]).decode())
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert not any(key.startswith("on") for _, found in page.elements for key in found)
    plain = Page(standing_page([ENTRY], {"a": "x"}, "y", ["z"]).decode())
    assert {tag for tag, _ in page.elements} - {tag for tag, _ in plain.elements} == {"abbr", "wbr"}
    assert "".join(page.text).count(NASTY) > 10 and f"agents/{NASTY}.html" in page.links
