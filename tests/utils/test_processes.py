import concurrent.futures
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait

import pytest
import torch

from adv_wrappers.errors import ValueRangeError, WorkerError
from adv_wrappers.utils import processes
from adv_wrappers.utils.processes import check_env_workers, pickled, warm_pool
from tests.processes import context, python


def about_worker(_: int) -> tuple[int, int, torch.dtype]:
    return os.getpid(), torch.get_num_threads(), torch.get_default_dtype()


def blocked() -> bool:
    """Whether this thread has not listened to interruptions since it began."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_stay_and_have_one_thread():
    with warm_pool(1) as pool:
        first = pool.submit(about_worker, 0).result()
    with warm_pool(1) as pool:
        second = pool.submit(about_worker, 0).result()
        assert not blocked()
    assert first == second
    assert first[0] != os.getpid()
    assert first[1:] == (1, torch.float32)


def test_a_death_is_named_and_the_next_call_has_new_workers():
    with pytest.raises(WorkerError, match="one of 1 worker processes died"), warm_pool(1) as pool:
        pool.submit(die, 0).result()
    with warm_pool(1) as pool:
        assert pool.submit(about_worker, 0).result()[0] != os.getpid()


def test_an_error_leaves_no_process_behind():
    with pytest.raises(KeyboardInterrupt), warm_pool(1) as pool:
        pid = pool.submit(about_worker, 0).result()[0]
        worker = next(child for child in multiprocessing.active_children() if child.pid == pid)
        raise KeyboardInterrupt
    assert wait([worker.sentinel], 60)  # not join(): the pool's own thread may take the exit code at the same time
    assert 1 not in processes._pools


def test_who_waits_for_processes_that_are_ended_is_told():
    """Also of what has not begun yet, which a cancelled future does not tell."""
    pool = processes.pool_of(1)
    futures = [pool.submit(about_worker, n) for n in range(8)]
    processes.discard(1, pool)
    done = concurrent.futures.wait(futures, 60)
    assert not done.not_done and not any(future.cancelled() for future in futures)


@pytest.fixture
def interruptions():
    """SIGINT is Python's own, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interruption_waits_until_a_process_has_begun(interruptions, monkeypatch):
    """Here another thread gets the signal, which this one does not listen to meanwhile."""
    came = []

    def interrupt():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.raise_signal(signal.SIGINT)

    def adjust(pool):
        begin(pool)
        other = threading.Thread(target=interrupt)
        other.start()
        other.join()
        came.append(len(pool._processes))

    begin = processes._Pool._start_executor_manager_thread
    monkeypatch.setattr(processes._Pool, "_start_executor_manager_thread", adjust)
    processes.discard_all()
    with pytest.raises(KeyboardInterrupt), warm_pool(1) as pool:
        pool.submit(about_worker, 0)
        raise AssertionError("the interruption is lost")
    assert came and not blocked() and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def begin_worker(pipe):
    with warm_pool(1) as pool:
        pipe.send((*pool.submit(about_worker, 0).result(), pool.submit(blocked).result()))
        pipe.recv()


def test_spawned_workers_have_one_thread_and_end_with_a_parent_that_is_killed():
    here, there = context.Pipe()
    parent = context.Process(target=begin_worker, args=(there,))
    parent.start()
    pid, *about = here.recv()
    assert about == [1, torch.float32, True]
    descriptor = os.pidfd_open(pid)
    parent.kill()
    parent.join()
    with multiprocessing.connection.Connection(descriptor, writable=False) as ended:
        assert multiprocessing.connection.wait([ended], 60)  # readable once the process has ended


@pytest.mark.slow
def test_a_process_of_multiprocessing_ends_though_it_has_workers():
    """Such a process waits for its children before it ends."""
    code = "import os\nfrom adv_wrappers.utils.processes import warm_pool\n"
    code += "with warm_pool(1) as pool:\n    print(pool.submit(os.getpid).result() != os.getpid())\n"
    done = python(code, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(WorkerError, match=r"the environment cannot be sent to another process.*top of a module"):
        pickled("the environment", lambda: None)


def test_processes_that_step_environments():
    check_env_workers(62)
    check_env_workers(31, 2)
    with pytest.raises(ValueRangeError, match="env_workers=32: at most 31 step environments at once"):
        check_env_workers(32, 2)
