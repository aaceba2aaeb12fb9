"""Rows are played while there is time for them, and none goes on for long after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adv_wrappers as adv
from adv_wrappers.environments.environment import Environment
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.studies.report.trials import Trial, TrialPlayer
from adv_wrappers.utils import deadline
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from tests.evaluation.made_reports import made_row
from tests.studies.report.planted import Guess, Plain, victim


def test_a_row_that_takes_longer_than_it_seemed_ends_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program takes the machine: every step lasts a second, of a row that seemed to take none."""
    now, each = [0.0], [0.0]
    monkeypatch.setattr(deadline, "clock", lambda: now[0])

    class Busy(Guess):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            now[0] += each[0]
            return super().step(action)

    agent = victim(Plain())
    rows = TrialPlayer(agent, Environment.of(Busy, agent), Episodes(3, 0), Deadline(100.0), tmp_path)
    rows.play_clean()
    rows.play("noise", adv.Linf(0.1))
    each[0], rows.deadline = 1.0, Deadline(10.0)
    with pytest.raises(OutOfTime):
        rows.play("noise", adv.Linf(0.2))
    assert now[0] < 20 and [*rows.left_out] == [("noise", "")]
    with pytest.raises(OutOfTime):
        rows.play("fgsm", adv.Linf(0.2))
    assert now[0] < 20, "what is not played any more is not timed either"
    assert len(rows.report().threats) == 2
    rows.close()


def test_rows_of_an_earlier_call_are_taken_over_after_the_time(tmp_path: Path) -> None:
    agent = victim(Plain())
    for seconds in (None, 0.0):
        rows = TrialPlayer(agent, Environment.of(Guess, agent), Episodes(3, 0), Deadline(seconds), tmp_path)
        rows.play_clean()
        rows.play("noise", adv.Linf(0.1))
        assert len(rows.report().threats) == 2 and not rows.left_out
        rows.close()


def test_what_costs_little_is_not_priced_as_the_slowest_attack(tmp_path: Path) -> None:
    """After the time is over nothing is timed any more: a fault of sensors takes as long as a row without an attack."""
    agent = victim(Plain())
    rows = TrialPlayer(agent, Environment.of(Guess, agent), Episodes(3, 0), Deadline(None), tmp_path)
    rows.play_clean()
    clean = rows.clean["ms_per_step"] / 1000 * sum(rows.clean["lengths"])
    rows._seconds["apgd"] = 1.0
    rows.deadline, rows._goes_on = Deadline(0.0), False
    for attack, budget in (
        ("stuck-sensor:features=0", None),
        ("square", adv.Linf(0.1)),
        ("apgd:steps=5", adv.Linf(0.1)),
    ):
        with pytest.raises(OutOfTime):
            rows.play(attack, budget)
    fault, *attacks = rows.left_out.values()
    assert fault == pytest.approx(clean) and attacks == [60.0, 60.0]
    rows.close()


def test_the_row_without_an_attack_is_played_whole_unless_it_has_a_limit(tmp_path: Path) -> None:
    """Comparisons and standings need it, whatever time is left for the others."""
    agent = victim(Plain())
    rows = TrialPlayer(agent, Environment.of(Guess, agent), Episodes(3, 0), Deadline(0.0), tmp_path)
    assert rows.play_clean()["mean_return"] == 20
    rows.close()
    limited = TrialPlayer(agent, Environment.of(Guess, agent), Episodes(3, 0), Deadline(None), tmp_path / "limited")
    with pytest.raises(OutOfTime):
        limited.play_clean(Deadline(0.0))
    limited.close()


def test_a_row_of_few_episodes_has_lost_what_was_lost_in_them() -> None:
    """Two episodes that return little without an attack too are no loss of half."""
    clean, row = made_row("none", [10.0, 10.0, 190.0, 190.0]), made_row("beam", [9.0, 9.0])
    assert Trial(row, clean).mean == 99.0
    assert Trial(clean, clean).mean == 100.0
