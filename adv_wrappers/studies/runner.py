"""run: the cells of a plan that a store does not hold yet are played, by one process, several, or a cluster."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from adv_wrappers.environments.environment import environment_text
from adv_wrappers.evaluation.cell_loop import CellLoop
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.evaluation.rows.store import Store
from adv_wrappers.studies.cell_player import CellExecutor, opened_executor
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import Expansion, PlanCell, check_victims, expand
from adv_wrappers.utils.pace import Move, progress_lines
from adv_wrappers.utils.validation import Workers, checked
from adv_wrappers.victims import Victim

RunProgress = Callable[[int, int, int], None]


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
    errors, said = dict[str, str](), set[tuple[str, str]]()  # by key; of which environment what kind of thing was said
    played, play_seconds = 0, 0.0

    def move() -> None:
        tell(played + loop.known, len(errors), len(cells.cells))

    def add(cell: PlayedCell | None) -> None:
        nonlocal played, play_seconds
        # errors are told at the end, what is noticed of an environment at once, but once
        if cell is not None:
            play_seconds += cell.seconds
            if cell.error is not None:
                errors[cell.key] = cell.error
            else:
                played += 1
            for kind, sentence in (cell.row.environment_notes if cell.row else {}).items():
                name = environment_text((cell.about or {})["env"])
                if (name, kind) not in said:
                    said.add((name, kind))
                    warnings.warn(f"{name}: {sentence}", stacklevel=5)
        move()

    with contextlib.ExitStack() as opened:
        tell = cell_progress(opened.enter_context(progress_lines())) if progress is None else progress
        executor = opened.enter_context(opened_executor(workers, victims))
        all_cells = cells_of(cells, store)
        done = store.done(cell.key for cell in all_cells)
        loop = CellLoop(all_cells, [cell for cell in all_cells if cell.key not in done], executor, store)
        move()
        loop.play(add)
    # by name, in the order of the plan
    failed = dict[str, str]()
    for cell in cells.cells:
        if cell.key in errors:
            failed[str(cell) if str(cell) not in failed else f"{cell} ({cell.key[:8]})"] = errors[cell.key]
    return RunSummary(played, loop.known, failed, cells.left_out, time.perf_counter() - began, play_seconds)


def cell_progress(move: Move) -> RunProgress:
    """The progress of a run, told to a function that is told of other things too."""
    return lambda done, failed, total: move("cells", done + failed, total, f"{failed} failed" if failed else "")


def cells_of(cells: Expansion, store: Store) -> list[PlanCell]:
    """The cells, with the store's folder for what they train."""
    folder = store.trainings
    return [cell if cell.recipe is None else replace(cell, trainings=folder) for cell in cells.cells]
