"""How far something is: what a line says, and that lines come as long as it goes on."""

from __future__ import annotations

import threading

import pytest

from adv_wrappers.utils.pace import Pace, ProgressLines, StepTimer, progress_lines, to_standard_error


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def told():
    """Lines, the clock, and what was written."""
    written, clock = [], Clock()
    return ProgressLines(written.append, clock), clock, written


def test_a_line_says_what_runs_and_what_is_left(told):
    lines, clock, written = told
    lines.tell()
    assert written == []
    lines.move("beam", 0, 20)
    clock.now += 30
    lines.tell()
    lines.move("beam", 5, 20)
    clock.now += 10
    lines.tell()
    lines.move("beam", 5, 2000, "1 failed")
    lines.tell()
    assert written == [
        "beam: 0 of 20 after 30 s",
        "beam: 5 of 20 after 40 s, about 80 s left",
        "beam: 5 of 2000, 1 failed after 40 s, about 3.3 h left",
    ]


def test_what_an_earlier_call_did_says_nothing_of_the_pace():
    pace = Pace(100.0, 50, 100)
    assert pace.left(110.0) is None
    pace.move(110.0, 60, 100)
    assert pace.left(110.0) == 40.0 and pace.left(112.0) == 38.0


def test_what_is_left_passes_until_the_next_part_and_is_unknown_once_that_is_late():
    pace = Pace(0.0, 0, 30)
    pace.move(10.0, 10, 30)  # ten at once, in ten seconds
    assert pace.left(20.0) == 10.0 and pace.left(30.0) is None
    pace.move(30.0, 20, 30)
    assert pace.left(30.0) == 15.0
    pace.move(50.0, 30, 30)
    assert pace.left(50.0) is None


def test_what_is_done_is_not_told_of(told):
    lines, clock, written = told
    lines.move("noise", 0, 3)
    lines.move("pgd", 0, 3)
    clock.now += 10
    lines.tell()
    lines.move("pgd", 3, 3)
    lines.tell()
    lines.move("noise", 3, 3)
    lines.tell()
    assert written == ["pgd: 0 of 3 after 10 s", "noise: 0 of 3 after 10 s"]


def test_lines_come_until_the_end_and_go_to_standard_error(capsys):
    came = threading.Event()
    with progress_lines(lambda line: came.set() if line.startswith("cells: 1 of 4") else None, 0.0) as move:
        move("cells", 1, 4)
        assert came.wait(60)
    with progress_lines(every=1e9) as move:
        move("cells", 1, 4)
    assert capsys.readouterr() == ("", "")  # what is done sooner
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


# steps that are timed


def timed(most, limit, steps, sizes=None):
    """A timer after steps of so many seconds, with the sizes that they lead to, and how many it was told of."""
    now, told = 0.0, 0
    timer = StepTimer(most, limit, lambda: now)
    with timer.ends():
        for i, seconds in enumerate(steps):
            now, told = now + seconds, told + 1
            timer(0 if sizes is None else sizes[i])
    return timer, told


def test_the_first_step_is_not_counted():
    timer, told = timed(3, 60.0, [9, 1, 2, 3, 4])
    assert (timer.seconds, told, timer.ended) == ([1, 2, 3], 4, True)


def test_what_takes_long_is_timed_once():
    assert timed(3, 5.0, [9, 7, 2, 3])[0].seconds == [7]
    assert timed(9, 5.0, [9, 3, 2, 1])[0].seconds == [3, 2]


def test_what_ends_by_itself_is_not_ended():
    timer, told = timed(3, 60.0, [9, 1])
    assert (timer.seconds, told, timer.ended) == ([1], 2, False)
    assert timed(3, 60.0, [9])[0].seconds == []


def test_steps_of_about_the_largest_size_are_kept():
    timer, _ = timed(3, 60.0, [9, 1, 2, 3, 4, 5, 6], sizes=[1, 20, 30, 20, 28, 30, 30])
    assert timer.seconds == [3, 5, 6]  # each begins with the size that the one before has led to


def test_a_line_is_written_at_once(capsys):
    to_standard_error("cells: 3 of 9")
    assert capsys.readouterr() == ("", "cells: 3 of 9\n")
