"""Cells of a plan on a Ray cluster: actors that play one cell after another, with shares of a GPU where asked for.

An actor of Ray is a process with one torch thread that keeps its victim and its environments, as a warm process does
(:mod:`.cell_player`); rows come back to the one process that writes the store. Only this module knows Ray. All
machines need the same version of it, of this package and of what that depends on: a cell whose key is another one there
ends with an error.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from adv_wrappers.errors import AdvWrappersError, WorkerError
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.evaluation.executor import MOST_TRIES, Played, Tell
from adv_wrappers.studies.cell_player import CellPlayerSetup
from adv_wrappers.studies.plan_cells import PlanCell
from adv_wrappers.utils.processes import pickled
from adv_wrappers.utils.validation import NotNegative, Positive, checked
from adv_wrappers.victims import Victim

_OBJECT_BYTES = 256 << 20  # of a local cluster's shared memory: victims and rows are small


def import_ray() -> ModuleType:
    """Ray; raises :class:`AdvWrappersError` where it is not installed."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # or its first import writes a token into the home folder
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise AdvWrappersError("a cluster needs Ray: pip install 'adv_wrappers[ray]'") from error


class _Actor:
    """What an actor runs: a player, and the tasks that it is sent."""

    def __init__(self, setup: CellPlayerSetup) -> None:
        self._player = setup.open()

    def play(self, cell: PlanCell) -> PlayedCell:
        return self._player.play(cell)


class RayActors:
    """The executor whose tasks the actors of a Ray cluster play; for ``workers`` of :func:`adv_wrappers.run`.

    Args:
        address: ``"local"`` starts a cluster on this machine, which :meth:`close` ends; ``"auto"`` connects to the one
            that runs here; else the address of one, such as ``"ray://head:10001"``.
        actors: of the cluster; None takes one a core, or one for every share of a GPU.
        gpus: of an actor, such as 0.25 for four on one; of a plan whose ``device`` is ``"cuda"``.
        victims: victims that cells call by these names.

    Raises:
        AdvWrappersError: where Ray is not installed; :class:`WorkerError` for a cluster that cannot be reached, or has
            no room for an actor, and for a victim that cannot be sent to one.
    """

    @checked
    def __init__(
        self,
        address: str = "auto",
        actors: Positive | None = None,
        gpus: NotNegative = 0.0,
        victims: Mapping[str, Victim] | None = None,
    ) -> None:
        # victims that cannot be sent are found before anything is connected to
        for name, victim in (victims or {}).items():
            pickled(f"the victim {name}", victim)
        self._ray = import_ray()
        self._own = not self._ray.is_initialized()
        if self._own:
            self._connect(address, actors)
        try:
            count, setup = actors or self._room(gpus), self._ray.put(CellPlayerSetup(dict(victims or {}), os.getcwd()))
            # Ray starts an actor that is lost again, and sends it its task
            again = {"max_restarts": -1, "max_task_retries": MOST_TRIES - 1}
            kind = self._ray.remote(num_cpus=1, num_gpus=float(gpus), **again)(_Actor)
            self._actors = [kind.remote(setup) for _ in range(count)]
        except BaseException:
            self.close()
            raise
        self._running: dict[object, tuple[PlanCell, Any]] = {}  # the task and its actor

    def _connect(self, address: str, actors: int | None) -> None:
        about = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        local = {"num_cpus": actors or os.cpu_count(), "object_store_memory": _OBJECT_BYTES, **about}
        try:
            self._ray.init(**(local if address == "local" else {"address": address, "log_to_driver": False}))
        except Exception as error:  # Ray raises many kinds
            raise WorkerError(f"cannot reach the Ray cluster {address!r}: {error}") from error

    def _room(self, gpus: float) -> int:
        """How many actors the cluster has room for."""
        found = self._ray.cluster_resources()
        room = int(found.get("GPU", 0) / gpus) if gpus else int(found.get("CPU", 0))
        if room < 1:
            asked = f"{gpus:g} GPUs" if gpus else "one core"
            raise WorkerError(f"the Ray cluster has no room for an actor with {asked}: it has {dict(found)}")
        return room

    def free(self) -> int:
        """How many more tasks may be handed over now: an actor has one, so that its death is the task's own."""
        return len(self._actors) - len(self._running)

    def submit(self, task: PlanCell, tell: Tell | None = None) -> None:
        """Hand a task to an actor that has none."""
        busy = [actor for _, actor in self._running.values()]
        actor = next(actor for actor in self._actors if actor not in busy)
        self._running[actor.play.remote(task)] = task, actor

    def collect(self, seconds: float | None) -> list[Played[PlanCell, PlayedCell]]:
        """What has ended; a task whose actor is lost is played again, at most three times."""
        found: list[Played[PlanCell, PlayedCell]] = []
        for ref in self._ray.wait([*self._running], timeout=seconds)[0] if self._running else []:
            task, _ = self._running.pop(ref)
            try:
                found.append(Played(task, self._ray.get(ref)))
            except self._ray.exceptions.RayActorError as error:
                lost = WorkerError(f"its actor was lost {MOST_TRIES} times: {error}")
                found.append(Played(task, error=lost))
            except Exception as error:  # what cannot be sent back
                found.append(Played(task, error=error))
        return found

    def close(self) -> None:
        """End the actors, and a cluster that was started or connected to here."""
        for actor in getattr(self, "_actors", []):
            self._ray.kill(actor)
        if self._own:
            self._ray.shutdown()
