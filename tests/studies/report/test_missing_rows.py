"""Two reports of other attacks are compared after those of the first were played on the second: same episodes, eps."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

import adv_wrappers as adv
from adv_wrappers.cli.main import main
from adv_wrappers.evaluation.searches.beam import beam_search
from adv_wrappers.studies.report.missing_rows import play_missing_rows
from adv_wrappers.studies.report.sections import read_reports

FIRST, SECOND = "zoo:cartpole-dqn", "zoo:cartpole-radial-dqn"
SHORT = {"max_episode_steps": 15}


def played(folder: Path, victim: str, threats: Sequence[str], episodes: int = 2) -> Path:
    adv.evaluate(victim, "CartPole-v1", list(threats), episodes=episodes, out=folder, env_kwargs=SHORT)
    return folder


def completed(a: Path, b: Path, out: Path, minutes: float = 1000.0) -> tuple[list[str], tuple[str, ...]]:
    """What is said of the second after it was played under what the first was, and its attacks."""
    (first,), (second,) = read_reports(a).agents, read_reports(b).agents
    agent, notes = play_missing_rows(first, second, minutes, out)
    return notes, tuple(sorted(row.name for row in agent.attacked))


@pytest.mark.slow
def test_the_second_is_played_under_what_the_first_was(tmp_path: Path) -> None:
    flipped, stack = "action-flip:when=every(8)", "noise:eps=0.1 + action-flip:when=every(8)"
    single, scaled = "max-diff:eps=0.2,scale=1;0;0;0", "noise:eps=0.1,scale=1;2;0.5;0"
    a = played(tmp_path / "a", FIRST, ["fgsm:eps=0.1", "pgd:eps=0.1,when=window(0,9)", single, scaled, flipped, stack])
    b = played(tmp_path / "b", SECOND, ["fgsm:eps=0.1", "noise:eps=0.3"])
    (one,), (other,) = read_reports(a).agents, read_reports(b).agents
    agent, notes = play_missing_rows(one, other, 1000.0, tmp_path / "rows")
    names = [row.name for row in agent.attacked]
    assert {*names} == {*(row.name for row in one.attacked), "noise:eps=0.3"} and len(names) == 7
    assert notes == ["Played on the second agent too, with eps in the units of the first: 5 rows."]
    own = adv.evaluate(SECOND, "CartPole-v1", names, episodes=2, env_kwargs=SHORT)
    assert {row.name: row.row["returns"] for row in agent.attacked} == {
        row["threat"]: row["returns"] for row in own.threats[1:]
    }


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of two agents, not to be written to; the second lacks a row of the first."""
    folder = tmp_path_factory.mktemp("pair")
    first = played(folder / "a", FIRST, ["fgsm:eps=0.1", "pgd:eps=0.1,steps=2"])
    return first, played(folder / "b", SECOND, ["fgsm:eps=0.1"])


def test_a_single_row_is_one_row(pair: tuple[Path, Path], tmp_path: Path) -> None:
    late = completed(*pair, tmp_path / "rows", minutes=1e-9)[0]
    assert late[0].startswith("Left out for lack of time: 1 row, ")
    found, second = completed(*pair, tmp_path / "rows")
    assert found == ["Played on the second agent too, with eps in the units of the first: 1 row."]
    assert second == ("fgsm:eps=0.1", "pgd:eps=0.1,steps=2"), "called as the first one's is"


def changed(folder: Path, to: Path, **report: object) -> Path:
    shutil.copytree(folder, to)
    import sqlite3

    with sqlite3.connect(to / "rows.db") as connection:
        for name, value in report.items():
            path = "$." + name.replace("_", ".")
            connection.execute("UPDATE runs SET about = json_set(about, ?, ?)", (path, value))
    connection.close()
    return to


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"victim_ref": None}, "has no reference to load it by"),
        ({"victim_ref": "card:nowhere"}, "nowhere"),
        ({"victim_fingerprint": "0"}, "holds other weights than those"),
        ({"env_make": "lambda"}, "the environment CartPole-v1 is made by lambda: give that as --make"),
        ({"env_id": "os:CartPole-v1"}, "names an environment of a module"),
    ],
)
def test_what_cannot_be_played_again_is_said(
    about: dict[str, object], why: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = pair
    a, b = (
        changed(a, tmp_path / "x", **{k: v for k, v in about.items() if "env" in k}),
        changed(b, tmp_path / "y", **about),
    )
    notes, second = completed(a, b, tmp_path / "rows")
    assert why in notes[0] and second == ("fgsm:eps=0.1",)


def test_what_is_of_one_agent_alone_is_said(tmp_path: Path) -> None:
    beam = beam_search(FIRST, "CartPole-v1", 0.1, 2, 0, 4, env_kwargs={"max_episode_steps": 20})
    assert beam.threat.how.name == "recorded"
    threats = [beam.threat, f"pgd:eps=0.1,victim={SECOND}", "fgsm:eps=0.1"]
    adv.evaluate(FIRST, "CartPole-v1", threats, episodes=2, out=tmp_path / "a", env_kwargs=SHORT)
    b = played(tmp_path / "b", SECOND, ["fgsm:eps=0.1"])
    notes, second = completed(tmp_path / "a", b, tmp_path / "rows")
    assert re.search(r"episode search.*, pgd.*: it was made for its own agent, or aimed at another", notes[0])
    assert second == ("fgsm:eps=0.1",)


def test_the_function_that_makes_the_environment_is_given_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make = ["--make", "gymnasium:make", "--env-kwargs", "max_episode_steps=15"]
    for name, victim, attack in (("a", FIRST, "fgsm:eps=0.1"), ("b", SECOND, "noise:eps=0.1")):
        words = ["evaluate", "CartPole-v1", "--victim", victim, "--threat", attack, "--episodes", "2", "--out", name]
        done = CliRunner().invoke(main, [*words, *make])
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["report", "a", "b", *make[:2], "--minutes", "1000"])
    assert done.exit_code == 0, done.output
    assert "<dt>Attacks of both</dt><dd>1, of 1 and 2</dd>" in (tmp_path / "comparison.html").read_text(
        encoding="utf-8"
    )
