"""Counter-based randomness: a draw is a pure function of (seed, episode, t, stream, element), and of nothing else.

The mixer is splitmix64 (Steele, Lea and Flood 2014, figure 16), written three times over the same numbers: for Python
integers (one row: 1 microsecond where numpy takes 15), for numpy uint64 (vectors on the host) and for torch int64,
whose products wrap like unsigned ones and whose right shifts are masked. So draws do not depend on the number of rows,
on their order or on the device, and there is no generator to save.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Key: TypeAlias = Any  # int | NDArray[np.uint64] | Tensor(int64): one key, or one a row

_BLOCK = 1 << 15  # 64-bit draws that are made at once: with their scratch half a megabyte
_ELSEWHERE = 1 << 22  # the same where memory is scarce and caches are none: 64 megabytes
_MASK = (1 << 64) - 1
_GOLDEN, _C1, _C2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_U_GOLDEN, _U_C1, _U_C2 = np.uint64(_GOLDEN), np.uint64(_C1), np.uint64(_C2)
_U30, _U27, _U31 = np.uint64(30), np.uint64(27), np.uint64(31)


def signed(value: int) -> int:
    """64 unsigned bits as a signed number, as torch's int64 holds them."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


_S_GOLDEN, _S_C1, _S_C2 = signed(_GOLDEN), signed(_C1), signed(_C2)


def _mix_(z: Tensor) -> Tensor:
    """splitmix64's finaliser, in place, on int64 read as 64 unsigned bits."""
    s = (z >> 30).bitwise_and_((1 << 34) - 1)
    z.bitwise_xor_(s).mul_(_S_C1)
    torch.bitwise_right_shift(z, 27, out=s)
    z.bitwise_xor_(s.bitwise_and_((1 << 37) - 1)).mul_(_S_C2)
    torch.bitwise_right_shift(z, 31, out=s)
    return z.bitwise_xor_(s.bitwise_and_((1 << 33) - 1))


@functools.lru_cache(maxsize=256)
def _increment(data: int) -> int:
    """What folding an integer adds to a key of a tensor."""
    return signed((data + 1) * _GOLDEN)


def fold(key: Key, data: Any) -> Key:
    """A new key from a key and an integer (or one integer a row): ``mix(key + golden * (data + 1))``.

    Python integers give a Python integer; an array in either place gives uint64 ``[B]``; a tensor int64 ``[B]``.
    """
    if isinstance(key, int) and isinstance(data, int):
        z = (key + _GOLDEN * (data + 1)) & _MASK
        z = ((z ^ (z >> 30)) * _C1) & _MASK
        z = ((z ^ (z >> 27)) * _C2) & _MASK
        return z ^ (z >> 31)
    if isinstance(key, Tensor) or isinstance(data, Tensor):
        key = signed(key) if isinstance(key, int) else key
        data = _increment(data) if isinstance(data, int) else (data + 1) * _S_GOLDEN
        return _mix_(key + data)
    key = np.uint64(key) if isinstance(key, int) else key
    if isinstance(data, int):
        data = np.uint64(((data + 1) * _GOLDEN) & _MASK)
    else:
        data = (data.astype(np.uint64) + np.uint64(1)) * _U_GOLDEN
    z = key + data
    z = (z ^ (z >> _U30)) * _U_C1
    z = (z ^ (z >> _U27)) * _U_C2
    return z ^ (z >> _U31)


def root(seed: int) -> int:
    """The key of a row that was reset with ``seed``."""
    return fold(0x5EED, int(seed))  # type: ignore[no-any-return]


def roots(keys: list[int]) -> NDArray[np.uint64]:
    """Python keys as one uint64 array ``[B]``."""
    return np.array(keys, dtype=np.uint64)


@overload
def uniform_of(key: int) -> float: ...
@overload
def uniform_of(key: NDArray[np.uint64]) -> NDArray[np.float64]: ...
@overload
def uniform_of(key: Tensor) -> Tensor: ...
def uniform_of(key: Key) -> Any:
    """The one number in [0, 1) that a key stands for, with 53 bits (a float, float64 ``[B]`` or a float64 tensor)."""
    if isinstance(key, int):
        return (key >> 11) * 2.0**-53
    if isinstance(key, Tensor):
        return ((key >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
    return (key >> np.uint64(11)).astype(np.float64) * 2.0**-53


def as_tensor(key: Key, rows: int, device: torch.device) -> Tensor:
    """Keys as int64 ``[rows]`` on ``device``."""
    if isinstance(key, Tensor):
        return key
    if isinstance(key, int):
        return torch.tensor([signed(key)] * rows, dtype=torch.int64, device=device)
    return torch.from_numpy(key.astype(np.uint64, copy=True).view(np.int64)).to(device)


@functools.lru_cache(maxsize=64)
def _counter(count: int, device: torch.device) -> Tensor:
    return torch.arange(1, count + 1, dtype=torch.int64, device=device) * _S_GOLDEN


def _draw(
    keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype, finish: Callable[[Tensor], Tensor], start: int = 0
) -> Tensor:
    """What ``finish`` makes, in place, of 64 random bits an element, ``[B, *shape]`` as numbers of ``dtype``.

    ``start`` leaves out as many elements of a row before the first.

    Large draws are made block by block: within a processor's cache that takes half the time for stacks of frames.
    """
    count = math.prod(shape)
    counter = _counter(start + count, keys.device)[start:]
    block = _BLOCK if keys.device.type == "cpu" else _ELSEWHERE
    if len(keys) * count <= block:
        return finish(_mix_(keys[:, None] + counter)).to(dtype).view(len(keys), *shape)
    out, rows = keys.new_empty((len(keys), count), dtype=dtype), max(1, block // max(count, 1))
    for i in range(0, len(keys), rows):
        for j in range(0, count, block):
            out[i : i + rows, j : j + block] = finish(_mix_(keys[i : i + rows, None] + counter[j : j + block]))
    return out.view(len(keys), *shape)


def bits(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    """64 random bits an element: int64 ``[B, *shape]`` from int64 keys ``[B]``."""
    return _draw(keys, shape, torch.int64, lambda z: z)


def uniform(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype, start: int = 0) -> Tensor:
    """Uniform numbers in [0, 1), ``[B, *shape]``: 24 bits in float32, 53 in float64; equal to the bit on any device."""
    drop, scale = (11, 2.0**-53) if dtype == torch.float64 else (40, 2.0**-24)
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    mask = (1 << (64 - drop)) - 1
    return _draw(keys, shape, kind, lambda z: z.bitwise_right_shift_(drop).bitwise_and_(mask), start).mul_(scale)


def signs(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Fair signs in {-1, +1}, ``[B, *shape]``; equal to the bit on any device."""
    return _draw(keys, shape, dtype, lambda z: z.bitwise_right_shift_(63).bitwise_and_(1)).mul_(2).sub_(1)


def normal(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype, start: int = 0) -> Tensor:
    """Standard normal numbers by inversion, ``[B, *shape]``; equal between devices up to the rounding of ``erfinv``.

    ``start``: so many elements of a row come before them, in a larger draw of which this is a part.
    """
    # the middle of a cell: never -1 or 1, whose inverse is infinite
    half = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    return uniform(keys, shape, dtype, start).mul_(2).sub_(1).add_(half).erfinv_().mul_(2.0**0.5)
