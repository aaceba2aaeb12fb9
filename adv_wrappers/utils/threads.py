"""How many threads torch computes on, in this process and in the workers that it forks."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on one thread inside.

    Small networks are slower on several, and on cores that are shared so are those for images: two threads took up to
    4 times the processor time of one under PGD on Pong, and 2.5 times as long.
    """
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


def one_thread_in_workers() -> None:
    """In a worker of ``multiprocessing`` (``AsyncVectorEnv``, ``SubprocVecEnv``), keep torch to one thread.

    There is a worker a core already; and a forked one inherits torch's pool of threads without the threads, so its
    first operation on several of them would never return.
    """
    if multiprocessing.parent_process() is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
