"""The step of the l-infinity ball as a kernel: to the bit what torch makes of it, and compiled for a GPU."""

from __future__ import annotations

import itertools

import pytest
import torch

from adv_wrappers.core.budgets import Linf
from tests.core.helpers import randn
from tests.triton_tools import compiled, compiling, interpreted, needs_triton, resources

SCALES = (None, 0.75, (0.5, 0.0, 2.0, 1.25, 0.25, 1.0))


def bits(x):
    """Tells zeros by their sign, and no two kinds of NaN apart: torch's own clamp on a processor makes others."""
    x = torch.where(x.isnan(), torch.nan, x)
    return x.view(torch.int32 if x.dtype == torch.float32 else torch.int64)


def batches(dtype, grid, rows=200):
    """An iterate, its gradient, a true value and a box, with zeros of both signs and NaN among them."""
    x, y, g = (randn(rows, 6, seed=seed) * 3 for seed in range(3))
    if grid:
        x, y = x.round(), y.round()
    low, high = x - 2.0, x + 2.0
    y.view(-1)[::7], g.view(-1)[::5], g.view(-1)[1::5], g.view(-1)[3::50] = -0.0, 0.0, -0.0, torch.nan
    if not grid:
        y.view(-1)[11::97] = torch.nan
    return [t.to(dtype) for t in (y, g, x, low, high)]


def check_steps():
    from adv_wrappers.core import balls_triton

    for dtype, grid, scale in itertools.product((torch.float32, torch.float64), (False, True), SCALES):
        y, g, x, low, high = batches(dtype, grid)
        ball = Linf(2.0, scale)
        # a product that is exact, since not every interpreter adds to it before rounding
        expected = ball.plainly(y, g, 1.25, x, low, high, grid)
        got = balls_triton.ascend(y, g, low, high, 1.25, ball.units(y), grid)
        assert torch.equal(bits(got), bits(expected)), (dtype, grid, scale)
        spent = g.clone()
        assert balls_triton.ascend(y, spent, low, high, 1.25, ball.units(y), grid, out=spent) is spent
        assert torch.equal(bits(spent), bits(expected))
    print("equal")


def check_bytes():
    from adv_wrappers.core import balls_triton

    x = torch.arange(256, dtype=torch.uint8).repeat(3).view(6, 4, 4, 8)
    for dtype, eps, step in itertools.product((torch.float32, torch.float64), (1.0, 2.5, 300.0), (1.0, 1.5)):
        true = x.float()
        low, high = Linf(eps).box(true, torch.tensor(0.0), torch.tensor(255.0))
        low, high = low.ceil().to(dtype), high.floor().to(dtype)
        y, g = (true + randn(*x.shape).round().float()).to(dtype), randn(*x.shape, seed=1).round().to(dtype)
        expected = Linf(eps).plainly(y, g, step, true, low, high, True)
        got = balls_triton.step_from_bytes(y, g, x, eps, step)
        assert torch.equal(bits(got), bits(expected)), (dtype, eps, step)
    print("equal")


def check_halves():
    """Every half and its neighbours, where rounding is decided."""
    from adv_wrappers.core import balls_triton

    for dtype in (torch.float32, torch.float64):
        halves = torch.arange(-40, 41, dtype=dtype) / 2
        y = torch.stack([halves, halves.nextafter(halves + 1), halves.nextafter(halves - 1), halves * 2.0**22])
        low, high = torch.full_like(y, -torch.inf), torch.full_like(y, torch.inf)
        got = balls_triton.ascend(y, torch.zeros_like(y), low, high, 1.0, None, True)
        assert torch.equal(bits(got), bits((y + 0.0).round()))
    print("equal")


def check_what_it_leaves():
    from adv_wrappers.core import balls_triton

    y, g, _, low, high = batches(torch.float32, False)
    ascend, across = balls_triton.ascend, torch.zeros(6, 200).t()
    assert ascend(y.half(), g.half(), low.half(), high.half(), 1.0) is None
    assert ascend(y, g.double(), low, high, 1.0) is None
    assert ascend(y, across, low, high, 1.0) is None and ascend(y, g, low, high, 1.0, out=across) is None
    assert ascend(y, g, low[:1], high, 1.0) is None and ascend(y[:0], g[:0], low[:0], high[:0], 1.0) is None
    assert balls_triton.step_from_bytes(y, g, y, 1.0, 1.0) is None
    print("left")


def check_trial():
    from adv_wrappers.core import balls_triton

    balls_triton.trial(torch.device("cpu"))
    plainly = Linf.plainly
    Linf.plainly = lambda *a, **k: plainly(*a, **k) + 1e-3
    with pytest.raises(AssertionError, match="off by"):
        balls_triton.trial(torch.device("cpu"))
    print("tried")


@needs_triton
@pytest.mark.parametrize("check", [check_steps, check_bytes, check_halves, check_what_it_leaves, check_trial])
def test_interpreted(check):
    assert interpreted(f"from {__name__} import {check.__name__}; {check.__name__}()")


def check_machine_code():
    from adv_wrappers.core import balls_triton

    made = compiling()
    for dtype, grid, scale in itertools.product((torch.float32, torch.float64), (False, True), SCALES):
        for rows in (8, 5):  # with a count that 16 divides memory goes four numbers at a time
            y, g, _, low, high = batches(dtype, grid, rows)
            balls_triton.ascend(y, g, low, high, 1.25, Linf(2.0, scale).units(y), grid)
    for dtype in (torch.float32, torch.float64):
        x = torch.zeros(8, 4, 4, 8, dtype=torch.uint8)
        balls_triton.step_from_bytes(x.to(dtype), x.to(dtype), x, 1.0, 1.0)
    for kernel in made.values():
        registers, stack = resources(kernel)
        assert registers <= 80 and stack == 0, (kernel.metadata.name, registers, stack)
    wide = [kernel for kernel in made.values() if "ld.global.v4.b32" in kernel.asm["ptx"]]
    print(len(made), len(wide))


@needs_triton
def test_compiled_for_a_gpu():
    count, wide = map(int, compiled(f"from {__name__} import check_machine_code; check_machine_code()").split())
    assert count == 2 * 2 * 3 * 2 + 2 and wide >= 2 * 3
