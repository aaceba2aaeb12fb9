# mypy: allow-untyped-decorators, disable-error-code="no-untyped-def,assignment"
"""The step of the l-infinity ball as one kernel: the twin of :meth:`adv_wrappers.core.budgets.Linf.ascend`.

Five passes over memory (sign, step, clamp, round) become one. The results are those of the plain rule to the bit, which
on CUDA multiplies and adds with one rounding; so contraction is switched off, and asked for where torch has it.
"""

from __future__ import annotations

import itertools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.accel import triton_loader

_BLOCK = 1024


@triton.jit
def rounded(v):
    """Half to even, signed zeros kept: beyond ``big`` every float is whole."""
    big = 4503599627370496.0 if v.dtype == tl.float64 else 8388608.0
    size = tl.abs(v)
    whole = (size + big) - big
    return tl.where((size > 0) & (size < big), tl.where(v < 0, whole * -1.0, whole), v)


@triton.jit
def ascended(y, g, low, high, unit, length, SCALED: tl.constexpr, GRID: tl.constexpr):
    """One element's step; ``unit`` and ``length`` are of the dtype of ``y``."""
    move = (g > 0).to(y.dtype) - (g < 0).to(y.dtype)
    if SCALED:
        move = move * unit
    if SCALED and GRID:  # at least one level, also for features of a small scale
        sign = (move > 0).to(y.dtype) - (move < 0).to(y.dtype)
        y = y + tl.maximum(tl.abs(length * move), 1.0) * sign
    else:
        y = tl.fma(move, length, y)
    v = tl.minimum(tl.maximum(y, low), high)
    v = tl.where(low != low, low, tl.where(high != high, high, v))
    v = tl.where(y != y, y, v)
    return rounded(v) if GRID else v


