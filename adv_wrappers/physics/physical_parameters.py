"""The physical parameters of one environment: read, written and restored, whatever simulates it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.parameter_space import ParameterSpace
from adv_wrappers.core.types import Floats
from adv_wrappers.snapshots.save_and_restore_python_objects import KeepsItself, Walk

LOWEST, HIGHEST = 0.01, 100.0  # factors of what must stay above 0
MOST_FORCE = 1e5  # newtons


class PhysicalParameters(KeepsItself):
    """The parameters of one environment, which a subclass writes into its simulator.

    Args:
        space: names, ranges and own values.

    Attributes:
        values: as they are now, float64 ``[n]``.
    """

    def __init__(self, space: ParameterSpace) -> None:
        self.space = space
        self.values: Floats = space.nominal.copy()

    def set(self, values: Floats) -> None:
        """Write values ``[n]`` into the simulator, where they differ from those that are there."""
        changed = values != self.values
        if changed.any():
            self.values = values.copy()
            self.write(values, changed)

    def restore(self) -> None:
        """Give the environment its own values back."""
        self.set(self.space.nominal)

    @property
    def changed(self) -> bool:
        """Whether any parameter is not the environment's own."""
        return bool((self.values != self.space.nominal).any())

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        """Write those of ``values`` that ``changed``, both ``[n]``."""
        raise NotImplementedError

    def begin_step(self) -> None:
        """Called before every step: for what a simulator forgets after each."""

    def begin_episode(self) -> None:
        """Called after every reset, which may have made new bodies; the parameters are the environment's own."""

    def fault(self) -> str:
        """Why what was just simulated is none of the environment's states; "" where nothing is wrong."""
        return ""

    def check_stable(self, low: Floats, high: Floats) -> str:
        """Why the simulator does not hold some parameters between ``low`` and ``high``, ``[n]``; "" where it does."""
        return ""

    def keep(self, walk: Walk) -> None:
        """Keep the values for a snapshot."""
        walk.kept.append((_put, self, self.values.copy()))


def _put(parameters: PhysicalParameters, values: Floats) -> None:
    parameters.set(values)
