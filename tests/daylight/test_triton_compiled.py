"""The kernels of brightness, shift, blur and warp compiled for a GPU that is not there, and the networks of medians."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from adv_wrappers import daylight
from adv_wrappers.daylight.brightness import table, tables
from adv_wrappers.daylight.fixed_point_warp import BORDERS, INTERPOLATIONS
from adv_wrappers.daylight.sorting_networks import MEDIAN, MIDDLE, SORTED
from tests.daylight.helpers import pictures
from tests.daylight.test_triton import STACKS, code_of, kernels, twin
from tests.triton_tools import compiled, compiling, needs_triton, resources


def launch_all():
    """Every kernel in every form that functions ask for, and some stacks as they are composed."""
    size, flags = (84, 84), [False, True]
    level, codes = torch.zeros(256, dtype=torch.uint8), torch.zeros(84 * 84, dtype=torch.int32)
    fractions = torch.zeros(84 * 84, dtype=torch.int16)
    twin("brightness").look_up(pictures(2, *size), level)
    for border, channels in itertools.product(BORDERS, (1, 2, 3, 4, 8)):
        twin("shift").shift(pictures(2, *size, channels), codes[:2].view(1, 2), border)
    matrices = torch.zeros(2, 9, dtype=torch.float64)
    for affine, interpolation, border in itertools.product(flags, INTERPOLATIONS, BORDERS):
        for channels in (1, 3, 4) if border == "replicate" else (1,):
            twin("warp_per_row").warp(pictures(2, *size, channels), matrices, affine, border, interpolation)
    for channels, before in itertools.product((1, 3, 4), (None, level)):
        x = pictures(2, *size, channels)
        twin("warp").gather(x, codes[None], None, before)
        for after in (None, level):
            twin("warp").gather(x, codes.expand(4, -1).contiguous(), fractions, before, after)
    for k, where, before, after in itertools.product((3, 5), (None, codes), (None, level), (None, level)):
        twin("blur").median(pictures(2, *size, 1), k, where, before, after)
    for after in (None, level):
        twin("blur").median(pictures(2, *size, 3), 7, None, None, after)
    for k in (3, 5, 7):
        twin("blur").median(pictures(2, *size, 1), k, rows=12)
    twin("warp").gather(pictures(2, *size, 4), codes.expand(4, -1).contiguous(), fractions, level, level, per=8)
    with kernels():
        for steps, _ in STACKS:
            daylight.compose(pictures(2, *size, 4), *steps, layout="HWF")


def launch_one_of_each():
    """Every kernel in one form, that of the median with the most values."""
    level, codes = torch.zeros(256, dtype=torch.uint8), torch.zeros(84 * 84, dtype=torch.int32)
    x = pictures(2, 84, 84, 1)
    twin("brightness").look_up(x, level)
    twin("shift").shift(x, codes[:2].view(1, 2), "wrap")
    twin("warp").gather(x, codes[None], None, None)
    twin("warp_per_row").warp(x, torch.zeros(2, 9, dtype=torch.float64), False, "zero", "bilinear")
    twin("blur").median(x, 7, rows=12)


def check_machine_code(launch):
    """All compile, and none has so many values at once that some have to wait in memory."""
    made = compiling()
    launch()
    for kernel in made.values():
        registers, stack = resources(kernel)
        assert stack == 0, kernel.metadata.name
        print(f"{kernel.metadata.name} REG:{registers}")


@needs_triton
@pytest.mark.parametrize(
    ("launch", "least"),
    [("launch_one_of_each", 5), pytest.param("launch_all", 1 + 20 + 18 + 20 + 18, marks=pytest.mark.slow)],
)
def test_compiled_for_a_gpu(launch, least):
    """Registers: a median of seven rows keeps 42 values and works on 49."""
    shown = [line.split(" REG:") for line in compiled(code_of(f"check_machine_code({launch})", __name__)).splitlines()]
    assert {name for name, _ in shown} == {"_look_up", "_shift", "_gather", "_warp", "_median"}
    assert len(shown) >= least
    assert max(int(count) for _, count in shown) <= 128


@pytest.mark.parametrize("k", [3, 5, 7])
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
