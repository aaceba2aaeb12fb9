"""``plot``: the points as a table or as JSON, the figure, and errors before anything is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import adv_wrappers as adv
from adv_wrappers.cli import main


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["plot", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep")
    short = adv.Environment("CartPole-v1", {"max_episode_steps": 30})
    adv.evaluate("zoo:cartpole-dqn", short, ["pgd:eps=0.1", "pgd:eps=0.3", "action-flip"], 2, out=path)
    return path


def test_points_are_printed_and_drawn(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "curves.svg"
    done = call(folder, "--out", out)
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if line.strip().startswith("pgd")]
    assert [row[1] for row in rows] == ["0", "0.1", "0.3"] and rows[0][2] == "30"
    assert "1 of 3 attacked rows have no eps and are left out" in done.output.splitlines()
    assert out.read_bytes().startswith(b"<?xml") and done.output.endswith(f"the figure is in {out}\n")


def test_json_is_all_that_is_printed(folder: Path, tmp_path: Path) -> None:
    done = call(folder / "rows.db", "--y", "regret", "--json", "--out", tmp_path / "p.png")
    points = json.loads(done.stdout)
    assert [(point["threat"], point["eps"]) for point in points] == [("pgd", 0.0), ("pgd", 0.1), ("pgd", 0.3)]
    assert points[0]["mean"] == 0.0 and points[0]["of"] == "episodes" and (tmp_path / "p.png").exists()
    assert done.stderr.endswith(f"the figure is in {tmp_path / 'p.png'}\n") and "have no eps" in done.stderr


def test_errors_are_one_sentence_and_nothing_is_drawn(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no store, but long enough to look at")
    for words, message in (
        ([tmp_path / "no.db"], "there is no file"),
        ([tmp_path], "there is no file"),
        ([tmp_path / "text.db"], "is damaged, or no store"),
        ([folder, "--y", "score", "--out", tmp_path / "a.png"], "no row has 'score' for --y"),
        ([folder, "--x", "size", "--out", tmp_path / "a.png"], "no row has 'size' for --x"),
        ([folder, "--out", tmp_path / "a.gif"], "a picture is written as .png, .svg or .pdf"),
        ([folder, "--out", tmp_path / "text.db" / "a.png"], "cannot write to the folder"),
        ([folder, "--hue", "agent"], "Invalid value for '--hue'"),
    ):
        done = call(*words)
        assert done.exit_code == 2 and "Traceback" not in done.output, done.output
        assert [message in line for line in done.output.splitlines() if line.startswith("Error: ")] == [True], (
            done.output
        )
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]
