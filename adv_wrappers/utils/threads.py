"""Worker processes: a forked child inherits torch's thread pool without its threads, and waits for them for ever."""

from __future__ import annotations

import multiprocessing

import torch


def one_thread_in_workers() -> None:
    """In a worker of ``multiprocessing`` (``AsyncVectorEnv``, ``SubprocVecEnv``), keep torch to one thread.

    There is a worker a core already; and in a forked one the first operation on several threads would never return.
    """
    if multiprocessing.parent_process() is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
