"""The perspective transform of four corners (daylight paper, equation 5), in double precision, in OpenCV's order.

Plain arithmetic on eight unknowns: its last bit depends on nothing but IEEE 754, so neither do the maps made of it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from adv_wrappers.core import keys
from adv_wrappers.core.errors import ValueRangeError

Corners = tuple[tuple[float, float], ...]  # moves of top left, top right, bottom right, bottom left: (right, down)


def scaled(corners: Corners, norm: float) -> Corners:
    """Every move times ``norm``."""
    return tuple((float(x) * norm, float(y) * norm) for x, y in corners)


@functools.lru_cache(maxsize=4096)
def random_corners(seed: int, norm: float) -> Corners:
    """Four directions and lengths that a key stands for, scaled so that the largest move is ``norm``."""
    draws = [keys.uniform_of(keys.fold(seed, i)) for i in range(8)]
    moves = [
        (r * math.cos(2 * math.pi * u), r * math.sin(2 * math.pi * u))
        for r, u in zip(draws[:4], draws[4:], strict=True)
    ]
    longest = max(draws[:4]) or 1.0
    return scaled(tuple(moves), norm / longest)


@functools.lru_cache(maxsize=256)
def inverse_of(corners: Corners, height: int, width: int) -> tuple[float, ...]:
    """Matrix from destination to source, 9 numbers row by row, of the picture whose corners make these moves.

    Corners that do not move make the identity, also of a picture that is too narrow to have four.

    Raises:
        ValueRangeError: if the corners end up in no convex quadrangle, which no perspective makes of a picture.
    """
    if not any(map(any, corners)):
        return 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0
    right, bottom = float(width - 1), float(height - 1)
    source = ((0.0, 0.0), (right, 0.0), (right, bottom), (0.0, bottom))
    target = tuple(
        (float(np.float32(x + dx)), float(np.float32(y + dy))) for (x, y), (dx, dy) in zip(source, corners, strict=True)
    )
    turns = [
        (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0])
        for a, b, c in zip(target, target[1:] + target[:1], target[2:] + target[:2], strict=True)
    ]
    if not all(turn > 0 for turn in turns):
        raise ValueRangeError(
            f"corners moved by {corners} form no convex quadrangle in a picture of {height} x {width} pixels: "
            f"they end up at {target}"
        )
    return _inverse(_forward(source, target))


def _forward(source: Corners, target: Corners) -> tuple[float, ...]:
    rows, right = [], []
    for (x, y), (u, _) in zip(source, target, strict=True):
        rows.append([x, y, 1.0, 0.0, 0.0, 0.0, -x * u, -y * u])
        right.append(u)
    for (x, y), (_, v) in zip(source, target, strict=True):
        rows.append([0.0, 0.0, 0.0, x, y, 1.0, -x * v, -y * v])
        right.append(v)
    return (*_solve(rows, right), 1.0)


def _solve(a: list[list[float]], b: list[float]) -> list[float]:
    """Gaussian elimination with the largest pivot of a column."""
    size = len(b)
    for i in range(size):
        k = max(range(i, size), key=lambda j: abs(a[j][i]))  # the first of equals
        a[i], a[k], b[i], b[k] = a[k], a[i], b[k], b[i]
        scale = -1 / a[i][i]
        for j in range(i + 1, size):
            factor = a[j][i] * scale
            for k in range(i + 1, size):
                a[j][k] += factor * a[i][k]
            b[j] += factor * b[i]
    for i in reversed(range(size)):
        rest = b[i]
        for k in range(i + 1, size):
            rest -= a[i][k] * b[k]
        b[i] = rest / a[i][i]
    return b


def _inverse(m: tuple[float, ...]) -> tuple[float, ...]:
    a, b, c, d, e, f, g, h, i = m
    det = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    s = 1 / det
    return (
        (e * i - f * h) * s, (c * h - b * i) * s, (b * f - c * e) * s,
        (f * g - d * i) * s, (a * i - c * g) * s, (c * d - a * f) * s,
        (d * h - e * g) * s, (b * g - a * h) * s, (a * e - b * d) * s,
    )  # fmt: skip
