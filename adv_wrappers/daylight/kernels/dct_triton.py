# mypy: allow-untyped-decorators, disable-error-code="assignment,misc"
# Triton's tuples grow in loops that are unrolled; to mypy they stay what they begin as.
"""8 x 8 blocks through the cosine transform, the quantiser and back as one Triton kernel: the twin of ``dct``.

A byte is read once and written once. Eight lanes share a block: each has a row of it, then a column, then a row again,
and between the passes they exchange their values.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.daylight.jpeg import BITS, COSINES, KEPT, quantisers

_COSINES = tl.constexpr(COSINES)
_SHORT, _LONG = (
    tl.constexpr(BITS - KEPT),
    tl.constexpr(BITS + KEPT),
)  # shifts after a pass
_LAST = tl.constexpr(BITS + KEPT + 3)
# Grey levels are coded from -128 on, which only the sum of a row sees.
_LEVEL_IN, _LEVEL_OUT = tl.constexpr(-128 * 8 << BITS), tl.constexpr(128 << BITS + KEPT + 3)
_ONE = tl.constexpr(1)  # the interpreter shifts no plain integer by a constexpr
_WHOLE = tl.constexpr(12582912.0)  # 1.5 * 2^23: a float of this size has no fraction, and its last bits are an integer
_PATTERN = tl.constexpr(0x4B400000)  # its bits

_LANES = 128  # of a program


# int32 holds every sum: at most 2^28 on the way there, and 2^29 on the way back, where quantising by 255 has moved
# every coefficient by up to 128.
@triton.jit
def _forward(v, ADD: tl.constexpr, SHIFT: tl.constexpr):  # type: ignore[no-untyped-def]
    """The cosine transform of eight values; even frequencies see sums from both ends, odd ones differences."""
    sums, differences, out = (), (), ()
    for i in tl.static_range(4):
        sums += (v[i] + v[7 - i],)
        differences += (v[i] - v[7 - i],)
    # even frequencies fold once more
    a, b = sums[0] + sums[3], sums[1] + sums[2]
    c, d = sums[0] - sums[3], sums[1] - sums[2]
    half: tl.constexpr = _ONE << SHIFT - 1
    # one frequency after the other, rounded by half of what is shifted out
    for u in tl.static_range(8):
        if u == 0:
            y = (a + b) * _COSINES[0][0] + (half + ADD)
        elif u == 4:
            y = (a - b) * _COSINES[4][0] + half
        elif u % 2 == 0:
            y = c * _COSINES[u][0] + d * _COSINES[u][1] + half
        else:
            y = differences[0] * _COSINES[u][0] + half
            for i in tl.static_range(1, 4):
                y += differences[i] * _COSINES[u][i]
        out += (y >> SHIFT,)
    return out


@triton.jit
def _inverse(v, ADD: tl.constexpr, SHIFT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Eight values from their cosine transform, which is the transposed product."""
    first, last = (), ()
    half: tl.constexpr = _ONE << SHIFT - 1
    a = (v[0] + v[4]) * _COSINES[0][0] + (half + ADD)
    b = (v[0] - v[4]) * _COSINES[0][0] + (half + ADD)
    for i in tl.static_range(4):
        even = (a if i % 3 == 0 else b) + (v[2] * _COSINES[2][i] + v[6] * _COSINES[6][i])
        odd = v[1] * _COSINES[1][i]
        for u in tl.static_range(3, 8, 2):
            odd += v[u] * _COSINES[u][i]
        first += ((even + odd) >> SHIFT,)
        last = ((even - odd) >> SHIFT,) + last  # noqa: RUF005 - Triton has no starred expressions
    return first + last


@triton.jit
def requantised(c, inverse, step):  # type: ignore[no-untyped-def]
    """Coefficients, 8 times as large, as their rounded quotient times the step.

    Float additions convert between integers and floats and round, since a GPU has few units that do either.
    """
    c = (c + _PATTERN).to(tl.float32, bitcast=True) - _WHOLE
    return (tl.fma(c, inverse, _WHOLE).to(tl.int32, bitcast=True) - _PATTERN) * step


