"""Reading files, which may be damaged or come from a stranger.

What is read is a regular file of at most ``max_bytes``, and so is what it unpacks to; JSON may have a sixteenth of
that. No code in it runs: readers of formats that can hold code say how they go without. Whatever is wrong with a file
is one sentence that names it (:func:`decoding`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import stat
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from adv_wrappers.errors import AdvWrappersError, CardError, TrustError, ValueRangeError
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.validation import Expected

if TYPE_CHECKING:
    from torch import Tensor

MAX_BYTES = 256 * 2**20


@contextlib.contextmanager
def decoding(where: object, error: type[AdvWrappersError] = CardError) -> Iterator[None]:
    """Make whatever goes wrong inside, while a file is decoded, one ``error`` that names the file.

    What would need trust stays a :class:`TrustError`.

    Args:
        where: the file, or the file and what is read from it, in words.
        error: class of the error.
    """
    try:
        yield
    except TrustError:
        raise
    except AdvWrappersError as found:
        raise error(f"cannot read {where}: {found!s:.500}") from found
    except KeyError as found:
        raise error(f"cannot read {where}: {found} is missing, or unknown") from found
    except OSError as found:
        raise error(f"cannot read {where}: {found.strerror or found}") from found
    except Exception as found:  # damaged files make readers raise errors of any kind
        raise error(f"cannot read {where}: {type(found).__name__}: {found!s:.300}") from found


def check_max_bytes(max_bytes: object) -> int | None:
    """``max_bytes`` if it is None or a positive integer; else :class:`CardError`."""
    if max_bytes is not None:
        integer("max_bytes", max_bytes, 1, error=CardError)
    return max_bytes  # type: ignore[return-value]  # it has just been checked


def most_numbers(max_bytes: int | None) -> int:
    """How many elements a space may have, and a layer's answer: numbers that files state and do not hold."""
    return max(max_bytes or 0, MAX_BYTES) // 64


def check_size(size: int, max_bytes: int | None) -> None:
    """:class:`CardError` for more bytes than are read; ``max_bytes`` None is 256 MiB."""
    most = max_bytes or MAX_BYTES
    if size > most:
        raise CardError(f"{size} bytes, at most {most} are read (max_bytes= raises that)")


def read_bytes(path: str | Path, max_bytes: int | None = None, error: type[AdvWrappersError] = CardError) -> bytes:
    """The bytes of a regular file; ``max_bytes`` None is 256 MiB.

    Raises:
        CardError: (or ``error``) for a file that is missing, longer, or none (a pipe, a device, a folder).
    """
    # not blocking, for a pipe without a writer is never opened otherwise
    opener = lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))  # noqa: E731
    with decoding(path, error), open(path, "rb", opener=opener) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise CardError("expected a regular file")
        check_size(about.st_size, max_bytes)
        return file.read(about.st_size)


def parse_json(
    text: bytes, where: object, max_bytes: int | None = None, error: type[AdvWrappersError] = CardError
) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CardError: (or ``error``) for other values, for text that is no JSON or longer than a sixteenth of
            ``max_bytes``, and for integers that no float can hold.
    """
    with decoding(where, error):
        check_size(16 * len(text), max_bytes)
        found = json.loads(text, parse_int=_integer)
        if not isinstance(found, dict):
            raise CardError(f"expected a JSON object, got {type(found).__name__}")
        return found


def _integer(text: str) -> int:
    float(found := int(text))  # raises for what has none
    return found


def read_json(
    path: str | Path, max_bytes: int | None = None, error: type[AdvWrappersError] = CardError
) -> dict[str, Any]:
    """The JSON object in a file; raises as :func:`read_bytes` and :func:`parse_json`."""
    return parse_json(read_bytes(path, max_bytes, error), path, max_bytes, error)


_RESULT = 2**36  # bytes: 4 GiB of JSON


def read_result(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file of results, which may be long; :class:`ValueRangeError` for anything else."""
    return read_json(path, _RESULT, ValueRangeError)


PLAIN = (bool, int, float, str, type(None))  # what JSON takes as it is
SHOWN = 4  # differences that an error names


def check_same(
    folder: Path, found: Mapping[str, object], expected: Mapping[str, object], what: str = "training"
) -> None:
    """Raise :class:`ValueRangeError`, naming what differs, unless a folder holds what the same call has left there.

    Args:
        folder: where the first was found.
        found: the description of the call in the folder.
        expected: the description of the present call, which is compared as JSON.
        what: what is described, for the message.
    """
    theirs, own = (dict(flat("", json.loads(json.dumps(part)))) for part in (found, expected))
    apart = sorted(key for key in {*theirs, *own} if theirs.get(key) != own.get(key))
    if apart:
        said = ", ".join(f"{key} {theirs.get(key)!r:.60} and not {own.get(key)!r:.60}" for key in apart[:SHOWN])
        said += f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
        raise ValueRangeError(f"{folder} holds another {what}, with {said}: give another folder, or what it has")


