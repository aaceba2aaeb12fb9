"""The kernels of brightness, shift, blur and warp compiled for a GPU that is not there, and the networks of medians."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from adv_wrappers.daylight.brightness import table, tables
from adv_wrappers.daylight.kernels.sorting_networks import MEDIAN, MIDDLE, SORTED
from adv_wrappers.daylight.warp import BORDERS, INTERPOLATIONS
from tests.daylight.helpers import pictures
from tests.daylight.test_triton import code_of, twin
from tests.triton_tools import compiled, compiling, needs_triton, resources


def launch_all():
    """Every kernel in every form that functions ask for."""
    size, flags = (84, 84), [False, True]
    level, indices = torch.zeros(256, dtype=torch.uint8), torch.zeros(84 * 84, dtype=torch.int32)
    fractions = torch.zeros(84 * 84, dtype=torch.int16)
    twin("brightness").look_up(pictures(2, *size), level)
    for border, channels in itertools.product(BORDERS, (1, 2, 3, 4, 8)):
        twin("shift").shift(pictures(2, *size, channels), indices[:2].view(1, 2), border)
    matrices = torch.zeros(2, 9, dtype=torch.float64)
    for affine, interpolation, border in itertools.product(flags, INTERPOLATIONS, BORDERS):
        for channels in (1, 3, 4) if border == "replicate" else (1,):
            twin("warp_per_row").warp(pictures(2, *size, channels), matrices, affine, border, interpolation)
    for channels, per in itertools.product((1, 3, 4), (1, 8)):
        x = pictures(2, *size, channels)
        twin("warp").gather(x, indices[None], None, per)
        twin("warp").gather(x, indices.expand(4, -1).contiguous(), fractions, per)
    for k, channels, rows in itertools.product((3, 5, 7), (1, 3), (2, 12)):
        twin("blur").median(pictures(2, *size, channels), k, rows)


def check_machine_code():
    """All compile, and none has so many values at once that some have to wait in memory."""
    made = compiling()
    launch_all()
    for kernel in made.values():
        registers, stack = resources(kernel)
        assert stack == 0, kernel.metadata.name
        print(f"{kernel.metadata.name} REG:{registers}")


@needs_triton
@pytest.mark.slow
def test_compiled_for_a_gpu():
    """Registers: a median of seven rows keeps 42 values and works on 49."""
    shown = [line.split(" REG:") for line in compiled(code_of("check_machine_code()", __name__)).splitlines()]
    assert {name for name, _ in shown} == {"_look_up", "_shift", "_gather", "_warp", "_median"}
    assert len(shown) >= 1 + 20 + 20 + 12 + 12
    assert max(int(count) for _, count in shown) <= 128


@pytest.mark.parametrize("k", [3, 5, pytest.param(7, marks=pytest.mark.slow)])
def test_the_networks_are_right_on_all_zeros_and_ones(k):
    for row in itertools.product([0, 1], repeat=k):
        assert exchanged(list(row), SORTED[k]) == sorted(row)
    ones = np.stack(np.meshgrid(*[np.arange(k + 1)] * k, indexing="ij")).reshape(k, -1)  # in every row
    wires = [row >= k - j for row in ones for j in range(k)]
    assert np.array_equal(exchanged(wires, MEDIAN[k])[MIDDLE[k]], ones.sum(0) > k * k // 2)


def exchanged(values, network):
    for i, j in network:
        values[i], values[j] = values[i] & values[j], values[i] | values[j]
    return values


def test_tables_of_rows_are_the_tables_of_numbers():
    rng = np.random.default_rng(0)
    alpha, beta = rng.normal(0, 2, 200) * 2.0 ** rng.integers(-9, 9, 200), rng.normal(0, 100, 200)
    alpha[:4], beta[:4] = (0.5, 1.5, 1 / 3, 1e30), (0.5, -0.5, 1 / 6, -1e30)
    for rule in ("clip", "abs"):
        expected = [table(a, b, rule) for a, b in zip(alpha.tolist(), beta.tolist(), strict=True)]
        assert np.array_equal(tables(torch.from_numpy(alpha), torch.from_numpy(beta), rule).numpy(), np.stack(expected))
