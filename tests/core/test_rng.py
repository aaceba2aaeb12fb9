"""Randomness without generators: one function on numbers, arrays and tensors, and what its draws look like."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adv_wrappers.core import rng
from tests.core.tape import elsewhere
from tests.every_case import every_case

U64 = st.integers(0, 2**64 - 1)
EXTREMES = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)


def unsigned(tensor: torch.Tensor) -> list[int]:
    return [int(v) & (2**64 - 1) for v in tensor]


def tensor(values: list[int]) -> torch.Tensor:
    return rng.as_tensor(rng.roots(values), len(values), torch.device("cpu"))


def test_splitmix64_reference_vector():
    # the published sequence of splitmix64 from the seed 1234567
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [rng.fold(1234567, i) for i in range(5)] == expected


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(U64, st.integers(0, 2**62)), min_size=1, max_size=5))
def test_numbers_arrays_and_tensors_agree(pairs):
    roots, data = [k for k, _ in pairs], [d for _, d in pairs]
    expected = [rng.fold(k, d) for k, d in pairs]
    assert rng.fold(rng.roots(roots), np.array(data)).tolist() == expected
    assert unsigned(rng.fold(tensor(roots), torch.tensor(data))) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(U64, min_size=1, max_size=4), st.integers(-5, 2**64))
def test_scalar_operands_agree(roots, data):
    expected = [rng.fold(k, data) for k in roots]
    assert rng.fold(rng.roots(roots), data).tolist() == expected
    assert unsigned(rng.fold(tensor(roots), data)) == expected
    assert rng.fold(roots[0], np.arange(3)).tolist() == [rng.fold(roots[0], d) for d in range(3)]
    assert unsigned(rng.fold(roots[0], torch.arange(3))) == [rng.fold(roots[0], d) for d in range(3)]


@settings(max_examples=50, deadline=None)
@given(st.lists(U64, min_size=1, max_size=5))
def test_one_number_of_a_key_agrees(values):
    expected = [rng.uniform_of(v) for v in values]
    assert rng.uniform_of(rng.roots(values)).tolist() == expected
    assert rng.uniform_of(tensor(values)).tolist() == expected
    assert all(0 <= u < 1 for u in expected)


def test_extreme_keys_stay_in_range():
    assert rng.uniform_of(2**64 - 1) == 1 - 2.0**-53
    assert unsigned(tensor(list(EXTREMES))) == list(EXTREMES)
    assert unsigned(rng.as_tensor(2**64 - 1, 2, torch.device("cpu"))) == [2**64 - 1] * 2


def many(dtype: torch.dtype, draw: str = "uniform") -> torch.Tensor:
    return getattr(rng, draw)(rng.fold(torch.arange(64), 3), (4, 1024), dtype).double().flatten()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_is_uniform(dtype):
    u = many(dtype)
    n = len(u)
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 5 / math.sqrt(12 * n)
    assert abs(u.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)
    gap = (u.sort().values - (torch.arange(n) + 0.5) / n).abs().max()  # Kolmogorov and Smirnov
    assert gap < 1.95 / math.sqrt(n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_has_the_moments_of_one(dtype):
    z = many(dtype, "normal")
    n = len(z)
    assert abs(z.mean()) < 5 / math.sqrt(n) and abs(z.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 5 * math.sqrt(15 / n) and abs((z**4).mean() - 3) < 5 * math.sqrt(96 / n)
    gap = (torch.special.ndtr(z.sort().values) - (torch.arange(n) + 0.5) / n).abs().max()
    assert gap < 1.95 / math.sqrt(n)


def key_of(bits: int) -> int:
    """The key whose first element has these bits: splitmix64's finaliser undone."""
    for shift, factor in ((31, rng._C2), (27, rng._C1), (30, 1)):
        whole = bits
        for _ in range(64 // shift):
            whole = bits ^ (whole >> shift)
        bits = whole * pow(factor, -1, 2**64) % 2**64
    return (bits - rng._GOLDEN) % 2**64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_is_finite_in_the_outermost_cells(dtype):
    wanted = [0, 2**64 - 1, 2**63, 2**63 - 1]  # the lowest, the highest, and the two in the middle
    row_keys = tensor([key_of(bits) for bits in wanted])
    z = rng.normal(row_keys, (), dtype)
    assert torch.isfinite(z).all() and z[0] == -z[1] and z[0] < -5 and z[2] == -z[3] and 0 < z[2] < 1e-6


def seen(value: np.ndarray | torch.Tensor) -> tuple[tuple[int, ...], str, bytes]:
    """Shape, type and bytes, the same for arrays and tensors."""
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 3), (376,), (130, 130)], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_draws_are_the_same_bytes_in_numpy_and_in_torch(rows, shape, dtype, monkeypatch):
    array = rng.fold(np.arange(rows, dtype=np.uint64), 5)
    row_keys, kind = torch.from_numpy(array.view(np.int64)), getattr(torch, dtype)
    for name, start in (("uniform", 0), ("uniform", 3), ("normal", 0), ("normal", 3), ("signs", None)):
        draw, more = getattr(rng, name), () if start is None else (start,)
        drawn = draw(array, shape, np.dtype(dtype), *more)
        assert isinstance(drawn, np.ndarray) and seen(drawn)[:2] == ((rows, *shape), dtype)
        assert seen(drawn) == seen(draw(array, shape, getattr(np, dtype), *more))
        assert seen(drawn) == seen(draw(row_keys, shape, kind, *more))
        if rows == 1:
            assert seen(drawn) == seen(draw(int(array[0]), shape, np.dtype(dtype), *more))
        with monkeypatch.context() as patch:
            elsewhere(patch)
            assert seen(drawn) == seen(draw(row_keys, shape, kind, *more))


