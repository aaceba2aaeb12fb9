"""Reading untrusted files: every limit is checked before what it limits is allocated.

A file of a few kilobytes can claim gigabytes: by compression, by sizes that it only states, by nesting. Whatever is
read here is a regular file of at most ``max_bytes``, and so is what it unpacks to. JSON may have a
sixteenth of that, and so many values.
"""

from __future__ import annotations

import io
import json
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from adv_wrappers.errors import CardError
from adv_wrappers.utils.checks import is_integer

MAX_BYTES = 256 * 2**20
_RATIO = 200  # of what SB3 and torch write, nothing is compressed at all
_SMALL = 2**20  # what is no longer than this may be compressed as far as it goes
_HEADER, _CONTENTS = 2**20, 2**18  # of safetensors, and of a zip: some thousand names either
_VALUES = 500_000  # of JSON, counted by what is between them
_DIGITS = 308  # longer integers have no float
_DAMAGE = (
    OSError, LookupError, ValueError, TypeError, EOFError, RuntimeError, OverflowError, MemoryError, RecursionError,
    struct.error, zipfile.BadZipFile, zlib.error, SafetensorError,
)  # fmt: skip


def check_max_bytes(max_bytes: object) -> int | None:
    """``max_bytes`` if it is None or a positive integer; else :class:`CardError`."""
    if max_bytes is not None and not (is_integer(max_bytes) and max_bytes >= 1):
        raise CardError(f"max_bytes must be a positive integer or None, got {max_bytes!r:.40}")
    return max_bytes


def most_numbers(max_bytes: int | None) -> int:
    """How many elements a space may have, and a layer's size be: numbers that files state and do not hold."""
    return max(max_bytes or 0, MAX_BYTES) // 64


def read_bytes(path: str | Path, max_bytes: int | None = None) -> bytes:
    """The bytes of a regular file; ``max_bytes`` None is 256 MiB.

    Raises:
        CardError: for a file that is missing, longer, or none (a pipe, a device, a folder).
    """
    most = max_bytes or MAX_BYTES
    try:
        # not blocking, for a pipe without a writer is never opened otherwise
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise CardError(f"cannot read {path}: expected a regular file")
            if about.st_size > most:
                raise CardError(f"cannot read {path}: it has {about.st_size} bytes, {_limit(most)}")
            return file.read(most)
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, CardError):
            raise
        raise CardError(f"cannot read {path}: {error}") from error


def _what(error: Exception) -> str:
    return f"{error!s:.300}" if isinstance(error, CardError) else f"{type(error).__name__}: {error!s:.300}"


def _limit(most: int) -> str:
    return f"at most {most} are read (max_bytes= raises that)"


def parse_json(text: bytes, where: str | Path, max_bytes: int | None = None) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CardError: for other values, text that is no JSON, is longer than a sixteenth of ``max_bytes`` or has more than
            500 000 values, and integers that no float can hold.
    """
    most = (max_bytes or MAX_BYTES) // 16
    if len(text) > most:
        raise CardError(f"cannot read {where}: {len(text)} bytes of JSON, at most {most} are read, 1/16 of max_bytes=")
    if sum(text.count(mark) for mark in (b"[", b"{", b",")) > _VALUES:  # each takes some twenty times its text
        raise CardError(f"cannot read {where}: more than {_VALUES} values of JSON")
    try:
        found = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CardError(f"cannot read {where}: {_what(error)}") from error
    if not isinstance(found, dict):
        raise CardError(f"{where}: expected a JSON object, got {type(found).__name__}")
    return found


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def read_json(path: str | Path, max_bytes: int | None = None) -> dict[str, Any]:
    """The JSON object in a file; raises as :func:`read_bytes` and :func:`parse_json`."""
    return parse_json(read_bytes(path, max_bytes), path, max_bytes)


def parse_tensors(data: bytes, where: str | Path) -> dict[str, Tensor]:
    """Tensors in the format safetensors; :class:`CardError` for anything else."""
    if len(data) >= 8 and struct.unpack("<Q", data[:8])[0] > _HEADER:
        raise CardError(f"cannot read {where}: its header is longer than {_HEADER} bytes, or it is no safetensors file")
    try:
        return load(data)
    except _DAMAGE as error:
        raise CardError(f"cannot read {where}: {_what(error)}") from error


class _Capped(io.BytesIO):
    """Bytes of which a reader may ask for so many at once: a table of contents of millions of names is not read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.size, self.most = len(data), _CONTENTS

    def read(self, size: int | None = -1, /) -> bytes:
        left = self.size - self.tell()
        if (left if size is None or size < 0 else min(size, left)) > self.most:
            raise CardError(f"a table of contents of more than {self.most} bytes")
        return super().read(size)


