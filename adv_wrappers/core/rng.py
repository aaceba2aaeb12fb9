"""Counter-based randomness: a draw is a pure function of (seed, episode, t, stream, element), and of nothing else.

The mixer is splitmix64 (Steele, Lea and Flood 2014, figure 16). It is written for one key, a Python integer, which
takes a microsecond where numpy takes five, and once more for many: uint64 arrays on the host and int64 tensors on
devices, whose products wrap like unsigned ones and whose right shifts are masked. So draws do not depend on the number
of rows, on their order or on the device, and there is no generator to save.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from adv_wrappers.core.arrays import library

Host: TypeAlias = "int | NDArray[np.uint64]"  # keys whose draws are arrays
Numbers: TypeAlias = NDArray[Any]

_BLOCK = 1 << 15  # numbers that are made at once: with their scratch 512 KiB, within a core's cache
_ELSEWHERE = 1 << 22  # the same where memory is scarce and caches are none: 64 megabytes
_HOST = ("cpu",)  # kinds of device whose tensors numpy can draw, in half the time; torch does on the others
_FEW = 8  # numbers of one key that Python's integers make in less time than arrays
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_C1 = 0xBF58476D1CE4E5B9
_C2 = 0x94D049BB133111EB


def signed(value: int) -> int:
    """64 unsigned bits as a signed number, as torch's int64 holds them."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


# the constants as operands that numpy need not convert, and that torch can hold
_UNSIGNED = {value: np.array(value, np.uint64) for value in (*range(64), _GOLDEN, _C1, _C2)}
_SIGNED = {value: signed(value) for value in _UNSIGNED}


def _shift(z: Any, bits: int) -> Any:
    """A logical shift to the right; torch's keeps the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1) if isinstance(z, Tensor) else z >> _UNSIGNED[bits]


def _mix_(z: Any, kept: int = 64) -> Any:
    """splitmix64's finaliser, in place, on a uint64 array or an int64 tensor; the highest ``kept`` bits count."""
    constants: Any
    constants, shift = (_SIGNED, _shift) if isinstance(z, Tensor) else (_UNSIGNED, operator.rshift)
    z ^= shift(z, constants[30])
    z *= constants[_C1]
    z ^= shift(z, constants[27])
    z *= constants[_C2]
    if kept > 31:  # the last line changes no others
        z ^= shift(z, constants[31])
    return z


def fold(key: Any, data: Any) -> Any:
    """A new key from a key and an integer (or one integer a row): ``mix(key + golden * (data + 1))``.

    Python integers give a Python integer; an array in either place gives uint64 ``[B]``; a tensor int64 ``[B]``.
    """
    # splitmix64 of one key in Python's integers
    if isinstance(key, int) and isinstance(data, int):
        n = (key + _GOLDEN * (data + 1)) & _MASK
        n = ((n ^ (n >> 30)) * _C1) & _MASK
        n = ((n ^ (n >> 27)) * _C2) & _MASK
        return n ^ (n >> 31)
    # many keys at once, on their device or in numpy
    if isinstance(key, Tensor) or isinstance(data, Tensor):
        key = signed(key) if isinstance(key, int) else key
        step = signed((data + 1) * _GOLDEN) if isinstance(data, int) else (data + 1) * _SIGNED[_GOLDEN]
        return _mix_(key + step)
    if not isinstance(data, np.ndarray):
        if not isinstance(key, np.ndarray):  # numpy's integers
            return fold(int(key), int(data))
        return _mix_(key + np.array((int(data) + 1) * _GOLDEN & _MASK, np.uint64))
    key = key if isinstance(key, np.ndarray) else np.array(int(key), np.uint64)
    return _mix_(key + (data.astype(np.uint64) + _UNSIGNED[1]) * _UNSIGNED[_GOLDEN])


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
def uniform_of(key: Any) -> Any:
    """The one number in [0, 1) that a key stands for, with 53 bits (a float, float64 ``[B]`` or a float64 tensor)."""
    if isinstance(key, int):
        return (key >> 11) * 2.0**-53
    highest = _shift(key, 11)
    return (highest.double() if isinstance(highest, Tensor) else highest) * 2.0**-53


def as_tensor(key: Any, rows: int, device: torch.device) -> Tensor:
    """Keys as int64 ``[rows]`` on ``device``."""
    if isinstance(key, Tensor):
        return key
    array = np.array([key] * rows, np.uint64) if isinstance(key, int) else key.astype(np.uint64, copy=True)
    return torch.from_numpy(array.view(np.int64)).to(device)


@functools.lru_cache(maxsize=64)
def _counter(length: int, device: torch.device | None) -> Any:
    """Golden times 1, 2, ..., ``length``: a tensor, or an array where there is no device."""
    if device is None:
        return np.arange(1, length + 1, dtype=np.uint64) * _UNSIGNED[_GOLDEN]
    return torch.arange(1, length + 1, dtype=torch.int64, device=device) * _SIGNED[_GOLDEN]


@functools.lru_cache
def _scale(kept: int, kind: Any) -> Any:
    """What the lowest of so many bits is worth, as an operand that numpy need not convert."""
    return 2.0**-kept if isinstance(kind, torch.dtype) else np.array(2.0**-kept, kind)


