"""What a layer simulates with: made beneath it by :mod:`adv_wrappers.environments.simulator`, given to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.types import Rows
from adv_wrappers.errors import SnapshotError

SimulatedStep = tuple[Any, NDArray[np.float64], NDArray[np.bool_]]


class RolloutLike(Protocol):
    """Steps on from the present states of some rows, which it does not change."""

    def step(self, actions: Any) -> SimulatedStep: ...


class SimulatorLike(Protocol):
    """Tries actions in the attacked rows of one step (:class:`adv_wrappers.environments.simulator.Simulator`).

    Attributes:
        at_once: how many simulations step side by side: ``rollout(copies)`` takes ``at_once // rows`` copies, or one.
        feature_names: the environment's names of the numbers of an observation; none where it has none.
    """

    at_once: int

    @property
    def feature_names(self) -> Sequence[str]: ...
    def step(self, actions: Any) -> SimulatedStep: ...
    def rollout(self, copies: int = 1) -> AbstractContextManager[RolloutLike]: ...


class MakesSimulators(Protocol):
    """Makes the simulator of a step for the rows of some numbers, None for all.

    ``feature_names`` are as of :class:`SimulatorLike`. ``environments`` are those of all rows, and ``record`` has them
    note their episodes from the next reset on, so that what cannot be saved is replayed; both raise
    :class:`SnapshotError` where the rows cannot be reached.
    """

    @property
    def feature_names(self) -> Sequence[str]: ...
    def __call__(self, rows: Rows) -> SimulatorLike: ...
    def environments(self) -> Sequence[object]: ...
    def record(self) -> None: ...


def check_simulators(made: MakesSimulators | None, on_host: bool, label: str) -> MakesSimulators:
    """What makes the simulators of a layer, for a threat of this label.

    Raises:
        SnapshotError: where there is none, or its rows cannot be reached.
    """
    if made is None or not on_host:
        raise SnapshotError(f"{label} needs a simulator: a layer around an environment on the host")
    made.environments()
    return made
