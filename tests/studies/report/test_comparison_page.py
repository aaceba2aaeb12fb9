"""Two reports are compared where that means something, by paired episodes; what cannot be compared is named."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.studies.report.charts import eps_text
from adv_wrappers.studies.report.comparison_page import _article, _pair, compare_pages
from adv_wrappers.studies.report.sections import read_reports, sorted_report
from adv_wrappers.studies.report.verdict import headline
from adv_wrappers.utils.number_text import number_text
from tests.episodes import short_episodes_of
from tests.studies.report.test_sections import layer, linf, made, row

SOME = ["noise:eps=0.2", "noise:eps=0.4", "pgd:eps=0.2"]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    adv.evaluate("zoo:cartpole-radial-dqn", "CartPole-v1", SOME, episodes=3, out=folder)
    return folder


def briefly_evaluated(victim, threat, folder, **given):
    with short_episodes_of(5, "CartPole-v1"):
        adv.evaluate(victim, "CartPole-v1", threat, episodes=3, out=folder, **given)


def test_two_agents_are_compared_under_the_attacks_of_both(played, other, tmp_path):
    text = compare_pages(played, other, tmp_path / "both.html").page.read_text(encoding="utf-8")
    assert "<title>zoo:cartpole-dqn and zoo:cartpole-radial-dqn in CartPole-v1" in text
    assert "where they differ most, the strongest attack leaves " in text
    assert "of zoo:cartpole-dqn, which these episodes do not tell apart." in text
    table = text.split('<table class="sortable">')[1].split("</table>")[0]
    assert table.count("<tr") == 1 + 3  # the head, no attack and two of noise
    assert "better, worse, not told apart</dt><dd>0, 0, 2</dd>" in text
    assert "<dt>Attacks of both</dt><dd>2, of 16 and 3</dd>" in text
    assert "https:" not in text and "{{" not in text


def test_the_sentence_is_about_the_largest_difference_that_is_told_apart(played, folder, tmp_path):
    with sqlite3.connect(folder / "rows.db") as connection:
        row = "json_set(row, '$.returns', json('[100, 101, 102]'), '$.mean_return', 101.0)"
        connection.execute(f"UPDATE cells SET row = {row} WHERE name = 'fgsm:eps=0.05'")
        connection.execute("UPDATE runs SET about = json_set(about, '$.victim.ref', 'zoo:weaker')")
    connection.close()
    sentence = compare_pages(played, folder, tmp_path / "both.html").sentence
    (agent,) = read_reports(played).agents
    left = number_text(agent.strongest[0.05].mean)
    told = f"At eps 0.05, where they differ most, the strongest attack leaves 101.0 of zoo:weaker and {left} of zoo:"
    assert sentence.startswith(told) and "a difference of -" in sentence


def test_the_comparison_says_what_became_of_the_verdict(played, tmp_path):
    """The advice was for the eps of the first report's verdict, and the clean return may be its price."""
    for name in ("before", "after"):
        shutil.copytree(played, tmp_path / name)
        (tmp_path / name / "choices.json").write_text(json.dumps({}))
    with contextlib.closing(sqlite3.connect(tmp_path / "after" / "rows.db")) as connection, connection:
        row = "json_set(row, '$.returns', json('[70, 71, 72]'), '$.mean_return', 71.0)"
        connection.execute(f"UPDATE cells SET row = {row} WHERE name = 'none'")
        connection.execute("UPDATE runs SET about = json_set(about, '$.victim.ref', 'zoo:other')")
    found = compare_pages(tmp_path / "before", tmp_path / "after", tmp_path / "both.html")
    (agent,) = read_reports(tmp_path / "before").agents
    eps, row = headline(agent)
    left = number_text(row.mean)
    assert found.sentence.startswith(
        f"At eps {eps_text(eps)}, that of the advice on zoo:cartpole-dqn, the strongest attack leaves "
    )
    kept = f"{left} of zoo:other and {left} of zoo:cartpole-dqn, which these episodes do not tell apart."
    assert kept in found.sentence
    clean = "71 of zoo:other and 120.0 of zoo:cartpole-dqn, a difference of -49 (too few or too alike for an interval)."
    assert found.sentence.endswith(f"Without an attack the means are {clean}")
    assert found.sentence.replace("'", "&#39;") in found.page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"env_kwargs": {"sutton_barto_reward": True}}, "sutton_barto_reward"),
        ({"seed": 1}, "different episodes, 3 episodes of seed 0 and 3 episodes of seed 1"),
    ],
)
def test_what_cannot_be_compared_is_named(played, tmp_path, options, expected):
    briefly_evaluated("zoo:cartpole-ppo", "noise:eps=0.2", tmp_path / "rows", **options)
    with pytest.raises(ValueRangeError, match=expected):
        compare_pages(played, tmp_path / "rows", tmp_path / "both.html")
    assert not (tmp_path / "both.html").exists()


