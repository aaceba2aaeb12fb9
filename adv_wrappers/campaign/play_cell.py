"""Playing the cells of a plan, and who plays them: this process, warm processes, or actors of a cluster."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from pickle import loads
from typing import Protocol, runtime_checkable

from adv_wrappers.campaign.entries import AttackSetting
from adv_wrappers.campaign.expand import CLEAN, PlanCell, load_of_plan, measure_of
from adv_wrappers.campaign.store import PlayedCell, process_name
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import StoreError, WorkerError
from adv_wrappers.evaluation.environments import Environment
from adv_wrappers.evaluation.pool import EpisodePlayer, PlayerSetup
from adv_wrappers.evaluation.prepared import PreparedEvaluation
from adv_wrappers.evaluation.resume import row_key
from adv_wrappers.evaluation.threat_stacks import ThreatStack, as_threat_stack, json_form
from adv_wrappers.utils.processes import discard, pickled, pool_of
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim

MOST_TRIES = 3  # of a cell whose process dies
IN_FLIGHT = 2  # cells a process, so that it has the next one at hand


class CellPlayer:
    """Plays cells in this process; the last victims and environments stay open.

    Args:
        victims: victims that cells call by these names.
        folder: where the campaign runs, in which relative paths are found; None is where this process is.
    """

    def __init__(self, victims: Mapping[str, Victim] | None = None, folder: str | None = None) -> None:
        if folder is not None and Path(folder).is_dir():  # a machine of a cluster may not have it
            os.chdir(folder)
        self._given, self._loaded = dict(victims or {}), dict[tuple[str, str | None, str], Victim]()
        self._player: tuple[tuple[object, ...], EpisodePlayer] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None  # for trainings that no folder is given for

    def play(self, cell: PlanCell) -> PlayedCell:
        """A cell's row, or the error that it ended with."""
        began = time.perf_counter()
        about, row, said = None, None, None
        try:
            with one_thread():
                prepared = self.open(cell)
                _check_key(cell, prepared)
                about, row = prepared.about, prepared.play(0)
        except Exception as error:  # whatever a user's environment or network may raise: the other cells go on
            self._close_environments()
            said = f"{type(error).__name__}: {error}"
        worker = process_name().rpartition(":")[0]
        return PlayedCell(cell.key, str(cell), about, row, said, time.perf_counter() - began, worker)

    def _victim(self, cell: PlanCell) -> Victim:
        if cell.victim in self._given:
            return self._given[cell.victim]
        known = (cell.victim, cell.select, cell.device)
        if known not in self._loaded:
            while len(self._loaded) >= 8:
                self._loaded.pop(next(iter(self._loaded)))
            self._loaded[known] = load_of_plan(*known)
        return self._loaded[known]

    def open(self, cell: PlanCell, threat: ThreatModel | None = None) -> PreparedEvaluation:
        """A cell that is ready to be played, under its own threat or another; raises whatever is wrong with it."""
        victim = self._victim(cell)
        stack = self._stack(cell, victim) if threat is None else as_threat_stack(threat, victim)
        return PreparedEvaluation(
            victim,
            cell.environment,
            [stack],
            cell.episodes,
            cell.seed,
            cell.num_envs,
            quantize=cell.quantize,
            measure=measure_of(cell.measure),
            best_of=cell.best_of,
            by=cell.by,
            player=self.open_environments(cell),
        )

    def open_environments(self, cell: PlanCell) -> EpisodePlayer:
        """The victim and the environments of a cell, which stay open for the next one; its attack is not made."""
        victim = self._victim(cell)
        place = (victim, cell.environment, cell.width, cell.quantize)
        if self._player is None or self._player[0] != place:
            self._close_environments()
            setup = PlayerSetup(victim, Environment.of(cell.environment, victim), (), cell.width, cell.quantize)
            self._player = (place, EpisodePlayer(setup))
        return self._player[1]

    def _stack(self, cell: PlanCell, victim: Victim) -> ThreatStack:
        """The threats of a cell; what is trained, or searched for its episodes, is made now."""
        recipe = cell.recipe
        if recipe is None:
            return CLEAN if cell.threat is None else as_threat_stack(cell.threat, victim)
        setting = self.setting(cell)
        if recipe.trained:
            setting = replace(setting, out=recipe.folder(self._trainings(cell), setting))
        return replace(as_threat_stack(recipe.threat(setting), victim), name=cell.name)

    def _trainings(self, cell: PlanCell) -> Path:
        """The folder of a cell's trainings; where it names none, one that goes with this player."""
        if cell.trainings is not None:
            return Path(cell.trainings)
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory()
        return Path(self._temporary.name)

    def setting(self, cell: PlanCell) -> AttackSetting:
        """What the attack of a cell with a recipe is made for."""
        assert cell.recipe is not None
        return cell.recipe.setting(self._victim(cell), cell.environment, cell.quantize, cell.episodes, cell.seed)

    def _close_environments(self) -> None:
        if self._player is not None:
            self._player[1].close()
            self._player = None

    def close(self) -> None:
        """Close the environments, and remove what was trained for cells without a folder."""
        self._close_environments()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


