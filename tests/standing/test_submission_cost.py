"""What a submission will cost: every attack has its time, or a reason, before one is played."""

from __future__ import annotations

import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.store import ROWS_FILE
from adv_wrappers.standing.measure_submission import ATTACKS, CERTIFIED_SHARE, RANGE_SHARE, Submission
from adv_wrappers.standing.standing_entry import ENTRY_FILE
from adv_wrappers.standing.submission_cost import SubmissionCost, submission_cost
from adv_wrappers.utils.deadline import Deadline


def test_every_attack_has_a_time_or_a_reason_and_none_is_played(tmp_path):
    given = Submission("zoo:cartpole-a2c", "a2c", env_kwargs={"max_episode_steps": 20})
    cost = submission_cost(given, tmp_path / "a2c")
    assert {*cost.attacks} | {*cost.left_out} == {*ATTACKS} and cost.kept == ()
    assert all(seconds > 0 for seconds in cost.attacks.values()) and cost.clean > 0
    assert "needs Q-values" in cost.left_out["min-q"]
    assert (tmp_path / "a2c" / ROWS_FILE).is_file() and not (tmp_path / "a2c" / ENTRY_FILE).exists()


def test_what_is_no_submission_is_refused(tmp_path):
    with pytest.raises(ValueRangeError, match=r"got licence='Apache-2\.0'"):
        submission_cost(Submission("zoo:cartpole-a2c", "a2c", "Apache-2.0"), tmp_path / "a2c")
    assert not (tmp_path / "a2c").exists()


def test_attacks_fit_as_they_do_when_they_are_played():
    cost = SubmissionCost(10.0, {"noise": 8.0, "square": 4000.0, "pgd": 40.0}, ("max-diff",), {"min-q": "no Q"})
    assert cost.fitting(0.1) == [] and cost.fitting(2) == ["noise", "pgd"]
    assert cost.fitting(cost.minutes + 10 / 60 / (1 - RANGE_SHARE)) == [*cost.attacks]
    search = SubmissionCost(0.0, {"beam": 60.0, "pgd": 15.0, "square": 30.0}, (), {})  # tried, in half of 48 s
    assert search.fitting(1) == ["pgd"] and search.fitting(4) == [*search.attacks]
    assert [*search.table(1).columns[2].cells][2] == "tried"
    left = Deadline(60 * cost.minutes).left * (1 - RANGE_SHARE) * (1 - CERTIFIED_SHARE)
    assert cost.seconds == 4048.0 < left


def test_the_table_has_every_attack_and_the_notes_have_the_whole_time():
    cost = SubmissionCost(1.0, {"noise": 8.0, "square": 9000.0}, ("max-diff",), {"min-q": "no Q", "pgd": "no Q"})
    table = cost.table(2)
    rows = [*zip(*(column.cells for column in table.columns), strict=True)]
    assert [row[0] for row in rows] == [*ATTACKS]
    assert {("noise", "8 s", "played"), ("square", "2.5 h", "left out")} < {*rows}
    assert {("max-diff", "", "there already"), ("min-q", "", "does not apply")} < {*rows}
    first, second = cost.notes()
    assert first.startswith("2 attacks are left, which take about 2.5 h ") and second == "min-q, pgd: no Q"
    assert SubmissionCost(1.0, {}, ("noise",), {}).notes() == ["no attack of the standing is left to be played"]