def test_the_first_episodes_are_compared_where_one_report_has_more(played, tmp_path):
    adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", SOME, episodes=2, out=tmp_path)
    text = compare_pages(tmp_path, played, tmp_path / "both.html").page.read_text(encoding="utf-8")
    assert "the first 2 episodes" in text and "2 episodes miss an event" in text
    (two,), (three,) = read_reports(tmp_path).agents, read_reports(played).agents
    assert two.report.threats[1]["returns"] == three.report.threats[3]["returns"][:2]
    assert 'data-v="0.0"' in text.split('<table class="sortable">')[1]


@pytest.mark.slow
def test_where_a_search_found_the_size_the_nearest_of_both_is_compared(tmp_path):
    """What a search found is for its own agent; the advice is about its eps all the same."""
    for name, victim, threats in (
        ("a", "zoo:cartpole-dqn", ["noise:eps=0.2", "fgsm:eps=0.3"]), ("b", "zoo:cartpole-ppo", ["noise:eps=0.2"]),
    ):  # fmt: skip
        adv.evaluate(victim, "CartPole-v1", threats, episodes=2, out=tmp_path / name)
        (tmp_path / name / "choices.json").write_text("{}")
    found = compare_pages(tmp_path / "a", tmp_path / "b", tmp_path / "both.html")
    assert found.sentence.startswith("At eps 0.2, the nearest to 0.3, that of the advice on zoo:cartpole-dqn, the ")


def test_reports_without_a_common_attack_are_an_error(played, tmp_path):
    briefly_evaluated("zoo:cartpole-ppo", "pgd:eps=0.3", tmp_path / "rows")
    with pytest.raises(ValueRangeError, match="no attack in common"):
        compare_pages(played, tmp_path / "rows", tmp_path / "both.html")
    # and why what either lacks was not played
    from tests.studies.report.test_missing_rows import changed

    pages = [
        changed(path, tmp_path / name, env_id="os:CartPole-v1")
        for name, path in zip("ab", (played, tmp_path / "rows"), strict=True)
    ]
    with pytest.raises(ValueRangeError, match=r"no attack in common.* cannot be played on the second: .*trust=True$"):
        compare_pages(*pages, tmp_path / "both.html", 1.0)


def test_one_text_in_the_units_of_two_agents_is_not_one_attack():
    report, other = (
        sorted_report(made(row("flip + noise:eps=0.1,scale=victim", -6.0, [layer(), layer(within=linf(0.1, scale=s))])))
        for s in ([1, 2], [1, 3])
    )
    with pytest.raises(ValueRangeError, match="no attack in common"):
        _article((report, other), ("a", "b"), [])
    assert _article((report, report), ("a", "b"), []).facts["Attacks of both"] == "1, of 1 and 1"


def test_several_reports_that_could_be_compared_are_an_error(played, tmp_path):
    for victim in ("zoo:cartpole-ppo", "zoo:cartpole-a2c"):
        briefly_evaluated(victim, "noise:eps=0.2", tmp_path)
    with pytest.raises(ValueRangeError, match=r"several reports .*zoo:cartpole-ppo \(seed 0\), zoo:cartpole-a2c"):
        _pair(read_reports(played), read_reports(tmp_path))
