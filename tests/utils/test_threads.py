"""Forked workers keep torch to one thread; the process that forked them keeps its own number."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from adv_wrappers.utils.threads import one_thread, one_thread_in_workers
from tests.processes import context


def _count(pipe: Connection) -> None:
    before = torch.get_num_threads()
    one_thread_in_workers()
    pipe.send((before, torch.get_num_threads()))


def test_a_worker_gets_one_thread_and_the_parent_keeps_its_own() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        here, there = multiprocessing.Pipe()
        worker = context.Process(target=_count, args=(there,))
        worker.start()
        before, after = here.recv()
        worker.join()
        assert before >= 1 and after == 1
        one_thread_in_workers()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_one_thread_inside_and_as_many_as_before_outside() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with suppress(KeyError), one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