def json_form(what: str, value: Any) -> Any:
    """A value as a JSON file returns it, with lists in place of tuples.

    Args:
        what: keeps it, for the message.
        value: plain values, and lists, tuples and dictionaries of these.

    Raises:
        ValueRangeError: for values that JSON cannot hold, NaN and infinity included.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        refused = [name for name, part in flat("", value) if not _is_json(part)]
        raise ValueRangeError(f"{what} keeps what JSON can hold, not {', '.join(refused)}: {error}") from error


def _is_json(value: object) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return bool(json.dumps(value, allow_nan=False))
    return False


def flat(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The values of dictionaries in dictionaries, each with the keys that lead to it."""
    if isinstance(tree, dict) and all(isinstance(key, PLAIN) for key in tree):
        for key, value in tree.items():
            yield from flat(f"{name}.{key}".lstrip("."), value)
    else:
        yield name, tree


_expected = functools.cache(Expected)
_hints = functools.cache(functools.partial(get_type_hints, include_extras=True))


def value_of(kind: Any, data: Any, name: str = "it") -> Any:
    """What JSON holds as a value of an annotation: a dataclass, or tuples, lists, dictionaries and plain values.

    Args:
        kind: the annotation.
        data: what JSON holds.
        name: of the value, for the message.

    Raises:
        ValueRangeError: for data of another form, and a dataclass with a field missing.
        KeyError: for a field that a dataclass does not have.

    >>> value_of(tuple[float, ...], [1, 2.5])
    (1.0, 2.5)
    """
    # the annotation without what it adds, and the kinds of its parts
    declared = kind
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    origin, args = get_origin(kind), [one for one in get_args(kind) if one is not NoneType]
    if origin in (Union, UnionType):
        return None if data is None else value_of(args[0], data, name)
    # a dataclass by its fields
    if is_dataclass(kind) and isinstance(data, Mapping):
        kinds = _hints(cast(Any, kind))
        needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
        if missing := [key for key in needed if key not in data]:
            raise ValueRangeError(f"{cast(Any, kind).__name__} is missing {', '.join(missing)}")
        return cast(Any, kind)(**{key: value_of(kinds[key], part, key) for key, part in data.items()})
    # a list part by part, numbers all at once
    if origin in (tuple, list, Sequence) and isinstance(data, (tuple, list)):
        numbers = data and isinstance(data[0], (int, float))
        if numbers and all(part.kind in (int, float) for part in _expected(args[0]).parts):
            parts = [*_expected(kind).check(name, data)]  # in one go, as returns are many
        else:
            parts = [value_of(args[0], part, name) for part in data]
        return tuple(parts) if origin is tuple else parts
    if origin in (dict, Mapping) and isinstance(data, Mapping):
        return {key: value_of(args[1], part, name) for key, part in data.items()}
    if kind is Any or (is_typeddict(kind) and isinstance(data, Mapping)):
        return data
    if kind is Path and isinstance(data, str):
        return Path(data)
    return (_expected if origin is None else Expected)(declared).check(name, data)


def parse_tensors(data: bytes, where: object) -> dict[str, Tensor]:
    """Tensors in the format safetensors; :class:`CardError` for anything else."""
    from safetensors.torch import load  # imports torch, which commands that read options alone do without

    with decoding(where):
        return load(data)


def members(data: bytes, where: object, names: Collection[str], max_bytes: int | None = None) -> dict[str, bytes]:
    """Those of the named members that a zip has.

    Raises:
        CardError: for data that is no zip, is damaged, encrypted, or too large as :func:`check_zip` says.
    """
    with decoding(where), zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = [info for info in archive.infolist() if info.filename in names]
        _check_unpacked(found, max_bytes)
        return {info.filename: _member(archive, info) for info in found}


def check_zip(data: bytes, where: object, max_bytes: int | None = None) -> None:
    """Raise :class:`CardError` for a zip that unpacks to more than ``max_bytes``."""
    with decoding(where), zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_unpacked(archive.infolist(), max_bytes)


def _check_unpacked(infos: Collection[zipfile.ZipInfo], max_bytes: int | None) -> None:
    check_size(sum(info.file_size for info in infos), max_bytes)
    for info in infos:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others are unpacked without bound
            raise CardError(f"{info.filename!r:.80} is compressed by method {info.compress_type}, not by deflation")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as file:
        return file.read(info.file_size)  # and not read(): that inflates to any size and then compares it
