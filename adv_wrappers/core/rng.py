"""Counter-based randomness: a draw is a pure function of (seed, episode, t, stream, element), and of nothing else.

The mixer is splitmix64 (Steele, Lea and Flood 2014, figure 16), written three times over the same numbers: for Python
integers (one key: 1 microsecond where numpy takes 5), for numpy uint64 (everything on the host: half the time of the
same in torch, which has no unsigned shifts) and for torch int64 (on other devices), whose products wrap like unsigned
ones and whose right shifts are masked. So draws do not depend on the number of rows, on their order or on the device,
and there is no generator to save.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

Host: TypeAlias = "int | NDArray[np.uint64]"  # keys whose draws are arrays
Numbers: TypeAlias = NDArray[Any]
_Writer: TypeAlias = Callable[[NDArray[np.uint64], Numbers], None]

_BLOCK = 1 << 15  # 64-bit draws that are made at once: with their scratch 512 KiB, within a core's cache
_ELSEWHERE = 1 << 22  # the same where memory is scarce and caches are none: 64 megabytes
_MASK = (1 << 64) - 1
_GOLDEN, _C1, _C2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_I64, _U64, _F32, _F64 = map(np.dtype, ("int64", "uint64", "float32", "float64"))
_KINDS = ((_F32, 24), (_F64, 53))  # of float64 or not: the type, and how many random bits it holds
_shift, _xor, _and, _plus, _times = np.right_shift, np.bitwise_xor, np.bitwise_and, np.add, np.multiply


def _u64(value: int) -> NDArray[np.uint64]:
    """An operand that numpy need not convert."""
    return np.array(value, _U64)


_U_GOLDEN, _U_C1, _U_C2, _U1, _U_TOP = map(_u64, (_GOLDEN, _C1, _C2, 1, 1 << 63))
_U_SHIFT = [_u64(bits) for bits in range(64)]
_U27, _U30, _U31 = _U_SHIFT[27], _U_SHIFT[30], _U_SHIFT[31]
_U_MINUS_ONE = np.array(-1.0).view(_U64)


_MULTIPLES = [np.arange(0, dtype=np.uint64)]  # of golden; grows
_HOST = ("cpu",)  # kinds of device whose tensors numpy can draw; torch does on the others


_FEW = 8  # draws of one key that Python's integers make in less time than arrays
_STEPS = [(i + 1) * _GOLDEN & _MASK for i in range(_FEW)]


def signed(value: int) -> int:
    """64 unsigned bits as a signed number, as torch's int64 holds them."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


_S_GOLDEN, _S_C1, _S_C2 = signed(_GOLDEN), signed(_C1), signed(_C2)


def _mix_(z: Tensor, kept: int = 64) -> Tensor:
    """splitmix64's finaliser, in place, on int64 read as 64 unsigned bits; the highest ``kept`` of them count."""
    s = (z >> 30).bitwise_and_((1 << 34) - 1)
    z.bitwise_xor_(s).mul_(_S_C1)
    torch.bitwise_right_shift(z, 27, out=s)
    z.bitwise_xor_(s.bitwise_and_((1 << 37) - 1)).mul_(_S_C2)
    if kept <= 31:  # what the last line would not change
        return z
    torch.bitwise_right_shift(z, 31, out=s)
    return z.bitwise_xor_(s.bitwise_and_((1 << 33) - 1))


def _host_mix_(z: NDArray[np.uint64], s: NDArray[np.uint64], kept: int = 64) -> NDArray[np.uint64]:
    """The same on arrays, with scratch memory of the same shape."""
    _shift(z, _U30, s)
    _xor(z, s, z)
    _times(z, _U_C1, z)
    _shift(z, _U27, s)
    _xor(z, s, z)
    _times(z, _U_C2, z)
    if kept > 31:
        _shift(z, _U31, s)
        _xor(z, s, z)
    return z


@functools.lru_cache(maxsize=256)
def _increment(data: int) -> int:
    """What folding an integer adds to a key of a tensor."""
    return signed((data + 1) * _GOLDEN)


