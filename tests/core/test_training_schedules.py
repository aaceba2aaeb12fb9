"""Schedules are values with ends in their range; a share of a budget has that share of its radius."""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from adv_wrappers.core.serialization import decode
from adv_wrappers.core.training_schedules import ScheduledShare, at
from adv_wrappers.errors import BudgetError, ValueRangeError
from adv_wrappers.utils.validation import Expected
from tests.every_case import every_case


@pytest.mark.parametrize("kind", [adv.LinearSchedule, adv.SmoothSchedule])
def test_a_schedule_goes_from_first_to_last_and_stays(kind):
    schedule = kind(0.25, 0.75, 0.2, 0.6)
    values = [schedule(done) for done in (0.0, 0.2, 0.4, 0.6, 1.0)]
    assert (values[0], values[1], values[3], values[4]) == (0.25, 0.25, 0.75, 0.75)
    assert values == sorted(values) and decode(schedule.to_dict()) == schedule
    assert at(schedule, 1.0) == 0.75 and at(0.5, 0.1) == 0.5


@every_case("share", [-0.1, 1.5, float("nan"), "half", True, adv.LinearSchedule(0.0, 2.0)])
def test_shares_are_in_the_unit_interval(share):
    with pytest.raises(ValueRangeError, match="schedule must be a finite number from 0 to 1"):
        Expected(ScheduledShare).check("schedule", share)


@every_case(
    ("budget", "half"),
    [
        (adv.Linf(0.5, (1.0, 0.0)), adv.Linf(0.25, (1.0, 0.0))),
        (adv.Linf(0.5, "victim"), adv.Linf(0.25, "victim")),
        (adv.L2(3.0), adv.L2(1.5)),
        (adv.L0(7), adv.L0(4)),
        (adv.Sparse(3, adv.Linf(0.5)), adv.Sparse(3, adv.Linf(0.25))),
        (adv.Newest(adv.Linf(8), axis=0), adv.Newest(adv.Linf(4), axis=0)),
    ],
)
def test_half_of_a_budget(budget, half):
    assert budget.scaled(0.5) == half and budget.scaled(1) == budget
    assert budget.scaled(0.0).is_zero


def test_a_radius_below_one_grey_level_is_zero_on_a_grid():
    for budget in (adv.Linf(2), adv.Linf(8, 0.25), adv.L2(2.0), adv.Newest(adv.Linf(2))):
        assert budget.scaled(0.4, grid=True).is_zero and not budget.scaled(0.4).is_zero
        assert not budget.scaled(0.5, grid=True).is_zero


def test_what_has_no_radius_has_no_share():
    with pytest.raises(BudgetError, match=r"Valid\(\) has no radius to take a share of"):
        adv.Valid().scaled(0.5)
