"""Deadlines on a clock that the test turns."""

from __future__ import annotations

import math

import pytest

from adv_wrappers.utils import deadline
from adv_wrappers.utils.deadline import Deadline, TimedBatches


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number."""
    time = [100.0]
    monkeypatch.setattr(deadline, "clock", lambda: time[0])
    return time


def test_a_deadline_and_its_shares(now):
    whole, never = Deadline(8.0), Deadline(None)
    half = whole.share(0.5)
    assert (whole.left, half.left, never.left, never.share(0.1).left) == (8.0, 4.0, math.inf, math.inf)
    assert [one.before(1.0).left for one in (whole, never)] == [7.0, math.inf] and whole.before(9.0).left == 6.0
    now[0] += 4.0
    assert half.passed and not whole.passed and whole.share(0.25).left == 1.0
    now[0] += 5.0
    assert whole.passed and whole.left == 0.0 and whole.share(0.5).passed and not never.passed
    assert Deadline(0.0).passed


def test_batches_without_a_limit_are_as_large_as_may_be(now):
    batches = TimedBatches(Deadline(None), 8)
    assert [batches.next(rows) for rows in (20, 3)] == [8, 3]


@pytest.mark.parametrize("a_row", [0.001, 0.1, 3.0])
def test_batches_end_in_time_but_for_a_row(now, a_row):
    batches, counts, until = TimedBatches(Deadline(10.0), 64), [], now[0] + 10.0
    while rows := batches.next(1000):
        now[0] += a_row * rows
        batches.done(rows)
        counts.append(rows)
    assert counts[0] == 1 and max(counts) == {0.001: 64, 0.1: 4, 3.0: 1}[a_row]
    assert until <= now[0] <= until + a_row + 1e-9
