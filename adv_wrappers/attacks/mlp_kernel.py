# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment,var-annotated"
# Kernels take what the compiler makes of them; tuples grow in loops that are unrolled.
"""Projected gradient ascent on a small network with all its steps in one kernel; :mod:`.mlp_triton` launches it.

A program holds a tile of rows, as columns: a layer is ``W x`` of blocks ``[32, ROWS]``. Observations, activations and
gradients stay in registers for all steps, weights in shared memory, where all threads of a warp read the same number of
``W`` or of its transpose, so that neither way suffers bank conflicts. Blocks of 32 keep the operands of a product in
registers; whole layers spill.
"""

from __future__ import annotations

import triton
import triton.language as tl

from adv_wrappers.core.balls_triton import ascended


@triton.jit
def curved(x, TANH: tl.constexpr):
    """Tanh or ReLU. Tanh to 2e-7 of itself: near zero, where the formula cancels, an odd polynomial fitted to it."""
    if TANH:
        size = tl.abs(x)
        e = tl.exp(-2.0 * size)
        far = (1.0 - e) / (1.0 + e)
        s = x * x
        p = -0.33333318 + s * (0.13332586 + s * (-0.05385231 + s * (0.02107167 - s * 0.00627423)))
        return tl.where(size < 0.55, x + x * s * p, tl.where(x < 0, -far, far))
    return tl.maximum(x, 0.0)


@triton.jit
def block(w, i, j, OUT: tl.constexpr, IN: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr):
    """Block ``[OB, IB]`` number (i, j) of a weight ``[OUT, IN]``, zeros beyond it."""
    row, column = i * OB + tl.arange(0, OB)[:, None], j * IB + tl.arange(0, IB)[None, :]
    return tl.load(w + row * IN + column, mask=(row < OUT) & (column < IN), other=0.0)