def test_integers_of_numpy_are_integers():
    high = 2**64 - 3
    assert rng.fold(np.uint64(high), np.int64(3)) == rng.fold(high, 3)
    assert rng.fold(rng.roots([1, 2]), np.int64(3)).tolist() == [rng.fold(1, 3), rng.fold(2, 3)]
    assert rng.fold(np.uint64(high), np.arange(2)).tolist() == [rng.fold(high, 0), rng.fold(high, 1)]
    assert seen(rng.uniform(np.uint64(high), (3,), np.float32)) == seen(rng.uniform(high, (3,), np.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_numbers_are_drawn_in_float32(dtype, monkeypatch):
    row_keys = rng.fold(torch.arange(2), 5)
    for draw in (rng.uniform, rng.normal):
        assert draw(row_keys, (3,), dtype).dtype == torch.float32
    signs = rng.signs(row_keys, (3,), dtype)
    elsewhere(monkeypatch)
    assert signs.dtype == dtype and torch.equal(signs, rng.signs(row_keys, (3,), dtype))


def stream(seed: int = 0, t: int = 0, layer: int = 0, draw: int = 1) -> torch.Tensor:
    key = rng.fold(rng.fold(rng.fold(rng.fold(rng.root(seed), 0), t), layer), draw)
    return rng.uniform(rng.as_tensor(key, 1, torch.device("cpu")), (20000,), torch.float64)[0]


@every_case("what", ["seed", "t", "layer", "draw"])
def test_neighbours_are_uncorrelated(what):
    for value in range(1, 5):
        a, b = stream(**{what: value}), stream(**{what: value + 1})
        for lag in (0, 1, 2):  # also shifted: a counter that is shared would line up one element apart
            pair = torch.stack([a[lag:], b[: len(b) - lag]])
            assert abs(torch.corrcoef(pair)[0, 1]) < 5 / math.sqrt(len(a))
            assert not torch.equal(pair[0], pair[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("draw", ["uniform", "normal", "signs"])
def test_large_draws_are_made_in_blocks(monkeypatch, draw, dtype):
    row_keys = rng.fold(torch.arange(7), 5)
    whole = getattr(rng, draw)(row_keys, (5, 9), dtype)
    for block in (1, 44, 45, 46, 100, 314):
        monkeypatch.setattr(rng, "_BLOCK", block)
        monkeypatch.setattr(rng, "_ELSEWHERE", block)
        assert torch.equal(getattr(rng, draw)(row_keys, (5, 9), dtype), whole)
        with monkeypatch.context() as patch:
            elsewhere(patch)
            assert torch.equal(getattr(rng, draw)(row_keys, (5, 9), dtype), whole)
