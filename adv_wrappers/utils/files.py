"""Files: what a user computed is written all at once, or not at all, in a folder that one process holds at a time."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from adv_wrappers.errors import OutputError

if TYPE_CHECKING:
    from filelock import BaseFileLock

P = ParamSpec("P")
R = TypeVar("R")
LOCK = ".lock"
_mine: ContextVar[frozenset[Path]] = ContextVar("folders that the calls around this one hold", default=frozenset())
_PROBE = 1 << 16  # bytes


def write(path: Path, data: bytes) -> None:
    """Write a file all at once: it has the old bytes or the new.

    Raises:
        OutputError: where it cannot be written, as on a full disk or in a read-only folder.
    """
    beside = _file(path).with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _removed_at_end(beside):
            _write_and_sync(beside, data)
            os.replace(beside, path)
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise OutputError(f"cannot write {path}: {_reason(error)}") from error


def write_json(path: Path, data: object, **how: Any) -> None:
    """Write a file of JSON as :func:`write` does; ``how`` are arguments of :func:`json.dumps`.

    Raises:
        OutputError: where it cannot be written.
        ValueError: for numbers that are not finite, unless ``how`` has ``allow_nan=True``.
    """
    write(path, (json.dumps(data, **{"indent": 1, "allow_nan": False, **how}) + "\n").encode())


def rename_file(path: Path, to: Path) -> None:
    """Give a file another name. Raises :class:`OutputError` where that cannot be done."""
    try:
        os.replace(path, to)
    except OSError as error:
        raise OutputError(f"cannot move {path} to {to}: {_reason(error)}") from error


@contextlib.contextmanager
def held(folder: str | Path | None) -> Iterator[None]:
    """Make a folder, try whether it can be written to, and hold it: no other process, and no other thread, gets it.

    What is called inside may hold it again. The lock ends with its process, whatever ends it (filelock). A folder that
    was made here and has nothing in it at the end is removed. None holds nothing.

    Raises:
        OutputError: for a folder that cannot be written to, and for one that is held, with the process that holds it.
    """
    if folder is None:
        yield
        return
    # what this call is inside of holds the folder already
    place = Path(os.path.abspath(folder))
    if place in _mine.get():
        yield
        return
    with _made(Path(folder)) as folder:
        lock = _lock(folder)
        token = _mine.set(_mine.get() | {place})
        try:
            _write_probe(folder)
            yield
        finally:
            _mine.reset(token)
            with contextlib.suppress(OSError):
                os.unlink(folder / LOCK)  # while it is held: whoever opened it meanwhile sees that it has gone
            lock.release()


def probe(folder: Path) -> None:
    """Raise :class:`OutputError` unless a small file can be written to a folder now, which need not be there yet."""
    with _made(folder):
        _write_probe(folder)


def probe_file(path: Path) -> None:
    """Raise :class:`OutputError` unless a file of this name can be written now; its folder need not be there yet."""
    probe(_file(path).parent)


def _file(path: Path) -> Path:
    if not path.name or os.path.isdir(path):
        raise OutputError(f"cannot write {str(path)!r}: expected the name of a file")
    return path


def make_folder(folder: Path) -> bool:
    """Make a folder and those above it where they are missing; whether it was. Raises :class:`OutputError`."""
    try:
        missing = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        if os.path.lexists(error.filename):  # a file
            raise _unwritable(folder, error) from error
        return make_folder(folder)  # it was there, and another process took it away before it was looked at
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise _unwritable(folder, error) from error
    return missing


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """A folder, which is there from now on; one that was made here and is empty at the end is removed."""
    missing = make_folder(folder)
    try:
        yield folder
    finally:
        if missing:
            with contextlib.suppress(OSError):
                folder.rmdir()


def holding(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose argument ``out``, a folder or None, is :func:`held` while it runs."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            out = signature.bind_partial(*args, **kwargs).arguments.get("out")
        except TypeError:  # the call itself says what is wrong with it
            out = None
        with held(out if isinstance(out, (str, Path)) else None):
            return function(*args, **kwargs)

    return call


def _lock(folder: Path) -> BaseFileLock:
    """The folder's lock, which says whose it is."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, blocking=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise OutputError(f"{_holder(folder / LOCK)}; wait for it, or give another folder") from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    with contextlib.suppress(OSError):  # on Windows, where none but the lock may write; a full disk is found elsewhere
        (folder / LOCK).write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}), encoding="utf-8")
    return lock


def _holder(path: Path) -> str:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        here = about["pid"] == os.getpid() and about["host"] == socket.gethostname()
        who = "another thread of this process" if here else f"process {about['pid']} on {about['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is being written, or is not one of ours
        who = "another process"
    return f"the folder {path.parent} is in use by {who}"


def _write_probe(folder: Path) -> None:
    path = folder / f".probe.{os.getpid()}"
    try:
        with _removed_at_end(path):
            _write_and_sync(path, bytes(_PROBE))
    except OSError as error:
        raise _unwritable(folder, error) from error


def _write_and_sync(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _removed_at_end(path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _unwritable(folder: Path, error: Exception) -> OutputError:
    return OutputError(f"cannot write to the folder {folder}: {_reason(error)}")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
