"""The log of a training's episodes, and what is left of it after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

from adv_wrappers.errors import CardError, OutputError
from adv_wrappers.training.resilience.measurement import HEADER, EpisodeLog, TrainingEpisode
from tests.every_case import every_case

ROWS = [TrainingEpisode(32, 9.0, 4, 9), TrainingEpisode(64, 0.1 + 0.2, 5, 12), TrainingEpisode(96, -8.5, 3, 8)]


def written(path: Path) -> EpisodeLog:
    log = EpisodeLog(path, 0)
    for row in ROWS:
        log.add(row)
    return log


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    written(tmp_path / "t.csv")
    assert EpisodeLog(tmp_path / "t.csv", 96).rows == ROWS
    assert (tmp_path / "t.csv").read_text().splitlines()[:2] == [HEADER, "32,9.0,4,9"]


def test_episodes_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    written(tmp_path / "t.csv")
    log = EpisodeLog(tmp_path / "t.csv", 64)
    assert log.rows == ROWS[:2]
    log.add(ROWS[2])
    assert EpisodeLog(tmp_path / "t.csv", 96).rows == ROWS


def test_a_line_that_was_being_written_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    written(path)
    path.write_text(path.read_text()[:-3])
    assert EpisodeLog(path, 96).rows == ROWS[:2]


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    log = EpisodeLog(None, 0)
    log.add(ROWS[0])
    assert log.rows == ROWS[:1] and not list(tmp_path.iterdir())


@every_case(
    ("text", "message"),
    [
        ("a,b\n", "expected the columns steps,return,perturbations,length, got 'a,b'"),
        ("", "got ''"),
        (f"{HEADER}\n1,2,3,4\n1,x,3,4\n", "could not convert"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(CardError, match=message):
        EpisodeLog(tmp_path / "t.csv", 100)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(CardError, match=r"cannot read .*t\.csv"):
        EpisodeLog(tmp_path / "t.csv", 100)
    log = written(tmp_path / "new.csv")
    log.path = tmp_path / "no folder" / "new.csv"
    with pytest.raises(OutputError, match=r"cannot write .*new\.csv: no such file"):
        log.add(ROWS[0])