def members(data: bytes, where: str | Path, names: Collection[str], max_bytes: int | None = None) -> dict[str, bytes]:
    """Those of the named members that a zip has.

    Raises:
        CardError: for data that is no zip, is damaged, encrypted, or too large as :func:`check_zip` says.
    """
    return _in_zip(data, where, max_bytes, names)


def check_zip(data: bytes, where: str | Path, max_bytes: int | None = None) -> None:
    """Raise :class:`CardError` for a zip that unpacks to more than ``max_bytes``.

    Unless ``max_bytes`` is given, no member may unpack to more than 200 times its size either.
    """
    _in_zip(data, where, max_bytes, None)


def _in_zip(data: bytes, where: str | Path, max_bytes: int | None, names: Collection[str] | None) -> dict[str, bytes]:
    try:
        capped = _Capped(data)
        with zipfile.ZipFile(capped) as archive:
            capped.most = capped.size
            found = [info for info in archive.infolist() if names is None or info.filename in names]
            _check(found, max_bytes)
            return {} if names is None else {info.filename: _member(archive, info) for info in found}
    except _DAMAGE as error:
        raise CardError(f"cannot read {where} as a zip: {_what(error)}") from error


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as file:
        return file.read(info.file_size)  # and not read(): that inflates to any size and then compares it


def _check(infos: list[zipfile.ZipInfo], max_bytes: int | None) -> None:
    most = max_bytes or MAX_BYTES
    total = sum(info.file_size for info in infos)
    if total > most:
        raise CardError(f"it unpacks to {total} bytes, {_limit(most)}")
    for info in infos:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others are unpacked without bound
            raise CardError(f"{info.filename!r:.80} is compressed by method {info.compress_type}, not by deflation")
        if max_bytes is None and info.file_size > max(_RATIO * info.compress_size, _SMALL):
            raise CardError(
                f"{info.filename!r:.80} unpacks from {info.compress_size} to {info.file_size} bytes, "
                f"at most {_RATIO}-fold is read (max_bytes= of load_victim allows more)"
            )


_OWN_MODULES = ("adv_wrappers", "ale_py", "gymnasium")  # which are imported anyway
_NAME_ENVIRONMENTS = ("env", "env_id", "make", "entry_point")  # keyword arguments of ids that are made of others


def named_code(id: str, kwargs: object) -> str | None:
    """The module or function that making an environment would import, by its id and keyword arguments; None for none.

    Gymnasium imports what stands before the colon of an id, and ``adv/noise-v0`` has another id in ``env``.

    Args:
        id: of the environment; "" for the keyword arguments alone.
        kwargs: dictionaries, lists and values.

    >>> named_code("somemodule:CartPole-v1", {}), named_code("adv/noise-v0", {"env": "os:system"})
    ('somemodule:CartPole-v1', 'os:system')
    >>> named_code("CartPole-v1", {"max_episode_steps": 50})
    """
    if ":" in id and id.partition(":")[0].partition(".")[0] not in _OWN_MODULES:
        return id
    parts = kwargs.items() if isinstance(kwargs, Mapping) else enumerate(kwargs if isinstance(kwargs, list) else ())
    for name, part in parts:
        own = part if isinstance(part, str) and name in _NAME_ENVIRONMENTS else ""
        if (found := named_code(own, part)) is not None:
            return found
    return None
