"""A study: a rule that looks at the rows so far and names what is played next, and a conclusion from all of them.

A plan knows its cells beforehand. A study does not: where to look next depends on what was seen, as in a bisection.
It is played like a plan (:func:`adv_wrappers.studies.run`), so every row is kept as it comes, several processes may
play, and the same call goes on after an interruption: the rule names the same cells, whose rows are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from adv_wrappers.errors import ValueRangeError, WorkerError
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.store import Store
from adv_wrappers.studies.cell_player import CellExecutor, opened_executor
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import expand
from adv_wrappers.studies.runner import RunProgress, run
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.victims import Victim

Conclusion = TypeVar("Conclusion", covariant=True)


class Study(Protocol[Conclusion]):
    """What :func:`play_study` plays. ``examples/least_eps.py`` is one: a bisection for the least eps that matters."""

    def next(self, rows: Sequence[Row]) -> Plan | None:
        """What is played next, or None at the end; the same rows always give the same plan.

        Args:
            rows: all so far, in the order in which they were named. A plan's runs without a threat come first, and are
                there once where several plans share them. Nothing is compared with these yet: ``regret`` is None.
        """
        ...

    def conclusion(self, rows: Sequence[Row]) -> Conclusion:
        """What the rows say; after a limit of time they are those that fitted into it."""
        ...


def play_study(
    study: Study[Conclusion],
    store: Store,
    workers: int | CellExecutor = 1,
    *,
    victims: Mapping[str, Victim] | None = None,
    progress: RunProgress | None = None,
    minutes: float | Deadline | None = None,
    failed: dict[str, str] | None = None,
) -> Conclusion:
    """Play what a study names, until it names no more, and return its conclusion.

    Args:
        study: the study.
        store, workers, victims, progress: as for :func:`adv_wrappers.studies.run`; progress is that of the plan that is
            being played.
        minutes: of wall clock, or the :class:`.Deadline` itself, after which no further plan is begun than the first;
            None plays all. Without it, the conclusion does not depend on how fast the machine is.
        failed: filled in with the errors of cells, by the text of their threat, where the study goes on without their
            rows; None ends it.

    Raises:
        AdvWrappersError: as :func:`adv_wrappers.studies.run`.
        WorkerError: for a cell that failed, since the rule has to see its row, unless ``failed`` is given and it is not
            the run without a threat.
        ValueRangeError: for a rule that names nothing but cells that were played.
    """
    deadline = minutes if isinstance(minutes, Deadline) else Deadline(None if minutes is None else 60 * minutes)
    rows, played = dict[str, Row](), set[str]()  # both by key of the cell, and of those without a row too
    with opened_executor(workers, victims) as executor:  # for all plans: environments and processes take long to make
        while not (rows and deadline.passed) and (plan := study.next([*rows.values()])) is not None:
            cells = expand(plan, victims)
            keys = [cell.key for cell in cells.cells]
            if played >= set(keys):
                rule = f"{type(study).__name__}.next must name a new cell, or return None"
                raise ValueRangeError(f"{rule}: all were played")

            # what the store does not hold is played
            summary = run(cells, store, executor, victims=victims, progress=progress)
            found = store.found(keys)
            without = [cell for cell in cells.cells if cell.key not in found]
            for cell, (name, error) in zip(without, summary.failed.items(), strict=True):  # both in the plan's order
                if failed is None or cell.is_clean:
                    raise WorkerError(f"{type(study).__name__} has no row of {name}: {error}")
                failed[cell.name] = error
            rows |= {key: found[key] for key in keys if key in found and key not in rows}
            played.update(keys)
    return study.conclusion([*rows.values()])
