"""Warm worker processes: spawned once, kept for the calls that follow, each with one thread of torch.

Importing torch and Gymnasium costs a new process seconds, so workers stay. From their first moment on they ignore an
interruption, which their parent deals with, and end when it does, whatever ends it. As everywhere with spawned
processes, a script that uses them has its calls under ``if __name__ == "__main__":``, and the functions that it hands
over are defined at the top of a module.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.util
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import ParamSpec, TypeVar

import torch

from adv_wrappers.errors import ValueRangeError, WorkerError

P = ParamSpec("P")
R = TypeVar("R")
START_METHOD = "spawn"  # of multiprocessing; "fork" would copy torch's thread pool without its threads
ON_DEMAND = 61  # workers of a pool that begin one by one, as they are needed; Windows takes no more
DEAD_WORKER = (
    "one of {} worker processes died: out of memory, killed, or, where none ever began, a script whose calls are not "
    'under `if __name__ == "__main__":`'
)
_pools: dict[int, ProcessPoolExecutor] = {}


class _Pool(ProcessPoolExecutor):
    """A pool whose processes are not interrupted while they import either, before :func:`_begin` is called."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        with _interruptions_wait():
            return super().submit(fn, *args, **kwargs)


@contextlib.contextmanager
def _interruptions_wait() -> Iterator[None]:
    """Let an interruption that comes meanwhile come afterwards, and begin processes that do not listen to any.

    A new process inherits the signals that the thread which begins it blocks, but for Windows, which has none. That
    does not keep them from this process, as another of its threads may get them.
    """
    came = list[int]()
    main = threading.current_thread() is threading.main_thread()  # the only one that an interruption is raised in
    handler = signal.getsignal(signal.SIGINT) if main else None
    if handler is not None:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    blocked = None if sys.platform == "win32" else signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if sys.platform != "win32" and blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            if came:
                signal.raise_signal(signal.SIGINT)


_lock = threading.Lock()


def check_env_workers(env_workers: int, vectors: int = 1) -> None:
    """Raise :class:`ValueRangeError` for more processes than can step environments at once.

    Args:
        env_workers: as for :func:`adv_wrappers.train_adversary`.
        vectors: how many vectors of environments are stepped, each by processes of its own.
    """
    if vectors * (env_workers - 1) > ON_DEMAND:
        raise ValueRangeError(
            f"env_workers={env_workers}: at most {ON_DEMAND // vectors + 1} step environments at once"
        )


def pickled(what: str, value: object) -> bytes:
    """A value as it is sent to a worker.

    Args:
        what: what it is, for the message.
        value: the value.

    Raises:
        WorkerError: for one that cannot be pickled, such as a lambda, or what a script defines inside of a function.
    """
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # a user's class may raise whatever it likes
        raise WorkerError(
            f"{what} cannot be sent to another process: {type(error).__name__}: {error}. Define functions and classes "
            f"at the top of a module, or use one process"
        ) from error


def pool_of(workers: int) -> ProcessPoolExecutor:
    """The processes of this number of workers, which are kept until :func:`discard`; :func:`warm_pool` sees to that."""
    with _lock:
        if workers not in _pools:
            _pools[workers] = _Pool(
                workers, multiprocessing.get_context(START_METHOD), _begin, (torch.get_default_dtype(),)
            )
            # a process that multiprocessing started waits at its end for its children: these are told to end before
            # that, and before their queue closes, which has priority 10
            multiprocessing.util.Finalize(None, _pools[workers].shutdown, exitpriority=100)
        return _pools[workers]


@contextlib.contextmanager
def warm_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """The processes of this number of workers, which are kept; after an interruption, or a death, new ones.

    Raises:
        WorkerError: where a worker died, as by a lack of memory.
    """
    pool = pool_of(workers)
    try:
        yield pool
    except BrokenExecutor as error:
        discard(workers, pool)
        raise WorkerError(DEAD_WORKER.format(workers)) from error
    except BaseException:
        discard(workers, pool)
        raise


def call_in_worker(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What a function returns, called in a worker: ``pool.submit(call_in_worker, function, ...)``.

    Raises:
        WorkerError: with the text of an error that cannot be sent to another process; others as they are.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise WorkerError(f"{type(error).__name__}: {error}") from None
        raise


def discard(workers: int, pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool now, whatever they are doing; futures that are not done fail."""
    with _lock:
        if _pools.get(workers) is pool:
            del _pools[workers]
    processes = list((getattr(pool, "_processes", None) or {}).values())
    # futures are not cancelled: nobody who waits for one would be told (concurrent.futures.wait), and the pool's own
    # threads would then disagree on which are left. They fail as soon as the pool sees that its processes are gone
    pool.shutdown(wait=False)
    for process in processes:
        process.terminate()


def discard_all() -> None:
    """End the processes of all pools now, whatever they are doing."""
    for workers, pool in [*_pools.items()]:
        discard(workers, pool)


def _begin(dtype: torch.dtype) -> None:
    """What a worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