def fold(key: Any, data: Any) -> Any:
    """A new key from a key and an integer (or one integer a row): ``mix(key + golden * (data + 1))``.

    Python integers give a Python integer; an array in either place gives uint64 ``[B]``; a tensor int64 ``[B]``.
    """
    if isinstance(key, int) and isinstance(data, int):
        n = (key + _GOLDEN * (data + 1)) & _MASK
        n = ((n ^ (n >> 30)) * _C1) & _MASK
        n = ((n ^ (n >> 27)) * _C2) & _MASK
        return n ^ (n >> 31)
    if isinstance(key, Tensor) or isinstance(data, Tensor):
        key = signed(key) if isinstance(key, int) else key
        data = _increment(data) if isinstance(data, int) else (data + 1) * _S_GOLDEN
        z = key + data
        if z.device.type not in _HOST:
            return _mix_(z)
        array: NDArray[np.uint64] = z.numpy().view(_U64)
        _host_mix_(array, np.empty_like(array))
        return z
    if not isinstance(data, np.ndarray):
        if not isinstance(key, np.ndarray):  # numpy's integers
            return fold(int(key), int(data))
        z = key + _u64((int(data) + 1) * _GOLDEN & _MASK)
        return _host_mix_(z, np.empty_like(z))
    key = key if isinstance(key, np.ndarray) else _u64(int(key))
    s = _plus(data.view(_U64) if data.dtype == _I64 else data.astype(_U64), _U1)
    _times(s, _U_GOLDEN, s)
    z = key + s
    return _host_mix_(z, s if s.shape == z.shape else np.empty_like(z))


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
    if isinstance(key, Tensor):
        return ((key >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
    return (key >> _U_SHIFT[11]).astype(np.float64) * 2.0**-53


def as_tensor(key: Any, rows: int, device: torch.device) -> Tensor:
    """Keys as int64 ``[rows]`` on ``device``."""
    if isinstance(key, Tensor):
        return key
    array = np.array([key] * rows, _U64) if isinstance(key, int) else key.astype(_U64, copy=True)
    return torch.from_numpy(array.view(_I64)).to(device)


@functools.lru_cache(maxsize=64)
def _counter(count: int, device: torch.device) -> Tensor:
    return torch.arange(1, count + 1, dtype=torch.int64, device=device) * _S_GOLDEN


@functools.lru_cache(maxsize=256)
def _host_counter(start: int, count: int) -> NDArray[np.uint64]:
    """Golden times start + 1, ..., start + count: a part of the longest that was ever asked for."""
    if start + count > len(_MULTIPLES[0]):
        _MULTIPLES[0] = np.arange(1, (1 << (start + count).bit_length()) + 1, dtype=np.uint64) * _U_GOLDEN
    return _MULTIPLES[0][start : start + count]


def _draw(
    keys: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    kept: int,
    finish: Callable[[Tensor], Tensor],
    start: int = 0,
) -> Tensor:
    """What ``finish`` makes, in place, of 64 random bits an element, ``[B, *shape]`` as numbers of ``dtype``.

    The highest ``kept`` bits are random; ``start`` leaves out as many elements of a row before the first.
    """
    count = math.prod(shape)
    counter = _counter(start + count, keys.device)[start:]
    if len(keys) * count <= _ELSEWHERE:
        return finish(_mix_(keys[:, None] + counter, kept)).to(dtype).view(len(keys), *shape)
    out, rows = keys.new_empty((len(keys), count), dtype=dtype), max(1, _ELSEWHERE // max(count, 1))
    for i in range(0, len(keys), rows):
        for j in range(0, count, _ELSEWHERE):
            z = _mix_(keys[i : i + rows, None] + counter[j : j + _ELSEWHERE], kept)
            out[i : i + rows, j : j + _ELSEWHERE] = finish(z)
    return out.view(len(keys), *shape)


def _host_draw(
    keys: Host, shape: tuple[int, ...], dtype: DTypeLike, kept: int, write: _Writer, start: int = 0
) -> Numbers:
    """The same of keys on the host; ``write`` may destroy the bits, and puts what it makes of them into an array.

    Large draws are made block by block: within a processor's cache that takes half the time for stacks of frames.
    """
    count = math.prod(shape)
    counter = _host_counter(start, count)
    if isinstance(keys, np.ndarray):
        rows, column = len(keys), keys[:, None]
    else:
        rows, column = 1, _u64(keys)
    if rows * count <= _BLOCK:
        z = _plus(counter, column)
        out: Numbers = np.empty(z.shape, dtype)
        write(_host_mix_(z, np.empty(z.shape, _U64), kept), out)
        return out.reshape(rows, *shape)
    out = np.empty((rows, count), dtype)
    column, together, scratch = column.reshape(-1, 1), max(1, _BLOCK // count), np.empty((2, _BLOCK), _U64)
    for i in range(0, rows, together):
        for j in range(0, count, _BLOCK):
            part = out[i : i + together, j : j + _BLOCK]
            z, s = scratch[:, : part.size].reshape(2, *part.shape)
            _plus(counter[j : j + _BLOCK], column[i : i + together], z)
            write(_host_mix_(z, s, kept), part)
    return out.reshape(rows, *shape)


def _write_bits(z: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    out[...] = z


@overload
def bits(keys: Host, shape: tuple[int, ...]) -> NDArray[np.uint64]: ...
@overload
def bits(keys: Tensor, shape: tuple[int, ...]) -> Tensor: ...
def bits(keys: Any, shape: tuple[int, ...]) -> Any:
    """64 random bits an element, ``[B, *shape]``: int64 from a tensor of keys ``[B]``, else uint64."""
    if not isinstance(keys, Tensor):
        return _host_draw(keys, shape, _U64, 64, _write_bits)
    if keys.device.type in _HOST:
        return torch.from_numpy(_host_draw(keys.numpy().view(_U64), shape, _U64, 64, _write_bits).view(_I64))
    return _draw(keys, shape, torch.int64, 64, lambda z: z)


def _uniform_writer(kept: int, kind: DTypeLike, width: float = 1.0, low: float = 0.0) -> _Writer:
    """Writes uniform numbers in [low, low + width), of so few bits that nothing is rounded."""
    drop, scale, shift = _U_SHIFT[64 - kept], np.array(width * 2.0**-kept, kind), np.array(low, kind)

    def write(z: NDArray[np.uint64], out: Numbers) -> None:
        _shift(z, drop, z)
        out[...] = z.view(_I64)  # signed numbers are converted faster
        _times(out, scale, out)
        if low:
            _plus(out, shift, out)

    return write


# of float64 or not; the normal numbers' lie in the middle of a cell: never -1 or 1, whose inverse is infinite
_UNIFORM = (_uniform_writer(24, _F32), _uniform_writer(53, _F64))
_CENTRED = tuple(_uniform_writer(k, kind, 2.0, 2.0**-k - 1.0) for k, kind in ((24, _F32), (53, _F64)))


_SCALES = ((40, 2.0**-24), (11, 2.0**-53))  # of float64 or not: the bits that are dropped, and what one is worth


def _few(key: int, count: int, drop: int, scale: float) -> list[float]:
    """Uniform numbers of one key, made of Python integers: up to eight of them that takes less time than arrays."""
    found = []
    for step in _STEPS[:count]:
        z = (key + step) & _MASK
        z = ((z ^ (z >> 30)) * _C1) & _MASK
        z = ((z ^ (z >> 27)) * _C2) & _MASK
        found.append(((z ^ (z >> 31)) >> drop) * scale)
    return found


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
    if not isinstance(keys, Tensor):
        wide = dtype == np.float64
        if isinstance(keys, int) and not start and (count := math.prod(shape)) <= _FEW:
            return np.array(_few(keys, count, *_SCALES[wide]), _KINDS[wide][0]).reshape(1, *shape)
        return _host_draw(keys, shape, *_KINDS[wide], _UNIFORM[wide], start)
    wide = dtype == torch.float64
    if keys.device.type in _HOST:
        return torch.from_numpy(_host_draw(keys.numpy().view(_U64), shape, *_KINDS[wide], _UNIFORM[wide], start))
    kept, kind = (53, torch.float64) if wide else (24, torch.float32)
    mask = (1 << kept) - 1
    drawn = _draw(keys, shape, kind, kept, lambda z: z.bitwise_right_shift_(64 - kept).bitwise_and_(mask), start)
    return drawn.mul_(2.0**-kept)


def _write_signs(z: NDArray[np.uint64], out: Numbers) -> None:
    _and(z, _U_TOP, z)
    _xor(z, _U_MINUS_ONE, z)  # the highest bit is the sign of a float64
    out[...] = z.view(_F64)


@overload
def signs(keys: Host, shape: tuple[int, ...], dtype: DTypeLike) -> Numbers: ...
@overload
def signs(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor: ...
def signs(keys: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Fair signs in {-1, +1}, ``[B, *shape]``; equal to the bit on any device. Arguments as of :func:`uniform`."""
    if not isinstance(keys, Tensor):
        return _host_draw(keys, shape, dtype, 1, _write_signs)
    if keys.device.type in _HOST:
        kind = _F64 if dtype == torch.float64 else _F32
        return torch.from_numpy(_host_draw(keys.numpy().view(_U64), shape, kind, 1, _write_signs)).to(dtype)
    return _draw(keys, shape, dtype, 1, lambda z: z.bitwise_right_shift_(63).bitwise_and_(1)).mul_(2).sub_(1)


@overload
def normal(keys: Host, shape: tuple[int, ...], dtype: DTypeLike, start: int = 0) -> Numbers: ...
@overload
def normal(keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype, start: int = 0) -> Tensor: ...
def normal(keys: Any, shape: tuple[int, ...], dtype: Any, start: int = 0) -> Any:
    """Standard normal numbers by inversion, ``[B, *shape]``; equal between devices up to the rounding of ``erfinv``.

    Arguments as of :func:`uniform`.
    """
    tensor = isinstance(keys, Tensor)
    wide = dtype == (torch.float64 if tensor else np.float64)
    if tensor and keys.device.type not in _HOST:
        half = 2.0**-53 if wide else 2.0**-24
        return uniform(keys, shape, dtype, start).mul_(2).sub_(1).add_(half).erfinv_().mul_(2.0**0.5)
    drawn = _host_draw(keys.numpy().view(_U64) if tensor else keys, shape, *_KINDS[wide], _CENTRED[wide], start)
    made = torch.from_numpy(drawn).erfinv_().mul_(2.0**0.5)  # in place, and on several threads where there are
    return made if tensor else drawn
