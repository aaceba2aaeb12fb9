"""Executors: who plays what is to be played. This process, warm processes, or (for plans) a Ray cluster.

A task is played whole by one player, which a setup opens where it is played and which stays open for the tasks that
follow: a block of an evaluation, a cell of a plan, a checkpoint of a training.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from pickle import loads
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from adv_wrappers.errors import SimulationError, WorkerError
from adv_wrappers.utils.processes import DEAD_WORKER, call_in_worker, discard, pool_of
from adv_wrappers.utils.threads import one_thread

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
IN_FLIGHT = 2  # tasks a process, so that it has the next one at hand
MOST_TRIES = 3  # of a task whose process dies
Tell = Callable[[int], None]  # with the number of finished episodes of a task, where this process plays it


class Plays(Protocol[T_contra, R_co]):
    """A player: it has environments open, in which it plays tasks; those for other processes can be pickled."""

    def play(self, task: T_contra, tell: Tell | None = None, /) -> R_co:
        """What comes out of a task."""

    def close(self) -> None:
        """Close the environments."""


class Setup(Protocol[T_contra, R_co]):
    """What opens a player, here or in another process."""

    def open(self) -> Plays[T_contra, R_co]:
        """The player."""

    def pickled(self) -> bytes:
        """The setup as it is sent to a process; raises :class:`WorkerError` that names what cannot be."""


@dataclass(frozen=True)
class Played(Generic[T, R]):
    """What became of a task.

    Attributes:
        task: the task.
        result: what it returned, or None.
        error: what it raised, or None.
    """

    task: T
    result: R | None = None
    error: Exception | None = None

    def value(self) -> R:
        """The result; raises the error."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # a task may return None


@runtime_checkable
class Executor(Protocol[T, R]):
    """Plays tasks that are handed over one by one, and hands back what became of them as they end."""

    def free(self) -> int:
        """How many more tasks may be handed over now."""

    def submit(self, task: T, tell: Tell | None = None) -> None:
        """Hand over a task; ``tell`` is called where this process plays it."""

    def collect(self, seconds: float | None) -> list[Played[T, R]]:
        """What has ended; waits so long for at least one, where any is under way; None waits for it."""

    def close(self) -> None:
        """Let go of everything; tasks that are under way are lost."""


class ThisProcess(Generic[T, R]):
    """Tasks that are played here, one at a time, when they are collected.

    An error is raised as it is, but for a simulation that diverges, which other tasks need not.

    Args:
        player: plays them; whoever opened it closes it.
    """

    def __init__(self, player: Plays[T, R]) -> None:
        self._player = player
        self._waiting: list[tuple[T, Tell | None]] = []

    def free(self) -> int:
        return 1 - len(self._waiting)

    def submit(self, task: T, tell: Tell | None = None) -> None:
        self._waiting.append((task, tell))

    def collect(self, seconds: float | None) -> list[Played[T, R]]:
        if not self._waiting:
            return []
        task, tell = self._waiting.pop(0)
        with one_thread():
            try:
                return [Played(task, self._player.play(task, tell))]
            except SimulationError as error:
                return [Played(task, error=error)]

    def close(self) -> None:
        self._waiting.clear()


_open: dict[str, Plays[Any, Any]] = {}  # of a worker: its player, by the file of its setup


def _play_in_worker(path: str, task: Any) -> Any:
    """A task in a worker process, whose player stays open for those that follow; None only opens the player."""
    if path not in _open:
        while _open:
            _open.popitem()[1].close()
        _open[path] = loads(Path(path).read_bytes()).open()
    if task is None:
        return None
    with one_thread():
        return _open[path].play(task)


class Processes(Generic[T, R]):
    """Tasks that are played by warm processes (:mod:`adv_wrappers.utils.processes`).

    A process that dies takes the others of its pool along: the tasks that were under way are then played one at a time,
    so that the one that kills its process is known. After so many deaths it ends with an error.

    Args:
        workers: the number of processes.
        setup: opens a player in each of them.
        tries: how often a task is played whose process dies.

    Raises:
        WorkerError: for a setup that cannot be sent to a process.
    """

    def __init__(self, workers: int, setup: Setup[T, R], tries: int = MOST_TRIES) -> None:
        data = setup.pickled()
        self.workers = workers
        self.tries = tries
        self._opened = ExitStack()
        folder = self._opened.enter_context(tempfile.TemporaryDirectory())
        self._path = str(Path(folder) / "setup")
        Path(self._path).write_bytes(data)
        self._pool = pool_of(workers)
        self._running: dict[Future[R], T] = {}
        self._suspects: list[T] = []  # to be played alone, since a process died while they were under way
        self._deaths: dict[int, int] = {}  # by the identity of a task
        self._ended: list[Played[T, R]] = []  # tasks that could not be handed over

    def free(self) -> int:
        return 0 if self._suspects else IN_FLIGHT * self.workers - len(self._running)

    def submit(self, task: T, tell: Tell | None = None) -> None:
        try:
            future: Future[R] = self._pool.submit(call_in_worker, _play_in_worker, self._path, task)
        except BrokenExecutor:
            self._ended += self._renew([task])
        else:
            self._running[future] = task

    def begin(self) -> Future[None]:
        """Open a player in one process, before the first task; the future raises what is wrong with it."""
        return self._pool.submit(call_in_worker, _play_in_worker, self._path, None)

    def collect(self, seconds: float | None) -> list[Played[T, R]]:
        # tasks that were under way when a process died are tried alone, one after the other, which shows whose fault it
        # is
        if self._suspects and not self._running:
            self.submit(self._suspects.pop(0))
        found, self._ended = self._ended, []
        # those that ended, with a value or an error of their own
        done = wait(self._running, 0 if found else seconds, FIRST_COMPLETED).done
        dead = list[T]()
        for future in [future for future in self._running if future in done]:
            task = self._running.pop(future)
            try:
                found.append(Played(task, future.result()))
            except BrokenExecutor:
                dead.append(task)
                continue
            except Exception as error:
                found.append(Played(task, error=error))
            self._deaths.pop(id(task), None)  # another task may get its identity
        # one process that dies takes all of the pool with it
        if dead:
            dead += self._running.values()
            self._running.clear()
            found += self._renew(dead)
        return found

    def _renew(self, dead: list[T]) -> list[Played[T, R]]:
        """New processes after one died; the tasks that were under way, of which one that was alone is to blame."""
        discard(self.workers, self._pool)
        if self.tries == 1:
            error = WorkerError(DEAD_WORKER.format(self.workers))
            return [Played(task, error=error) for task in dead]
        # a task that was alone when its process died has killed it; after some deaths it is given up
        self._pool = pool_of(self.workers)
        found: list[Played[T, R]] = []
        for task in dead:
            self._deaths[id(task)] = self._deaths.get(id(task), 0) + (len(dead) == 1)
            if self._deaths[id(task)] >= self.tries:
                error = WorkerError(f"the process that plays it died {self.tries} times")
                found.append(Played(task, error=error))
            else:
                self._suspects.append(task)
        return found

    def close(self) -> None:
        if self._running:  # an interruption
            discard(self.workers, self._pool)
        self._opened.close()
