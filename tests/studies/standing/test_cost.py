"""What a submission will cost: every attack has its time, or a reason, before one is played."""

from __future__ import annotations

import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.cost import Cost, Costs
from adv_wrappers.evaluation.store import ROWS_FILE
from adv_wrappers.studies.standing.cost import SubmissionCost, submission_cost
from adv_wrappers.studies.standing.entry import ENTRY_FILE
from adv_wrappers.studies.standing.measure import ATTACKS, CERTIFIED_SHARE, RANGE_SHARE, Submission
from adv_wrappers.utils.deadline import Deadline


@pytest.mark.slow
def test_every_attack_has_a_time_or_a_reason_and_none_is_played(tmp_path):
    given = Submission("zoo:cartpole-a2c", "a2c", env_kwargs={"max_episode_steps": 20})
    cost = submission_cost(given, tmp_path / "a2c")
    assert {part.name for part in cost.costs.parts} | {*cost.left_out} == {*ATTACKS} and cost.costs.known == 0
    assert all(part.left == 1 and part.seconds > 0 for part in cost.costs.parts)
    assert "needs Q-values" in cost.left_out["min-q"]
    assert (tmp_path / "a2c" / ROWS_FILE).is_file() and not (tmp_path / "a2c" / ENTRY_FILE).exists()


def test_what_is_no_submission_is_refused(tmp_path):
    with pytest.raises(ValueRangeError, match=r"got licence='Apache-2\.0'"):
        submission_cost(Submission("zoo:cartpole-a2c", "a2c", "Apache-2.0"), tmp_path / "a2c")
    assert not (tmp_path / "a2c").exists()


def test_the_minutes_are_enough_for_all_and_the_notes_say_so():
    costs = Costs((Cost("noise", 1, 48.0), Cost("square", 1, 4000.0), Cost("max-diff", 0, 0.0)), "attacks", 1)
    cost = SubmissionCost(costs, {"min-q": "no Q", "pgd": "no Q"})
    left = Deadline(60 * cost.minutes).left * (1 - RANGE_SHARE) * (1 - CERTIFIED_SHARE)
    assert costs.seconds == 4048.0 < left
    first, second = cost.notes()
    assert first.startswith("2 attacks are left, 1 are known: about 67 min ") and second == "min-q, pgd: no Q"
    assert first.endswith(f"; {cost.minutes:.1f} minutes play all of them")
