"""Counters and keys: integers, host arrays and tensors tell the same time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adv_wrappers.core import rng
from adv_wrappers.core.engine.clock import Clock
from adv_wrappers.errors import ValueRangeError
from tests.every_case import every_case

CPU = torch.device("cpu")


def unsigned(values) -> list[int]:
    return [int(v) & (2**64 - 1) for v in np.atleast_1d(np.asarray(values))]


def test_row_i_has_seed_s_plus_i():
    many = Clock(3)
    many.reset(7)
    for i in range(3):
        one = Clock(None)
        one.reset(7 + i)
        assert unsigned(many.key())[i] == one.key()
        assert one.key() == rng.fold(rng.fold(rng.root(7 + i), 0), 0)


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
