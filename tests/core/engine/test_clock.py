"""Counters and keys: integers, host arrays and tensors tell the same time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adv_wrappers.core import rng
from adv_wrappers.core.engine.clock import Clock
from adv_wrappers.errors import ValueRangeError
from tests.every_case import every_case

CPU = torch.device("cpu")


def unsigned(values) -> list[int]:
    return [int(v) & (2**64 - 1) for v in np.atleast_1d(np.asarray(values))]


def flags(clock: Clock, mask: list[bool]):
    return np.array(mask) if clock.device is None else torch.tensor(mask)


def state(clock: Clock) -> list[list[int]]:
    return [np.atleast_1d(np.asarray(v)).tolist() for v in (clock.episode, clock.t, clock.spent)]


def test_row_i_has_seed_s_plus_i():
    many = Clock(3)
    many.reset(7)
    for i in range(3):
        one = Clock(None)
        one.reset(7 + i)
        assert unsigned(many.key())[i] == one.key()
        assert one.key() == rng.fold(rng.fold(rng.root(7 + i), 0), 0)


@pytest.mark.parametrize("device", [None, CPU])
def test_a_vector_row_is_a_single_environment(device):
    many, ones = Clock(2, device), [Clock(None), Clock(None)]
    many.reset([5, 9])
    for one, seed in zip(ones, (5, 9), strict=True):
        one.reset(seed)
    script = [("tick", [True, True]), ("count", [True, False])]
    script += [("next_episode", [False, True]), ("tick", [True, False])]
    for action, mask in script:
        getattr(many, action)(flags(many, mask))
        for one, on in zip(ones, mask, strict=True):
            if on:
                {"next_episode": one.reset, "tick": one.tick, "count": lambda one=one: one.count(True)}[action]()
        assert unsigned(many.key()) == [one.key() for one in ones]
        assert state(many) == [[getattr(one, what) for one in ones] for what in ("episode", "t", "spent")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["tick", "count", "next_episode", "reset"]),
            st.lists(st.booleans(), min_size=3, max_size=3),
        )
    )
)
def test_host_and_device_agree(script):
    host, device = Clock(3), Clock(3, CPU)
    host.reset(1), device.reset(1)
    for action, mask in script:
        for clock in (host, device):
            if action == "reset":
                clock.reset([4, None, 6], flags(clock, mask))
            else:
                getattr(clock, action)(flags(clock, mask))
        assert state(host) == state(device) and unsigned(host.key()) == unsigned(device.key())


def test_a_step_and_an_episode_each_change_the_key():
    clock = Clock(None)
    seen = set()
    clock.reset(0)
    for _ in range(3):
        for _ in range(4):
            assert clock.key() == clock.key()
            seen.add(clock.key())
            clock.tick()
        clock.reset()
    assert len(seen) == 12 and clock.episode == 3


def test_a_masked_reset_leaves_the_other_rows():
    clock = Clock(3)
    clock.reset(0)
    clock.tick(), clock.count(np.array([True, True, False]))
    before = unsigned(clock.key())
    clock.reset([8, 8, None], np.array([False, True, True]))
    after = unsigned(clock.key())
    assert state(clock) == [[0, 0, 1], [1, 0, 0], [1, 0, 0]]
    assert after[0] == before[0] and after[1] == rng.fold(rng.fold(rng.root(8), 0), 0)
    assert after[2] == rng.fold(rng.fold(rng.root(2), 1), 0), "without a seed: the next episode of the same root"


def test_seeds_start_again_and_no_seed_goes_on():
    clock = Clock(None)
    clock.reset(3)
    first = clock.key()
    clock.reset()
    assert clock.key() != first
    clock.reset(3)
    assert clock.key() == first
    many = Clock(2)
    many.reset([3, None])
    kept = int(many.root[1])
    many.reset([3, None])
    assert int(many.root[1]) == kept and many.episode.tolist() == [0, 2]


def test_clocks_without_a_seed_differ():
    assert Clock(None).key() != Clock(None).key()
    assert len(set(unsigned(Clock(4).key()))) == 4


@every_case("seed", [0.5, "1", True, [1, 2, 3], [0.5, None]])
def test_bad_seeds(seed):
    with pytest.raises(ValueRangeError, match="seed"):
        Clock(2).reset(seed)
    with pytest.raises(ValueRangeError, match="seed"):
        Clock(None).reset(seed)


def test_numpy_seeds_are_seeds():
    a, b = Clock(2), Clock(2)
    a.reset(np.int64(4)), b.reset(np.array([4, 5]))
    assert unsigned(a.key()) == unsigned(b.key())
