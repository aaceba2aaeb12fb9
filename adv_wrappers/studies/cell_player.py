"""Playing the cells of a plan, and who plays them: this process, warm processes, or actors of a cluster."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from adv_wrappers.errors import StoreError
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.executor import Executor, Processes, Tell, ThisProcess
from adv_wrappers.evaluation.player import Player
from adv_wrappers.evaluation.rows.row_key import row_key
from adv_wrappers.evaluation.rows.store import process_name
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, ThreatStack, as_threat_stack, json_form
from adv_wrappers.studies.plan_cells import PlanCell, load_of_plan
from adv_wrappers.studies.suite.entry import AttackSetting
from adv_wrappers.utils.processes import pickled
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim


@dataclass(frozen=True)
class CellPlayerSetup:
    """What a process needs to play any cell of a plan.

    Attributes:
        victims: victims that cells call by these names.
        folder: where the plan is run, in which relative paths are found; None is where the process is.
    """

    victims: Mapping[str, Victim]
    folder: str | None = None

    def open(self) -> CellPlayer:
        """The player."""
        return CellPlayer(self.victims, self.folder)

    def pickled(self) -> bytes:
        """The setup as it is sent to a process; raises :class:`WorkerError` for a victim that cannot be."""
        for name, victim in self.victims.items():
            pickled(f"the victim {name}", victim)
        return pickled("the victims", self)


class CellPlayer:
    """Plays cells in this process; the last victims and environments stay open.

    Args:
        victims: victims that cells call by these names.
        folder: where the plan is run, in which relative paths are found; None is where this process is.
    """

    def __init__(self, victims: Mapping[str, Victim] | None = None, folder: str | None = None) -> None:
        if folder is not None and Path(folder).is_dir():  # a machine of a cluster may not have it
            os.chdir(folder)
        self._given, self._loaded = dict(victims or {}), dict[tuple[str, str | None, str], Victim]()
        self._player = Player()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None  # for trainings that no folder is given for

    def play(self, cell: PlanCell, tell: Tell | None = None) -> PlayedCell:
        """A cell's row, or the error that it ended with."""
        began = time.perf_counter()
        about = None
        row = None
        said = None
        try:
            with one_thread():
                evaluator = self.open(cell)
                _check_key(cell, evaluator)
                about, row = evaluator.about, evaluator.play(0)
        except Exception as error:  # whatever a user's environment or network may raise: the other cells go on
            self._player.close()
            said = f"{type(error).__name__}: {error}"
        return PlayedCell(cell.key, str(cell), about, row, said, time.perf_counter() - began, process_name())

    def _victim(self, cell: PlanCell) -> Victim:
        if cell.victim in self._given:
            return self._given[cell.victim]
        known = (cell.victim, cell.select, cell.device)
        if known not in self._loaded:
            while len(self._loaded) >= 8:
                self._loaded.pop(next(iter(self._loaded)))
            self._loaded[known] = load_of_plan(*known)
        return self._loaded[known]

    def open(self, cell: PlanCell) -> Evaluator:
        """A cell that is ready to be played; raises whatever is wrong with it."""
        victim = self._victim(cell)
        return Evaluator(victim, cell.environment, [self._stack(cell, victim)], cell.episodes, self._player)

    def _stack(self, cell: PlanCell, victim: Victim) -> ThreatStack:
        """The threats of a cell; what is trained, or searched for its episodes, is made now."""
        recipe = cell.recipe
        if recipe is None:
            return CLEAN_RUN if cell.threat is None else as_threat_stack(cell.threat, victim)
        return replace(as_threat_stack(recipe.threat(self.setting(cell)), victim), name=cell.name)

    def _trainings(self, cell: PlanCell) -> Path:
        """The folder of a cell's trainings; where it names none, one that goes with this player."""
        if cell.trainings is not None:
            return Path(cell.trainings)
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory()
        return Path(self._temporary.name)

    def setting(self, cell: PlanCell) -> AttackSetting:
        """What the attack of a cell with a recipe is made for, with the folder of what is trained."""
        recipe = cell.recipe
        assert recipe is not None
        made = recipe.setting(self._victim(cell), cell.environment, cell.episodes)
        return replace(made, out=recipe.folder(self._trainings(cell), made)) if recipe.trained else made

    def close(self) -> None:
        """Close the environments, and remove what was trained for cells without a folder."""
        self._player.close()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


def _check_key(cell: PlanCell, evaluator: Evaluator) -> None:
    """Raise :class:`StoreError` unless what is about to be played is what the cell's key stands for."""
    layers = [json_form(layer) for layer in evaluator.stacks[0].layers]
    known = layers if cell.recipe is None else [cell.recipe.identity]
    if row_key(evaluator.about, known, evaluator.draws[0], evaluator.sampled) != cell.key:
        raise StoreError(
            f"{cell} is not what it was when the plan was expanded: a file of its victim or its threat has changed, or "
            f"this process has other versions of the packages, or finds another file under the same relative path"
        )


CellExecutor = Executor[PlanCell, PlayedCell]


@contextlib.contextmanager
def opened_executor(workers: int | CellExecutor, victims: Mapping[str, Victim] | None = None) -> Iterator[CellExecutor]:
    """An executor of this process for one worker, else of so many processes; a given one is used, and left open."""
    if isinstance(workers, Executor):
        yield workers
        return
    setup = CellPlayerSetup(dict(victims or {}), os.getcwd())
    if workers == 1:
        with closing(setup.open()) as player:
            yield ThisProcess(player)
    else:
        with closing(Processes[PlanCell, PlayedCell](workers, setup)) as processes:
            yield processes
