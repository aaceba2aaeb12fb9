"""Studies: what is played next follows from rows, a stopped study goes on, and bad rules end."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path

import pytest

from adv_wrappers.cli.main import main
from adv_wrappers.errors import ValueRangeError, WorkerError
from adv_wrappers.evaluation import player
from adv_wrappers.evaluation.player import Player
from adv_wrappers.studies import Plan, Store, play_study
from tests.studies.test_runner import DQN, SHORT, failing

EXAMPLES = Path(__file__).parents[2] / "examples"


class Bisection:
    """Three episodes of a short CartPole under noise; the eps that is tried next depends on the row before."""

    def __init__(self, rounds=3):
        self.rounds = rounds

    def next(self, rows):
        if len(rows) > self.rounds:
            return None
        eps = 0.1 if not rows else rows[-1].eps / 2 if rows[-1].mean_return < 20 else rows[-1].eps * 1.5
        return Plan.of(victims=[DQN], environments=[SHORT], threats=[f"noise:eps={eps}"], episodes=2)

    def conclusion(self, rows):
        return [row.threat for row in rows], [row.eps for row in rows[1:]]


@pytest.fixture
def blocks(monkeypatch):
    """The blocks that were played."""
    found, play = [], Player.play
    monkeypatch.setattr(Player, "play", lambda self, block, *a, **k: found.append(block) or play(self, block, *a, **k))
    return found


def test_each_plan_follows_from_the_rows_before(tmp_path, blocks):
    with Store(tmp_path / "rows.db") as store:
        threats, eps = play_study(Bisection(), store, progress=lambda *_: None)
        assert threats[0] == "none" and len(threats) == 4 and eps[0] == 0.1 and len(set(eps)) == 3
        assert all(two in (one / 2, one * 1.5) for one, two in itertools.pairwise(eps))
        assert len(store) == 4 and len(blocks) == 4, "the run without a threat is shared"


def test_environments_stay_open_between_plans(monkeypatch):
    made, side_by_side = [], player.side_by_side
    monkeypatch.setattr(player, "side_by_side", lambda *given: made.append(given) or side_by_side(*given))
    with Store(":memory:") as store:
        assert len(play_study(Bisection(), store, progress=lambda *_: None)[0]) == 4
    assert len(made) == 3 + 1, "each of three plans is checked in one, and all are played in another"


def test_a_rule_that_names_nothing_new():
    class Same(Bisection):
        def next(self, rows):
            return Plan.of(victims=[DQN], environments=[SHORT], episodes=1)

    with (
        Store(":memory:") as store,
        pytest.raises(ValueRangeError, match=r"Same\.next must name a new cell, or return None"),
    ):
        play_study(Same(), store, progress=lambda *_: None)


def test_a_cell_that_fails():
    class Fails(Bisection):
        def next(self, rows):
            return failing("raises")

    with Store(":memory:") as store, pytest.raises(WorkerError, match=r"Fails has no row of .*no more"):
        play_study(Fails(), store, progress=lambda *_: None)


def test_no_plan_begins_after_the_time(monkeypatch):
    times = iter([0.0, 90.0])
    monkeypatch.setattr("adv_wrappers.utils.deadline.clock", lambda: next(times, 90.0))
    with Store(":memory:") as store:
        threats, _ = play_study(Bisection(), store, progress=lambda *_: None, minutes=1)
    assert len(threats) == 2


def test_the_example(monkeypatch):
    monkeypatch.setattr(main, "commands", {**main.commands})  # to which the example adds its own
    monkeypatch.syspath_prepend(EXAMPLES)
    least_eps = importlib.import_module("least_eps")
    study = least_eps.LeastEps("zoo:cartpole-dqn", "noise", most=2.0, episodes=1, close=0.25)
    with Store(":memory:") as store:
        low, high = play_study(study, store, progress=lambda *_: None)
    assert 0 <= (low or 0.0) < high <= 2.0 and high - (low or 0.0) == 0.25
