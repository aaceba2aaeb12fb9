"""The one loop that plays cells: those without a row, by an executor, each kept in a store as soon as it is played.

:func:`adv_wrappers.evaluate`, plans, suites, studies and reports differ in the cells that they choose, and in who plays
them: blocks of episodes of one agent, or whole cells of a plan in other processes and on other machines.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

from adv_wrappers.errors import WorkerError
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.evaluation.executor import Executor, Played
from adv_wrappers.evaluation.rows.store import Store

_POLL = 0.2  # seconds between two looks at what another run has claimed
_COLLECT = 1.0  # seconds to wait for a cell


class KeyedCell(Protocol):
    """What the loop knows of a cell: the key of its row, and its name as a text."""

    @property
    def key(self) -> str:
        """By which a store knows its row."""


C = TypeVar("C", bound=KeyedCell)


class CellLoop(Generic[C]):
    """Plays cells that have no row.

    Several runs may share a store: each claims a cell before it plays it, and takes over those of a run that is no
    longer there.

    Args:
        cells: all, in the order of their rows.
        missing: those that have no row.
        executor: plays them.
        store: where their rows are written as they come, or None.
        again: whether a row takes the place of one that the store has.

    Attributes:
        waiting: the cells that are still to be played.
        known: how many have a row that was not played here: from before, or from another run on the same store.
    """

    def __init__(
        self,
        cells: Sequence[C],
        missing: Collection[C],
        executor: Executor[C, PlayedCell],
        store: Store | None = None,
        again: bool = False,
    ) -> None:
        self._executor = executor
        self._store = store
        self._again = again
        self.known = len(cells) - len(missing)
        self.waiting = collections.deque(missing)
        if store is not None:
            store.place(cell.key for cell in cells)

    def play(self, on_cell: Callable[[PlayedCell | None], object]) -> None:
        """Play what is waiting.

        Args:
            on_cell: called with what became of a cell, once it is written, or with None where another run played it.

        Raises:
            OutputError: where that cannot be written, with what was to be written as its ``report``.
        """
        under_way = 0
        while self.waiting or under_way:
            # cells go out as long as somebody is free, and come back as they end
            while self._executor.free() > 0 and (cell := self._claimed(on_cell)) is not None:
                self._executor.submit(cell)
                under_way += 1
            if not under_way:
                if self.waiting:  # another run plays them
                    time.sleep(_POLL)
                continue
            if found := [_played(one) for one in self._executor.collect(_COLLECT)]:
                under_way -= len(found)
                if self._store is not None:
                    self._store.add(found, replace=self._again)
                for one in found:
                    on_cell(one)

    def _claimed(self, on_cell: Callable[[PlayedCell | None], object]) -> C | None:
        """A cell that this run has claimed; None where other runs have claimed all that are left.

        Those that another run plays now come again at the end, and those that it has played do not.
        """
        for _ in range(len(self.waiting)):
            cell = self.waiting.popleft()
            if self._store is None or self._store.claim([cell.key]):
                return cell
            # another run has played it, or is playing it now
            if self._store.done([cell.key]):
                self.known += 1
                on_cell(None)
            else:
                self.waiting.append(cell)
        return None


def _played(one: Played[C, PlayedCell]) -> PlayedCell:
    """What became of a cell; an error is that of its process, or of what cannot be sent back."""
    if one.error is None:
        return one.value()
    error = one.error if isinstance(one.error, WorkerError) else WorkerError(f"{type(one.error).__name__}: {one.error}")
    return PlayedCell(one.task.key, str(one.task), None, None, f"{type(error).__name__}: {error}", 0.0, "")