def _draw(keys: Any, count: int, kept: int, kind: Any, start: int) -> Any:
    """Uniform numbers of ``kept`` bits in a dtype that holds them, ``[B, count]``, of uint64 or int64 keys ``[B]``.

    Large draws are made block by block: on the host, within a core's cache, that takes half the time.
    """
    device, block = (keys.device, _ELSEWHERE) if isinstance(keys, Tensor) else (None, _BLOCK)
    counter = _counter(1 << (start + count).bit_length(), device)[start : start + count]
    rows, scale = len(keys), _scale(kept, kind)

    def part(keys: Any, counter: Any) -> Any:
        z = _shift(_mix_(keys[:, None] + counter, kept), 64 - kept)
        if device is not None:
            return z.to(kind).mul_(scale)
        numbers = np.empty(z.shape, kind)
        numbers[...] = z.view(np.int64)  # signed numbers are converted faster
        numbers *= scale
        return numbers

    # block by block, where it is more than fits into the cache
    if rows * count <= block:
        return part(keys, counter)
    out = np.empty((rows, count), kind) if device is None else keys.new_empty((rows, count), dtype=kind)
    more = max(1, block // count)
    for i in range(0, rows, more):
        for j in range(0, count, block):
            out[i : i + more, j : j + block] = part(keys[i : i + more], counter[j : j + block])
    return out


@overload
def uniform(keys: Host, shape: tuple[int, ...], dtype: DTypeLike, start: int = 0) -> Numbers: ...
@overload
def uniform(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype, start: int = 0) -> Tensor: ...
def uniform(keys: Any, shape: tuple[int, ...], dtype: Any, start: int = 0) -> Any:
    """Uniform numbers in [0, 1), ``[B, *shape]``: 24 bits in float32, 53 in float64; equal to the bit on any device.

    Args:
        keys: one a row, an int64 tensor or a uint64 array ``[B]``; a Python integer is one row.
        shape: of a row.
        dtype: torch's for a tensor of keys, numpy's else; what is narrower than float32 is drawn in float32.
        start: so many elements of a row come before them, in a larger draw of which this is a part.

    Returns:
        A tensor on the device of the keys, or an array for keys that are none.
    """
    count = math.prod(shape)
    kind: Any  # torch's, or numpy's
    # numbers are drawn in numpy on the host, also for tensors
    if isinstance(keys, Tensor):
        kept, kind = (53, torch.float64) if dtype == torch.float64 else (24, torch.float32)
        if keys.device.type not in _HOST:
            return _draw(keys, count, kept, kind, start).view(len(keys), *shape)
        array = keys.numpy().view(np.uint64)
        return torch.from_numpy(uniform(array, shape, np.float64 if kept == 53 else np.float32, start))
    kept, kind = (53, np.float64) if dtype == np.float64 else (24, np.float32)
    # few numbers of one key in Python's integers
    if isinstance(keys, int) and count <= _FEW and not start:
        drop, scale = 64 - kept, 2.0**-kept
        few, n = [], keys
        for _ in range(count):  # as fold does, which would take a twentieth of a step of noise longer
            n += _GOLDEN
            z = n & _MASK
            z = ((z ^ (z >> 30)) * _C1) & _MASK
            z = ((z ^ (z >> 27)) * _C2) & _MASK
            few.append(((z ^ (z >> 31)) >> drop) * scale)
        return np.array(few, kind).reshape(1, *shape)
    keys = keys if isinstance(keys, np.ndarray) else np.array([keys], np.uint64)
    return _draw(keys, count, kept, kind, start).reshape(len(keys), *shape)


@overload
def signs(keys: Host, shape: tuple[int, ...], dtype: DTypeLike) -> Numbers: ...
@overload
def signs(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor: ...
def signs(keys: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Fair signs in {-1, +1}, ``[B, *shape]``; equal to the bit on any device. Arguments as of :func:`uniform`."""
    u = uniform(keys, shape, dtype)
    xp = library(u)
    drawn = xp.copysign(xp.ones_like(u), u - 0.5)
    return drawn.to(dtype) if isinstance(drawn, Tensor) else drawn


@overload
def normal(keys: Host, shape: tuple[int, ...], dtype: DTypeLike, start: int = 0) -> Numbers: ...
@overload
def normal(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype, start: int = 0) -> Tensor: ...
def normal(keys: Any, shape: tuple[int, ...], dtype: Any, start: int = 0) -> Any:
    """Standard normal numbers by inversion, ``[B, *shape]``; equal between devices up to the rounding of ``erfinv``.

    Arguments as of :func:`uniform`.
    """
    drawn = uniform(keys, shape, dtype, start)
    made = drawn if isinstance(drawn, Tensor) else torch.from_numpy(drawn)
    # the middles of the cells: never -1 or 1, whose inverse is infinite
    half = 2.0**-53 if made.dtype == torch.float64 else 2.0**-24
    made.mul_(2).add_(half - 1).erfinv_().mul_(2.0**0.5)
    return drawn


class Draws:
    """Random numbers of the keys of some rows; every call is a new draw.

    Args:
        key: one a row, as for :func:`uniform`.
        shape, dtype: of the numbers of a row.
    """

    _draws = 0

    def __init__(self, key: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.key = key
        self.shape = shape
        self.dtype = dtype

    def _next_key(self) -> Any:
        self._draws += 1
        return fold(self.key, self._draws)

    def uniform(self) -> Tensor:
        """Numbers in [0, 1), ``[B, *shape]``."""
        return uniform(self._next_key(), self.shape, self.dtype)  # type: ignore[no-any-return]

    def normal(self) -> Tensor:
        """Standard normal numbers."""
        return normal(self._next_key(), self.shape, self.dtype)  # type: ignore[no-any-return]

    def signs(self) -> Tensor:
        """Fair signs."""
        return signs(self._next_key(), self.shape, self.dtype)  # type: ignore[no-any-return]
