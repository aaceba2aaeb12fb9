"""run: the cells of a plan that a store does not hold yet are played, by one process, several, or a cluster."""

from __future__ import annotations

import collections
import contextlib
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from adv_wrappers.environments.environment import environment_text
from adv_wrappers.errors import WorkerError
from adv_wrappers.evaluation.executor import Played
from adv_wrappers.evaluation.rows.store import PlayedCell, Store
from adv_wrappers.studies.cell_player import CellExecutor, opened_executor
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import Expansion, PlanCell, check_victims, expand
from adv_wrappers.utils.pace import Move, progress_lines
from adv_wrappers.utils.validation import Workers, checked
from adv_wrappers.victims import Victim

RunProgress = Callable[[int, int, int], None]
_POLL = 0.2  # seconds between two looks at what another run has claimed
_COLLECT = 1.0  # seconds to wait for a cell


@dataclass(frozen=True)
class RunSummary:
    """What a run did.

    Attributes:
        played: the number of cells that were played now.
        known: those that the store held before, or that another run on the same store has played meanwhile.
        failed: by the name of a cell that failed, its error; the next run tries it again.
        left_out: by cell of the plan that does not apply, the reason.
        seconds: wall clock.
        play_seconds: of the cells that were played now, summed over the processes.
    """

    played: int
    known: int
    failed: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    play_seconds: float = 0.0

    def __str__(self) -> str:
        words = [f"{self.played} cells played in {self.seconds:.0f} s ({self.play_seconds:.0f} s of playing)"]
        words += [f"{self.known} known before"] * bool(self.known)
        words += [f"{len(self.failed)} failed"] * bool(self.failed)
        words += [f"{len(self.left_out)} do not apply"] * bool(self.left_out)
        return ", ".join(words)


@checked
def run(
    plan: Plan | Expansion,
    store: Store,
    workers: Workers | CellExecutor = 1,
    *,
    victims: Mapping[str, Victim] | None = None,
    progress: RunProgress | None = None,
) -> RunSummary:
    """Play what a store does not hold of a plan.

    Every row is written as soon as it is played, so the same call goes on after an interruption. Several runs, of
    processes of their own, may share a store: each claims a cell before it plays it, and takes over those of a run
    that is no longer there. A cell that fails is kept with its error, and the rest goes on.

    Args:
        plan: the plan, or its cells.
        store: where rows are looked for and written.
        workers: the number of processes, or what plays cells, such as
            :class:`adv_wrappers.studies.ray_cluster.RayActors`, which the caller closes.
        victims: victims that the plan calls by these names; they are pickled for other processes.
        progress: called as ``progress(cells with a row, failed, cells)``; None writes a line every ten seconds to
            standard error.

    Raises:
        AdvWrappersError: one of its kinds, before anything is played, for a plan that cannot work;
            :class:`OutputError` where a row cannot be written, with the cells that were played as its ``report``.
    """
    began = time.perf_counter()
    check_victims(victims)
    cells = plan if isinstance(plan, Expansion) else expand(plan, victims)
    with contextlib.ExitStack() as opened:
        if progress is None:
            progress = cell_progress(opened.enter_context(progress_lines()))
        executor = opened.enter_context(opened_executor(workers, victims))
        return _Run(cells, store, executor, progress, began).play()


def cell_progress(move: Move) -> RunProgress:
    """The progress of a run, told to a function that is told of other things too."""
    return lambda done, failed, total: move("cells", done + failed, total, f"{failed} failed" if failed else "")


def cells_of(cells: Expansion, store: Store) -> list[PlanCell]:
    """The cells, with the store's folder for what they train."""
    folder = store.trainings
    return [cell if cell.recipe is None else replace(cell, trainings=folder) for cell in cells.cells]


class _Run:
    """One call of :func:`run`."""

    def __init__(
        self, cells: Expansion, store: Store, executor: CellExecutor, progress: RunProgress, began: float
    ) -> None:
        self.cells = cells
        self.store = store
        self.executor = executor
        self.progress = progress
        self.began = began
        store.place(cell.key for cell in cells.cells)
        done = store.done(cell.key for cell in cells.cells)
        self.waiting = collections.deque(cell for cell in cells_of(cells, store) if cell.key not in done)
        self.known = len(done)
        self.played = 0
        self.under_way = 0
        self.failed: dict[str, str] = {}  # by key
        self.said = set[tuple[str, str]]()  # of which environment what kind of thing was said
        self.play_seconds = 0.0

    def play(self) -> RunSummary:
        self._report()
        while self.waiting or self.under_way:
            # cells go out as long as somebody is free, and come back as they end
            while self.executor.free() > 0 and (cell := self._next()) is not None:
                self.executor.submit(cell)
                self.under_way += 1
            if self.under_way:
                self._add([_played(one) for one in self.executor.collect(_COLLECT)])
            elif self.waiting:  # another run plays them
                time.sleep(_POLL)
        return RunSummary(
            self.played,
            self.known,
            self._errors(),
            self.cells.left_out,
            time.perf_counter() - self.began,
            self.play_seconds,
        )

    def _next(self) -> PlanCell | None:
        """A cell that this run has claimed; None where other runs have claimed all that are left.

        Those that another run plays now come again at the end, and those that it has played do not.
        """
        for _ in range(len(self.waiting)):
            cell = self.waiting.popleft()
            if self.store.claim([cell.key]):
                return cell
            # another run has played it, or is playing it now
            if self.store.done([cell.key]):
                self.known += 1
                self._report()
            else:
                self.waiting.append(cell)
        return None

    def _add(self, found: list[PlayedCell]) -> None:
        if not found:
            return
        self.store.add(found)
        self.under_way -= len(found)
        # errors are told at the end, what is noticed of an environment at once, but once
        for cell in found:
            self.played += cell.error is None
            self.play_seconds += cell.seconds
            if cell.error is not None:
                self.failed[cell.key] = cell.error
            for kind, sentence in (cell.row.environment_notes if cell.row else {}).items():
                name = environment_text((cell.about or {})["env"])
                if (name, kind) not in self.said:
                    self.said.add((name, kind))
                    warnings.warn(f"{name}: {sentence}", stacklevel=5)
        self._report()

    def _errors(self) -> dict[str, str]:
        """By the name of a cell that failed, its error, in the order of the plan."""
        found = dict[str, str]()
        for cell in self.cells.cells:
            if cell.key in self.failed:
                name = str(cell) if str(cell) not in found else f"{cell} ({cell.key[:8]})"
                found[name] = self.failed[cell.key]
        return found

    def _report(self) -> None:
        self.progress(self.played + self.known, len(self.failed), len(self.cells.cells))


def _played(one: Played[PlanCell, PlayedCell]) -> PlayedCell:
    """What became of a cell; an error is that of its process, or of what cannot be sent back."""
    if one.error is None:
        return one.value()
    error = one.error if isinstance(one.error, WorkerError) else WorkerError(f"{type(one.error).__name__}: {one.error}")
    return PlayedCell(one.task.key, str(one.task), None, None, f"{type(error).__name__}: {error}", 0.0, "")
