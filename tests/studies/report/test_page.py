"""One file of HTML, which needs no other, from any store; what is wrong is said before anything is overwritten."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

import adv_wrappers as adv
from adv_wrappers.errors import OutputError, ValueRangeError
from adv_wrappers.evaluation.statistics.confidence_intervals import MeanWithInterval
from adv_wrappers.studies.report import agent_article
from adv_wrappers.studies.report import page as page_module
from adv_wrappers.studies.report.agent_article import article_of, mean_limits
from adv_wrappers.studies.report.article import GENERATOR
from adv_wrappers.studies.report.charts import Line, LineChart, Point
from adv_wrappers.studies.report.page import LARGEST_PAGE, write_page
from adv_wrappers.studies.report.sections import read_reports, sorted_report
from adv_wrappers.utils.number_text import number_text
from tests.every_case import every_case

NASTY = """<script>alert("1")</script> '"&amp; ]]> $x$ --> </svg> id="x" font-family: y; 0.12345 #0a0a01"""


class Page(HTMLParser):
    """Elements, ids and links of a page; unclosed or crossed elements fail."""

    VOID = frozenset({"meta", "img", "input", "wbr", "br", "link"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.ids, self.links, self.open, self.text = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.elements.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self.links += [value for key, value in attrs if key in ("href", "src", "xlink:href", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


@pytest.fixture(scope="module")
def html(played, tmp_path_factory):
    path = write_page(played, tmp_path_factory.mktemp("page") / "report.html")
    return path.read_text(encoding="utf-8")


def test_the_page_is_one_whole_file(html):
    page = Page(html)
    assert len(html.encode()) < 500_000
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"""(?:src|href)=["']?(?:https?:|//)|@import|url\((?!#)""", html)
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert "default-src 'none'" in html


def test_every_chart_has_a_description_and_numbers(html):
    page = Page(html)
    charts = [found for _, found in page.elements if found.get("role") == "img"]
    assert len(charts) == html.count("Numbers of this chart") == sum(tag == "svg" for tag, _ in page.elements) > 0
    assert all("Mean return" in chart["aria-label"] for chart in charts)
    for word in ("nan", "inf"):
        assert not re.search(rf'(points|d|style)="[^"]*{word}', html)


def test_places_of_a_chart():
    """On a logarithmic axis with a place for 0, the ticks of which do not cover each other."""
    points = [Point(x, MeanWithInterval(10.0 - i, 9.0 - i, 11.0 - i, None), "fgsm")
              for i, x in enumerate((0.0, 0.001, 0.01, 0.0101, 0.1))]  # fmt: skip
    thick = Line("all", points, bold=True)
    chart = LineChart("eps", "return", [Line("fgsm", points[2:]), thick], (0.0, 12.0), ())
    assert [chart.x(x) for x in (0.0, 0.1)] == [0.0, 100.0]
    assert chart.x(0.01) == pytest.approx((chart.x(0.001) + 100) / 2)
    assert [chart.y(value) for value in (0.0, 12.0)] == [100.0, 0.0]
    assert [text for _, text, _ in chart.x_ticks] == ["0", "0.001", "0.01", "0.1"]
    assert replace(chart, mark=(0.0101, 7.0, "here")).x_ticks[2][1:] == ("0.0101", False)
    assert len(chart.y_ticks) == 5 and chart.names == [(chart.y(6.0), "fgsm")]
    low = replace(chart, lines=[Line(str(i), points) for i in range(3)], limits=(5.9, 12.0))
    heights = [height for height, _ in low.names]
    assert heights == sorted(heights) and max(heights) <= 100 and heights[1] - heights[0] >= 5
    assert len(chart.band(thick).split()) == 10
    assert (
        chart.description.startswith("Return over eps. all: 10 at 0, 9 at 0.001, ") and "fgsm" not in chart.description
    )
    proved = replace(chart, proved=[(0.01, 2.0)]).numbers
    assert [column.name for column in proved.columns] == ["all", "fgsm", "certified at least"]
    assert [len([cell for cell in line.cells if cell is not None]) for line in proved.lines] == [1, 1, 3, 2, 2]
    steps = replace(chart, proved=[(0.001, 3.0), (0.01, 2.0)]).steps.split()
    assert [float(step.partition(",")[2]) for step in steps] == [75.0, 75.0, 83.33, 83.33]


def test_a_mean_return_comes_with_its_interval(html, played):
    (agent,) = read_reports(played).agents
    text = " ".join("".join(Page(html).text).replace("\N{MINUS SIGN}", "-").split())
    row = next(row for row in agent.rows if row.name == "noise:eps=0.4")
    mean, low, high = (number_text(row.row[name]) for name in ("mean_return", "low", "high"))
    assert f"{mean} {low} to {high}" in text
    hint = f"{mean} ({low} to {high})"
    assert f"<title>noise:eps=0.4: {hint}</title>" in html  # where a pointer rests on its dot
    assert "too few or too alike for an interval" in text and "95% interval" not in text


def test_the_same_rows_give_the_same_page(played, html, tmp_path):
    assert write_page(played, tmp_path / "again.html").read_text(encoding="utf-8") == html


def test_names_of_strangers_are_text(folder, tmp_path):
    with sqlite3.connect(folder / "rows.db") as connection:
        row = "json_set(row, '$.threat', ? || json_extract(row, '$.threat'))"
        connection.execute(f"UPDATE cells SET row = {row} WHERE name != 'none'", (NASTY,))
        about = "json_set(about, '$.victim.ref', ?, '$.env.id', ?)"
        connection.execute(f"UPDATE runs SET about = {about}", (NASTY, NASTY))
    connection.close()
    chosen = {
        "features": [{"name": NASTY, "low": None, "high": None, "std": None}] * 4,
        "unit": NASTY,
        "reasons": [NASTY],
        "not_tried": [NASTY],
        "command": NASTY,
    }
    untried = [{"threat": NASTY, "why": NASTY, "seconds": 1.0}]
    (folder / "choices.json").write_text(json.dumps({**chosen, "untried": untried, "more": NASTY}))
    page = Page(write_page(folder, tmp_path / "report.html").read_text(encoding="utf-8"))
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert not any(key.startswith("on") for _, found in page.elements for key in found)
    assert "".join(page.text).count(NASTY) > 20


def test_words_of_commands_are_not_broken_at_their_hyphens(folder, tmp_path):
    """A line that ends after a hyphen shows --scale as two words."""
    untried, more = [{"threat": "apgd", "why": "time", "seconds": 1}], "adv-wrappers report --out 'my report'"
    (folder / "choices.json").write_text(json.dumps({"untried": untried, "more": more}))
    text = write_page(folder, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<code><span>adv-wrappers</span> <span>report</span> <span>--out</span> <span>&#39;my</span> <span>" in text
    assert ".command code span { display: inline-block; max-width: 100%; }" in text


def test_a_page_of_ours_is_replaced_and_nothing_else(played, tmp_path):
    out = tmp_path / "report.html"
    out.write_text("notes of somebody")
    with pytest.raises(OutputError, match="no page of adv_wrappers"):
        write_page(played, out)
    assert out.read_text() == "notes of somebody"
    out.write_text(f'<!doctype html><meta name="generator" content="{GENERATOR}">')
    assert write_page(played, out) == out and out.stat().st_size > 20_000
    with pytest.raises(OutputError, match="expected the name of a file"):
        write_page(played, tmp_path)


@every_case(
    ("choices", "expected"),
    [
        ("{", "cannot read"),
        ({"schema": 1}, "another release"),
        ({"scale": [], "reasons": "why"}, "reasons must be a list, each a text, got 'why'"),
        ({"scale": ["small"]}, "scale must be a finite number, got 'small'"),
        ({"film": "../../secret.gif"}, "film must be the name of a file in"),
        ({"certificates": [{"eps": 0.1}]}, "missing lower"),
    ],
)
def test_choices_of_another_form_are_an_error(folder, tmp_path, choices, expected):
    (folder / "choices.json").write_text(choices if isinstance(choices, str) else json.dumps(choices))
    with pytest.raises(ValueRangeError, match=expected):
        write_page(folder, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def noise(path, size):
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def test_pictures_are_left_out_of_a_page_that_would_be_too_large(folder, tmp_path, monkeypatch):
    out, small, large = tmp_path / "report.html", folder / "small.png", folder / "large.png"
    noise(small, 40)
    noise(large, 900)  # 2.4 MB
    frame = {"title": "fgsm, step 3", "true": "small.png", "shown": "small.png", "difference": "missing.png"}

    def written(**more):
        (folder / "choices.json").write_text(json.dumps({"frames": [frame], **more}))
        write_page(folder, out)
        assert out.stat().st_size < LARGEST_PAGE
        return out.read_text(encoding="utf-8")

    assert written(film="small.png").count("data:image/png") == 3
    without_film = written(film="large.png")
    assert without_film.count("data:image/png") == 2 and "The film is left out" in without_film
    bare = written(film="small.png", frames=[{**frame, "true": "large.png"}])
    assert bare.count("data:image/png") == 1 and "fgsm, step 3 is left out" in bare
    with small.open("ab") as file:
        file.truncate(LARGEST_PAGE + 1)  # more than a page by itself
    assert "The film is left out" in written(film="small.png", frames=[])


def test_a_table_that_is_too_long_has_the_lowest_returns(played, tmp_path, monkeypatch):
    monkeypatch.setattr(agent_article, "_MOST_ROWS", 4)
    text = write_page(played, tmp_path / "report.html").read_text(encoding="utf-8")
    table = text.split('<table class="sortable">')[1].split("</table>")[0]
    assert table.count("<tr") == 1 + 4 and "the 4 lowest returns alone" in text
    monkeypatch.setattr(page_module, "LARGEST_PAGE", 50_000)
    with pytest.raises(OutputError, match="too many rows for one page"):
        write_page(played, tmp_path / "report.html")


def test_what_was_measured_beside_the_return_is_a_table(tmp_path):
    """Metrics with their intervals, and distances; no such section without any."""
    found = adv.evaluate(
        "zoo:cartpole-dqn", "CartPole-v1", ["fgsm:eps=0.2"], episodes=3, metrics=["terminated"], seed=1
    )
    clean, attacked = found.threats
    found = replace(found, threats=(clean, replace(attacked, distances={"ssim": 0.8125, "psnr": None})))
    sections = {section.key: section for section in article_of(sorted_report(found), "a0", False).sections}
    _, table = sections["measures"].parts
    assert [column.name for column in table.columns] == ["mean return", "terminated", "ssim"]
    assert [line.cells[1:] for line in table.lines] == [
        [str(clean.metric("terminated")), None], [str(attacked.metric("terminated")), 0.8125],
    ]  # fmt: skip
    text = write_page(found, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Other measures" in text and str(attacked.metric("terminated")) in text
    assert "Other measures" not in write_page(
        replace(found, threats=(replace(clean, metrics={}),)), tmp_path / "report.html"
    ).read_text(encoding="utf-8")


def test_a_single_eps_is_no_line(tmp_path):
    """Of one eps there are attacks beside each other, and not a line from no attack to the strongest."""
    threats = ["noise:eps=0.2", "fgsm:eps=0.2", "fgsm:eps=0.3,norm=l2"]
    adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", threats, episodes=2, out=tmp_path)
    (agent,) = read_reports(tmp_path).agents
    _, *tables = next(one for one in article_of(agent, "a0", False).sections if one.key == "sweep").parts
    assert [table.title.partition(":")[0] for table in tables] == ["At eps 0.2", "At eps 0.3"]
    assert [[line.name for line in table.lines] for table in tables] == [
        ["fgsm:eps=0.2", "noise:eps=0.2"], ["fgsm:eps=0.3,norm=l2"],
    ]  # fmt: skip


def test_every_run_has_one_line_of_episodes(played):
    """An attack that takes nothing is no stronger than none, and the strongest of its eps is the run without one."""
    (agent,) = read_reports(played).agents
    assert agent.strongest[0.05] is agent.clean
    _, table = next(one for one in article_of(agent, "a0", False).sections if one.key == "episodes").parts
    names = [line.name for line in table.lines]
    assert len(names) == len({*names}) == 12 and names[0] == "no attack"


def test_one_bad_row_stretches_no_other_chart(played):
    (agent,) = read_reports(played).agents
    clean = replace(agent.clean, row=replace(agent.clean.row, mean_return=4.5, low=4.4, high=4.6, min=4, max=5))
    near = replace(clean, row=replace(clean.row, mean_return=4.3, low=4.2, high=4.4, min=-70.0))
    far = replace(clean, row=replace(clean.row, mean_return=-18.3, low=-40.0, high=1.0, min=-70.0))
    low, high = mean_limits([near], clean)
    assert 3 < low < 4.2 and 4.6 < high < 5
    low, high = mean_limits([far], clean)
    assert -45 < low < -40