@triton.jit
def _transposed(v, LANES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Value ``i`` of lane ``j`` of a block's eight becomes value ``j`` of lane ``i``."""
    evens = tl.join(tl.join(v[0], v[4]), tl.join(v[2], v[6]))
    odds = tl.join(tl.join(v[1], v[5]), tl.join(v[3], v[7]))
    block = tl.reshape(tl.join(evens, odds), (LANES // 8, 8, 8))
    evens, odds = tl.split(tl.reshape(tl.permute(block, (0, 2, 1)), (LANES, 2, 2, 2)))
    a, c = tl.split(evens)
    b, d = tl.split(odds)
    a, c, b, d = tl.split(a), tl.split(c), tl.split(b), tl.split(d)
    return a[0], b[0], c[0], d[0], a[1], b[1], c[1], d[1]


@triton.jit(do_not_specialize=["count", "height", "width"])
def blocks_kernel(x, out, table, count, height, width, INNER: tl.constexpr, LANES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Planes ``[N, H, W, INNER]``, which may be changed in place: no block reads another one's pixels."""
    # which row of which block of which plane this lane has
    lane = tl.arange(0, LANES) % 8
    at = tl.program_id(0) * (LANES // 8) + tl.arange(0, LANES) // 8
    there, at = at < count, tl.minimum(at, count - 1)
    inner, at = at % INNER, at // INNER
    down, across = (height + 7) // 8, (width + 7) // 8
    column, at = at % across * 8, at // across
    row, plane = at % down * 8 + lane, (at // down).to(tl.int64)
    start = plane * height * width * INNER + inner

    # the row, whose last pixel is repeated beyond the edge; transformed by rows, then by columns
    line = x + start + tl.minimum(row, height - 1).to(tl.int64) * width * INNER
    v = ()
    for j in tl.static_range(8):
        v += (tl.load(line + tl.minimum(column + j, width - 1) * INNER).to(tl.int32),)
    v = _forward(_transposed(_forward(v, _LEVEL_IN, _SHORT), LANES), 0, _LONG)
    # quantised and back
    kept = ()
    for i in tl.static_range(8):
        step = tl.load(table + i * 8 + lane)
        kept += (requantised(v[i], tl.load(table + 64 + i * 8 + lane).to(tl.float32, bitcast=True), step),)
    # the inverse, columns and rows, and only what lies in the picture is written
    v = _inverse(_transposed(_inverse(kept, 0, _SHORT), LANES), _LEVEL_OUT, _LAST)
    line = out + start + row.to(tl.int64) * width * INNER + column * INNER
    there &= row < height
    for j in tl.static_range(8):
        inside = there & (column + j < width)
        tl.store(line + j * INNER, tl.minimum(tl.maximum(v[j], 0), 255).to(tl.uint8), mask=inside)


@functools.lru_cache(maxsize=256)
def _table(quality: int, chroma: bool, device: torch.device) -> Tensor:
    """Steps, and the bits of their float32 inverse for coefficients 8 times as large, int32 ``[2, 8, 8]``.

    A nudge of 2^-16 lifts halves over the half, also after the rounding of float32, and no other quotient: the next
    lies 1 out of 8 steps from a half, and a coefficient is at most 2^13.
    """
    steps = quantisers(quality, chroma)
    inverse = ((1 + 2.0**-16) / (8 * steps.to(torch.float64))).to(torch.float32)
    return torch.stack([steps.to(torch.int32), inverse.view(torch.int32)]).to(device)


def through(planes: Tensor, out: Tensor, shape: tuple[int, int, int, int], quality: int, chroma: bool = False) -> None:
    """Grey pictures as they come back from quantised coefficients.

    Args:
        planes: contiguous uint8, of which the first ``N * H * W * K`` are read.
        out: where the result goes, ``planes`` itself or other memory.
        shape: ``[N, H, W, K]`` of any size, every ``[n, :, :, k]`` a picture; edges are repeated.
        quality: 1 to 100.
        chroma: use the coarser table of the colour differences.
    """
    count, height, width, inner = shape
    count *= triton.cdiv(height, 8) * triton.cdiv(width, 8) * inner
    table = _table(quality, chroma, planes.device)
    blocks_kernel[(triton.cdiv(count, _LANES // 8),)](
        planes, out, table, count, height, width, inner, _LANES, num_warps=_LANES // 32, enable_fp_fusion=False
    )