@triton.jit
def ascend_kernel(
    y, g, low, high, units, out, count, features, length: tl.float64, scale: tl.float64,
    UNIT: tl.constexpr, GRID: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``UNIT``: 0 without scale, 1 for one number, 2 for one a feature."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    there = at < count
    here = tl.load(y + at, mask=there)
    step = tl.full((BLOCK,), length, here.dtype)
    unit = tl.full((BLOCK,), scale, here.dtype)
    if UNIT == 2:  # within a row in 32 bits: dividing 64 costs more than the memory
        unit = tl.load(units + ((start % features).to(tl.int32) + tl.arange(0, BLOCK)) % features)
    slope = tl.load(g + at, mask=there)
    lowest, highest = tl.load(low + at, mask=there), tl.load(high + at, mask=there)
    tl.store(out + at, ascended(here, slope, lowest, highest, unit, step, UNIT > 0, GRID), mask=there)


@triton.jit
def bytes_kernel(y, g, x, out, count, radius: tl.float64, length: tl.float64, BLOCK: tl.constexpr):
    """The same around bytes, whose box is no memory."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    here, true = tl.load(y + at, mask=there), tl.load(x + at, mask=there).to(tl.float32)
    step, eps = tl.full((BLOCK,), length, here.dtype), tl.full((BLOCK,), radius, tl.float32)
    low = tl.ceil(tl.maximum(true - eps, 0.0)).to(here.dtype)
    high = tl.floor(tl.minimum(true + eps, 255.0)).to(here.dtype)
    slope = tl.load(g + at, mask=there)
    tl.store(out + at, ascended(here, slope, low, high, step, step, False, True), mask=there)


def _alike(*tensors: Tensor) -> bool:
    first = tensors[0]
    return first.dtype in (torch.float32, torch.float64) and all(
        t.is_contiguous() and t.shape == first.shape and t.device == first.device for t in tensors
    )


def ascend(
    y: Tensor, gradient: Tensor, low: Tensor, high: Tensor, length: float, scale: float | Tensor | None = None,
    grid: bool = False, out: Tensor | None = None,
) -> Tensor | None:  # fmt: skip
    """``Linf.ascend`` of contiguous float32 or float64 batches ``[B, *S]``; None for others.

    Args:
        length: of the step, in the units of the space, or of ``scale``.
        scale: None, a number, or one a feature ``[*S]``.
        out: where the result goes, for instance the gradient's own memory; None for fresh memory.
    """
    same = all(t.dtype == y.dtype for t in (gradient, low, high))
    if not same or not _alike(y, gradient, low, high) or (out is not None and not _alike(y, out)) or y.numel() == 0:
        return None
    out = torch.empty_like(y) if out is None else out
    units = scale.detach() if isinstance(scale, Tensor) else y  # an alias, so that whoever watches torch sees it
    number, kind = (1.0, 0) if scale is None else (1.0, 2) if isinstance(scale, Tensor) else (float(scale), 1)
    ascend_kernel[(triton.cdiv(y.numel(), _BLOCK),)](
        y, gradient, low, high, units, out, y.numel(), y.numel() // len(y), float(length), number,
        kind, grid, _BLOCK, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def step_from_bytes(
    y: Tensor, gradient: Tensor, x: Tensor, eps: float, step: float, out: Tensor | None = None
) -> Tensor | None:
    """One step on the grid around uint8 images ``x`` of the full range, equal to the plain rule with their box.

    13 bytes an element pass through memory where :func:`ascend` in float32 needs 20.

    Args:
        y, gradient: float32 or float64 ``[B, *S]``.
        eps, step: radius and length in grey levels.
    """
    if x.dtype != torch.uint8 or y.dtype != gradient.dtype or not _alike(y, gradient, x) or y.numel() == 0:
        return None
    if out is not None and (out.dtype != y.dtype or not _alike(y, out)):
        return None
    out = torch.empty_like(y) if out is None else out
    bytes_kernel[(triton.cdiv(y.numel(), _BLOCK),)](
        y, gradient, x, out, y.numel(), float(math.floor(eps)), float(step), _BLOCK, enable_fp_fusion=False
    )
    return out


def trial(device: torch.device) -> None:
    """Raise unless the kernels give what the plain rule gives on ``device``.

    Off CUDA products are exact, since not every interpreter multiplies and adds with one rounding.
    """
    from adv_wrappers.core.budgets import Linf

    length, fine = (1.7, 1.0) if device.type == "cuda" else (1.75, 16.0)
    generator = torch.Generator().manual_seed(0)
    shape = (3, 7, 101)
    for dtype, grid in itertools.product((torch.float32, torch.float64), (False, True)):
        raw = torch.rand(4, *shape, generator=generator, dtype=torch.float64)
        x, y, low, high = ((raw[i] * 255).round() if grid else raw[i] for i in range(4))
        low, high = torch.minimum(torch.minimum(low, x), high), torch.maximum(torch.maximum(high, x), low)
        g = torch.randn(shape, generator=generator, dtype=torch.float64)
        g.view(-1)[::5], y.view(-1)[::7], g.view(-1)[3] = 0.0, -0.0, torch.nan
        x, y, low, high, g = (t.to(device, dtype) for t in (x, y, low, high, g))
        scales = raw[0, 0] * (raw[0, 1] > 0.1)
        scales = scales if fine == 1 else (scales * fine).round() / fine
        for scale in (None, 0.75, tuple(scales.flatten().tolist())):
            ball = Linf(2.3, scale)
            expected = ball.plainly(y, g, length, x, low, high, grid)
            got = ascend(y, g, low, high, length, ball.units(y), grid)
            assert got is not None
            triton_loader.same(f"the step of {dtype}", got, expected)
        if grid:
            box = Linf(2.3).box(x.byte().float(), torch.tensor(0.0).to(device), torch.tensor(255.0).to(device))
            low, high = box[0].ceil().to(dtype), box[1].floor().to(dtype)
            expected = Linf(2.3).plainly(y, g, length, x, low, high, True)
            got = step_from_bytes(y, g, x.byte(), 2.3, length)
            assert got is not None
            triton_loader.same(f"the step of {dtype} from bytes", got, expected)
