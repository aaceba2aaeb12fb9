"""Steps that are timed: which of them are kept, and when there are enough."""

from __future__ import annotations

from adv_wrappers.utils.step_timer import StepTimer


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
