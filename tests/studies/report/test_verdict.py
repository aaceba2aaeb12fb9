"""The verdict says in words what the rows hold."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.studies.report.sections import read_reports, sorted_report
from adv_wrappers.studies.report.verdict import Verdict, verdict
from tests.episodes import short_episodes_of
from tests.studies.report.planted import GUESSES, agent_for, showing

NAMES = ("cart position", "cart velocity", "pole angle", "pole angular velocity")


def said(folder: Path, **choices: Any) -> Verdict:
    if choices:
        (folder / "choices.json").write_text(json.dumps(choices))
    (agent,) = read_reports(folder).agents
    return verdict(agent)


def test_rows_alone_have_a_verdict(folder: Path) -> None:
    found = said(folder)
    assert found.sentence.startswith("An error of eps 0.2 lowers the mean return from 120.0 to ")
    assert found.figure is not None and found.figure.eps == 0.2 and found.figure.of == 120
    assert found.figure.low <= found.figure.mean <= found.figure.high
    assert "Nothing is certified" in found.cannot_tell[0]
    assert [step.command.split()[:2] for step in found.next] == [["adv-wrappers", "report"]]


def test_the_headline_of_rows_at_hand_hides_nothing(tmp_path: Path) -> None:
    """A sweep that takes next to nothing is no headline where a stuck sensor takes all."""
    threats = ["noise:eps=0.01", "noise:eps=0.02", "stuck-sensor:features=2", "action-flip:when=every(50)"]
    adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", threats, episodes=1, out=tmp_path)
    found = said(tmp_path)
    assert found.figure is not None and found.figure.attack == "stuck-sensor" and found.figure.mean < 60
    assert found.sentence.startswith("stuck-sensor on feature 2 lowers the mean return from 120.0 to ")
    # a report's own verdict is of its eps, and names the rest
    found = said(tmp_path, unit="of the range of each feature", identity=None)
    assert found.figure is not None and found.figure.eps == 0.02
    assert "Less is left by stuck-sensor on feature 2" in found.sentence


def test_a_report_counts_in_the_ranges_that_the_agent_meets(folder: Path) -> None:
    ranges = [{"name": name, "low": -0.1, "high": 0.1, "std": 0.05} for name in NAMES]
    certificates = [{"eps": 0.01, "lower": 500, "clean": 500}, {"eps": 0.02, "lower": 460, "clean": 500}]
    choices = {"features": ranges, "certificates": certificates, "not_tried": ["apgd does not apply"]}
    found = said(folder, **choices, training={"by": "radial"})
    assert "of each feature's range" in found.sentence and "proved that nothing up to 1%" in found.sentence
    assert found.figure is not None and found.figure.certified_eps == 0.01
    [weakest] = [name for name in NAMES if f" on {name} leaves " in found.hurts["Weakest feature"]]
    assert found.cannot_tell[-1] == "apgd does not apply"
    assert any(step.command.startswith("adv-wrappers train-agent CartPole-v1") for step in found.next)
    assert any(f"sensor of {weakest}" in step.what for step in found.next)


@pytest.mark.parametrize(
    ("by", "words"), [("radial", "--robust radial"), ("wocar", "--robust wocar"), ("max-diff", "--adversary max-diff")]
)
def test_the_next_step_is_a_training_that_can_begin_with_the_agent(folder: Path, by: str, words: str) -> None:
    first = said(folder, training={"by": by}).next[0]
    assert words in first.command and first.command.endswith("--out hardened") and by in first.what
    assert not any("train-agent" in step.command for step in said(folder, training={}).next)


def test_what_one_feature_takes_of_a_negative_return(folder: Path) -> None:
    (agent,) = read_reports(folder).agents
    clean, *others = (replace(row.row, mean_return=row.row.mean_return - 200) for row in agent.rows)
    rows = tuple(replace(row, row=made, clean=clean) for row, made in zip(agent.rows, (clean, *others), strict=True))
    report = replace(agent.report, minimum={"kind": "unknown", "value": None})
    sentence = verdict(replace(agent, report=report, rows=rows)).sentence
    assert sentence.startswith("An error of eps 0.2 lowers the mean return from -80 to ")
    assert " in feature 2 alone lowers it to -" in sentence


def test_a_verdict_on_noise_alone_says_so(folder: Path) -> None:
    """An agent withstands far more noise than errors that are aimed at it."""
    for alone in (False, True):
        for attack in ("max-diff", "noise"):
            untried = [{"threat": attack, "why": "the sweep of eps", "seconds": 9.0}]
            assert ("There was time for noise alone" in said(folder, untried=untried).sentence) == alone
        assert "noise alone" not in said(folder, untried=[]).sentence, "no other attack fits the agent"
        with contextlib.closing(sqlite3.connect(folder / "rows.db")) as connection, connection:
            connection.execute("DELETE FROM cells WHERE name NOT IN ('none', 'noise:eps=0.2', 'noise:eps=0.4')")


def test_a_worse_agent_that_loses_nothing_is_left_all_the_same(folder: Path) -> None:
    """One that earns next to nothing whatever it is shown is no success."""
    begins = {"by": "sa", "most": 0.05, "begins_with": "zoo:cartpole-a2c"}
    said(folder, training=begins)
    (agent,) = read_reports(folder).agents
    kept = {name: agent.report.threats[0][name] for name in ("returns", "mean_return")}
    rows = tuple(replace(row, **kept) for row in agent.report.threats)
    first, *others = verdict(sorted_report(replace(agent.report, threats=rows), agent.choices)).next
    assert "--victim zoo:cartpole-a2c" in first.command and len(others) == 1


def test_what_may_be_chance_is_not_said_to_hurt(folder: Path) -> None:
    """An interval of what is taken that holds zero says nothing of other episodes; of too few there is none."""
    (agent,) = read_reports(folder).agents
    for high, caveat, is_named in ((-1.0, None, True), (1.0, None, False), (1.0, "few", True)):
        rows = tuple(
            replace(row, change=replace(row.change, high=high, caveat=caveat)) if row.kind == "feature" else row
            for row in agent.rows
        )
        assert ("Weakest feature" in verdict(replace(agent, rows=rows)).hurts) == is_named


def test_the_sentence_says_how_few_episodes_it_rests_on_and_what_was_played(folder: Path) -> None:
    assert said(folder).sentence.endswith(" All of this rests on 3 episodes alone.")
    with sqlite3.connect(folder / "rows.db") as connection:
        connection.execute("DELETE FROM cells WHERE name NOT IN ('none', 'fgsm:eps=0.05', 'noise:eps=0.2')")
    connection.close()
    assert "(fgsm)" in said(folder).sentence or "(noise)" in said(folder).sentence


def test_only_what_was_played_at_an_eps_is_said_to_take_nothing_there(tmp_path: Path) -> None:
    """An attack of a tenth of the size says nothing of the size that the sentence names."""
    threats = ["noise:eps=0.01", "fgsm:eps=0.001"]
    with short_episodes_of(9, "CartPole-v1"):
        adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", threats, episodes=1, out=tmp_path)
    assert "No error up to eps 0.01 takes anything from 9 (noise)." in said(tmp_path).sentence


def test_without_an_attack_there_is_little_to_say(folder: Path) -> None:
    with sqlite3.connect(folder / "rows.db") as connection:
        connection.execute("DELETE FROM cells WHERE name != 'none'")
    connection.close()
    found = said(folder)
    assert found.figure is None and found.sentence.endswith("No attack was played.")


ROOM = spaces.Discrete(3)


def test_an_agent_that_earns_the_least_there_is_says_so() -> None:
    """Nothing can be taken from it, which is no sign of robustness."""
    idle = adv.from_module(lambda obs: torch.eye(2)[0].expand(len(obs), 2), ROOM, GUESSES, "logits")
    for agent, least in ((idle, True), (agent_for(ROOM), False)):
        made = adv.evaluate(agent, lambda: showing(ROOM), ["noise:norm=valid"], episodes=2, minimum=0)
        assert ("the least there is" in verdict(sorted_report(made)).sentence) == least


def test_few_steps_of_other_values_are_named_in_words(tmp_path: Path) -> None:
    threats = ["noise:norm=valid,when=atmost(2)", "noise:norm=valid,when=window(0,2)"]
    adv.evaluate(agent_for(ROOM), lambda: showing(ROOM), threats, episodes=1, out=tmp_path)
    (agent,) = read_reports(tmp_path).agents
    assert [row.label for row in agent.attacked] == [
        "noise, any value in at most 2 steps", "noise, any value in steps 0 to 1",
    ]  # fmt: skip


def test_an_agent_is_hardened_against_what_breaks_it(folder: Path) -> None:
    """Against the size of the verdict, though a search found it on two episodes: a larger one is out of reach."""
    said(folder, training={"by": "radial"})
    (agent,) = read_reports(folder).agents

    def changed(returns: dict[str, tuple[float, ...]]) -> Verdict:
        rows = [row for row in agent.report.threats if "0;0" not in row.threat]
        made = [
            replace(row, returns=found, mean_return=0.0, episodes=len(found))
            if (found := returns.get(row.threat)) is not None else row
            for row in rows
        ]  # fmt: skip
        return verdict(sorted_report(replace(agent.report, threats=tuple(made)), agent.choices))

    two = (0.0, 0.0)
    found = changed({"fgsm:eps=0.05": two})
    assert found.figure is not None and found.figure.eps == 0.05 and found.figure.episodes == 2
    train = found.next[0]
    assert "--eps 0.05 " in train.command and "errors of this size (as 2 episodes showed), by radial" in train.what