@triton.jit
def forward(
    xs, w, b, OUT: tl.constexpr, IN: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr, ROWS: tl.constexpr,
    CURVED: tl.constexpr, TANH: tl.constexpr,
):  # fmt: skip
    """``W x + b``, and the curve after it where there is one, as blocks."""
    ys = ()
    for i in tl.static_range((OUT + OB - 1) // OB):
        at = i * OB + tl.arange(0, OB)
        y = tl.load(b + at, mask=at < OUT, other=0.0)[:, None] + tl.zeros((OB, ROWS), tl.float32)
        for j in tl.static_range((IN + IB - 1) // IB):
            y = tl.dot(block(w, i, j, OUT, IN, OB, IB), xs[j], y, input_precision="ieee")
        ys += (curved(y, TANH) if CURVED else y,)
    return ys


@triton.jit
def backward(
    gs, hs, w, OUT: tl.constexpr, IN: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr, ROWS: tl.constexpr,
    CURVED: tl.constexpr, TANH: tl.constexpr,
):  # fmt: skip
    """``W^T g``, and back through the curve that gave ``hs`` where there was one."""
    ys = ()
    for j in tl.static_range((IN + IB - 1) // IB):
        y = tl.zeros((IB, ROWS), tl.float32)
        for i in tl.static_range((OUT + OB - 1) // OB):
            y = tl.dot(tl.trans(block(w, i, j, OUT, IN, OB, IB)), gs[i], y, input_precision="ieee")
        if CURVED:
            y = y * (1.0 - hs[j] * hs[j]) if TANH else tl.where(hs[j] > 0, y, 0.0)
        ys += (y,)
    return ys


@triton.jit
def slope_of(params, target, action, MARGIN: tl.constexpr, TOWARD: tl.constexpr):
    """Gradient of the objective at ``params``, which are minus infinity where there is no action."""
    hot = action == target
    if MARGIN:
        raised = action == tl.argmax(tl.where(hot, float("-inf"), params), 0)[None, :]
        slope = raised.to(tl.float32) - hot.to(tl.float32)
    else:
        e = tl.exp(params - tl.max(params, 0)[None, :])
        slope = e / tl.sum(e, 0)[None, :] - hot.to(tl.float32)
    return slope * -1.0 if TOWARD else slope


@triton.jit
def pgd_kernel(
    start, low, high, target, out, units, mean, std, w1, b1, w2, b2, w3, b3, w4, b4, rows, steps,
    length: tl.float64, scale: tl.float64, clip: tl.float64,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, H3: tl.constexpr, A: tl.constexpr,
    BD: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr, B3: tl.constexpr, BA: tl.constexpr,
    TANH: tl.constexpr, NORM: tl.constexpr, MEAN: tl.constexpr, STD: tl.constexpr,
    UNIT: tl.constexpr, GRID: tl.constexpr, MARGIN: tl.constexpr, TOWARD: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Widths of layers (0 for none) and of their blocks; ``NORM``: 0 without Normalize, 1 with, 2 with its clip."""
    row, action = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[None, :], tl.arange(0, BA)[:, None]
    wanted = tl.load(target + row, mask=row < rows, other=0).to(tl.int32)
    step, edge = tl.full((BD, 1), length, tl.float32), tl.full((1, 1), clip, tl.float32)
    ys, lows, highs = (), (), ()
    for i in tl.static_range((D + BD - 1) // BD):
        feature = i * BD + tl.arange(0, BD)[:, None]
        at, inside = row.to(tl.int64) * D + feature, (row < rows) & (feature < D)
        ys += (tl.load(start + at, mask=inside, other=0.0),)
        lows += (tl.load(low + at, mask=inside, other=0.0),)
        highs += (tl.load(high + at, mask=inside, other=0.0),)
    for _ in range(steps):
        seen, xs = (), ()
        for i in tl.static_range((D + BD - 1) // BD):
            feature = i * BD + tl.arange(0, BD)[:, None]
            x = ys[i]
            if NORM > 0:
                middle = tl.load(mean + feature * MEAN, mask=feature < D, other=0.0)
                x = tl.div_rn(x - middle, tl.load(std + feature * STD, mask=feature < D, other=1.0))
            seen += (x,)
            xs += (tl.minimum(tl.maximum(x, -edge), edge) if NORM == 2 else x,)
        h1 = forward(xs, w1, b1, H1, D, B1, BD, ROWS, True, TANH)
        if H3 > 0:
            h2 = forward(h1, w2, b2, H2, H1, B2, B1, ROWS, True, TANH)
            h3 = forward(h2, w3, b3, H3, H2, B3, B2, ROWS, True, TANH)
            params = forward(h3, w4, b4, A, H3, BA, B3, ROWS, False, TANH)[0]
        elif H2 > 0:
            h2 = forward(h1, w2, b2, H2, H1, B2, B1, ROWS, True, TANH)
            params = forward(h2, w4, b4, A, H2, BA, B2, ROWS, False, TANH)[0]
        else:
            params = forward(h1, w4, b4, A, H1, BA, B1, ROWS, False, TANH)[0]
        g = (slope_of(tl.where(action < A, params, float("-inf")), wanted, action, MARGIN, TOWARD),)
        if H3 > 0:
            g = backward(g, h3, w4, A, H3, BA, B3, ROWS, True, TANH)
            g = backward(g, h2, w3, H3, H2, B3, B2, ROWS, True, TANH)
            g = backward(g, h1, w2, H2, H1, B2, B1, ROWS, True, TANH)
        elif H2 > 0:
            g = backward(g, h2, w4, A, H2, BA, B2, ROWS, True, TANH)
            g = backward(g, h1, w2, H2, H1, B2, B1, ROWS, True, TANH)
        else:
            g = backward(g, h1, w4, A, H1, BA, B1, ROWS, True, TANH)
        g = backward(g, g, w1, H1, D, B1, BD, ROWS, False, TANH)
        moved = ()
        for i in tl.static_range((D + BD - 1) // BD):
            feature = i * BD + tl.arange(0, BD)[:, None]
            slope, unit = g[i], tl.full((BD, 1), scale, tl.float32)
            if NORM == 2:
                slope = tl.where((seen[i] <= -edge) | (seen[i] >= edge), 0.0, slope)
            if NORM > 0:
                slope = slope / tl.load(std + feature * STD, mask=feature < D, other=1.0)
            if UNIT == 2:
                unit = tl.load(units + feature, mask=feature < D, other=0.0)
            moved += (ascended(ys[i], slope, lows[i], highs[i], unit, step, UNIT > 0, GRID),)
        ys = moved
    for i in tl.static_range((D + BD - 1) // BD):
        feature = i * BD + tl.arange(0, BD)[:, None]
        tl.store(out + row.to(tl.int64) * D + feature, ys[i], mask=(row < rows) & (feature < D))