def _check_key(cell: PlanCell, prepared: PreparedEvaluation) -> None:
    """Raise :class:`StoreError` unless what is about to be played is what the cell's key stands for."""
    layers = [json_form(layer) for layer in prepared.stacks[0].layers]
    known = layers if cell.recipe is None else [cell.recipe.identity]
    if row_key(prepared.about, known, cell.best_of, prepared.sampled) != cell.key:
        raise StoreError(
            f"{cell} is not what it was when the plan was expanded: a file of its victim or its threat has changed, or "
            f"this process has other versions of the packages, or finds another file under the same relative path"
        )


@runtime_checkable
class CellWorkers(Protocol):
    """Plays cells that are handed over one by one, and hands back what became of them as they end."""

    def free(self) -> int:
        """How many more cells may be handed over now."""

    def submit(self, cell: PlanCell) -> None:
        """Hand over a cell."""

    def collect(self, seconds: float) -> list[PlayedCell]:
        """What has ended; waits so long for at least one, where any is under way."""

    def close(self) -> None:
        """Let go of everything; cells that are under way are lost."""


class ThisProcess:
    """Cells that are played here, one at a time."""

    def __init__(self, victims: Mapping[str, Victim] | None = None) -> None:
        self._player, self._waiting = CellPlayer(victims), list[PlanCell]()

    def free(self) -> int:
        return 1 - len(self._waiting)

    def submit(self, cell: PlanCell) -> None:
        self._waiting.append(cell)

    def collect(self, seconds: float) -> list[PlayedCell]:
        return [self._player.play(self._waiting.pop(0))] if self._waiting else []

    def close(self) -> None:
        self._player.close()


@functools.lru_cache(maxsize=1)
def _player_of(path: str) -> CellPlayer:
    """The player of a worker process, for the campaign whose victims are in this file."""
    return CellPlayer(*loads(Path(path).read_bytes()))


def _play_in_process(path: str, cell: PlanCell) -> PlayedCell:
    return _player_of(path).play(cell)


class Processes:
    """Cells that are played by warm processes (:mod:`adv_wrappers.utils.processes`).

    A process that dies takes the others of its pool along: the cells that were under way are then played one at a time,
    so that the one that kills its process is known. After three deaths it ends with an error.

    Args:
        workers: the number of processes.
        victims: victims that cells call by these names.

    Raises:
        WorkerError: for a victim that cannot be sent to a process.
    """

    def __init__(self, workers: int, victims: Mapping[str, Victim] | None = None) -> None:
        for name, victim in (victims or {}).items():
            pickled(f"the victim {name}", victim)
        self.workers, self._opened = workers, ExitStack()
        folder = self._opened.enter_context(tempfile.TemporaryDirectory())
        self._path = str(Path(folder) / "victims")
        Path(self._path).write_bytes(pickled("the victims", (dict(victims or {}), os.getcwd())))
        self._pool = pool_of(workers)
        self._running: dict[Future[PlayedCell], PlanCell] = {}
        self._suspects: list[PlanCell] = []  # to be played alone, since a process died while they were under way
        self._deaths: dict[str, int] = {}

    def free(self) -> int:
        return 0 if self._suspects else IN_FLIGHT * self.workers - len(self._running)

    def submit(self, cell: PlanCell) -> None:
        try:
            self._running[self._pool.submit(_play_in_process, self._path, cell)] = cell
        except BrokenExecutor:
            self._renew([cell])

    def collect(self, seconds: float) -> list[PlayedCell]:
        if self._suspects and not self._running:
            self.submit(self._suspects.pop(0))
        done = wait(self._running, seconds, FIRST_COMPLETED).done
        found, dead = list[PlayedCell](), list[PlanCell]()
        for future in done:
            cell = self._running.pop(future)
            try:
                found.append(future.result())
            except BrokenExecutor:
                dead.append(cell)
            except Exception as error:  # what cannot be sent back
                found.append(failed(cell, WorkerError(f"{type(error).__name__}: {error}")))
        if dead:
            dead += self._running.values()
            self._running.clear()
            found += self._renew(dead)
        return found

    def _renew(self, dead: list[PlanCell]) -> list[PlayedCell]:
        """New processes after one died; the cells that were under way, of which one that was alone is to blame."""
        discard(self.workers, self._pool)
        self._pool = pool_of(self.workers)
        found: list[PlayedCell] = []
        for cell in dead:
            self._deaths[cell.key] = self._deaths.get(cell.key, 0) + (len(dead) == 1)
            if self._deaths[cell.key] >= MOST_TRIES:
                found.append(failed(cell, WorkerError(f"the process that plays it died {MOST_TRIES} times")))
            else:
                self._suspects.append(cell)
        return found

    def close(self) -> None:
        if self._running:  # an interruption
            discard(self.workers, self._pool)
        self._opened.close()


def failed(cell: PlanCell, error: Exception) -> PlayedCell:
    """A cell that no player has handed back."""
    return PlayedCell(cell.key, str(cell), None, None, f"{type(error).__name__}: {error}", 0.0, "")


def open_workers(workers: int, victims: Mapping[str, Victim] | None = None) -> ThisProcess | Processes:
    """This process for one worker, else so many others; close it, as with :func:`contextlib.closing`."""
    return ThisProcess(victims) if workers == 1 else Processes(workers, victims)
