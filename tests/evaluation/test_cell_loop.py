"""The loop that plays cells: what goes out, what is kept before it is told of, and runs that share a store."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import adv_wrappers as adv
from adv_wrappers.evaluation import cell_loop
from adv_wrappers.evaluation.cell_loop import CellLoop
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.evaluation.executor import Played, ThisProcess
from adv_wrappers.evaluation.rows.store import Store
from tests.evaluation.agents import short
from tests.executors import LastFirst


@dataclass(frozen=True)
class Named:
    """A cell that is a name alone."""

    key: str


NAMES = [Named(name) for name in "abc"]


class Same:
    """Has the same row for all cells."""

    def __init__(self, about, row):
        self.about, self.row, self.played = about, row, []

    def play(self, cell, tell=None):
        self.played.append(cell.key)
        return PlayedCell(cell.key, cell.key, self.about, self.row, None, 0.0, "")

    def close(self):
        pass


@pytest.fixture(scope="module")
def row():
    report = adv.evaluate("zoo:cartpole-dqn", short, episodes=1)
    return {"env": report.env}, report.threats[0]


def test_a_row_is_stored_before_it_is_told_of_and_rows_have_the_order_of_the_cells(row, tmp_path):
    with Store(tmp_path / "rows.db") as store:
        told = []
        loop = CellLoop(NAMES, NAMES[1:], LastFirst(player := Same(*row)), store)
        loop.play(lambda played: told.append((played.key, len(store))))
        assert loop.known == 1 and told == [("c", 1), ("b", 2)] and player.played == ["c", "b"]
        assert [cell.key for cell in store.played()] == ["b", "c"]


def test_an_error_is_told_of_and_ends_no_other_cell(row):
    class Raises(LastFirst):
        def collect(self, seconds):
            task = self.waiting.pop()
            error = RuntimeError("no more") if task.key == "b" else None
            return [Played(task, None if error else self.player.play(task), error)]

    told = {}
    CellLoop(NAMES, NAMES, Raises(Same(*row))).play(lambda played: told.update({played.key: played.error}))
    assert told == {"a": None, "b": "WorkerError: RuntimeError: no more", "c": None}


def test_what_another_run_plays_meanwhile_is_waited_for(row, tmp_path, monkeypatch):
    with Store(tmp_path / "rows.db") as store, Store(tmp_path / "rows.db") as other:
        assert other.claim(["a", "b"]) == ["a", "b"]
        theirs, told = Same(*row), []

        def wait(seconds):  # the other run ends a cell, and is stopped before the next
            other.add([theirs.play(NAMES[0])])
            other.close()

        monkeypatch.setattr(cell_loop.time, "sleep", wait)
        loop = CellLoop(NAMES, NAMES, ThisProcess(player := Same(*row)), store)
        loop.play(lambda played: told.append(played and played.key))
        assert told == ["c", None, "b"] and player.played == ["c", "b"] and loop.known == 1
