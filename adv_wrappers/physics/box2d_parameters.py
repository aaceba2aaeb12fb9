"""The physical parameters of Box2D's worlds: gravity, the density of all bodies, and a force on the agent's body.

Bodies are made anew at every reset, with the environment's own densities. Wind is a horizontal force.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.parameter_space import Parameter, ParameterSpace
from adv_wrappers.core.types import Floats
from adv_wrappers.physics.physical_parameters import HIGHEST, LOWEST, MOST_FORCE, PhysicalParameters
from adv_wrappers.snapshots.restore_by_replaying import is_of_box2d
from adv_wrappers.snapshots.save_and_restore_python_objects import NotCopied, Walk

_AGENTS = ("lander", "hull")  # attributes under which environments keep the agent's body


class Box2dParameters(PhysicalParameters):
    """The parameters of one world of Box2D.

    Args:
        env: the environment itself.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._agent = next((name for name in _AGENTS if hasattr(env, name)), None)
        parameters = [Parameter("gravity", 0.0, HIGHEST), Parameter("density", LOWEST, HIGHEST)]
        if self._agent is not None:
            parameters.append(Parameter(f"force.{self._agent}", -MOST_FORCE, MOST_FORCE, 0.0, 2))
        super().__init__(ParameterSpace(parameters))
        self._fixtures: list[tuple[Any, Any, float]] = []  # body, fixture, its own density
        self._gravity = self._own_gravity()

    def _own_gravity(self) -> tuple[float, float]:
        gravity = self._env.world.gravity
        return float(gravity[0]), float(gravity[1])

    def begin_episode(self) -> None:
        self._gravity = self._own_gravity()
        found = [
            (body, fixture, float(fixture.density)) for body in self._env.world.bodies for fixture in body.fixtures
        ]
        self._fixtures = [one for one in found if one[2] > 0]  # others do not move

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        if changed[0]:
            self._env.world.gravity = tuple(float(values[0]) * part for part in self._gravity)
        if changed[1]:
            for body, fixture, density in self._fixtures:
                fixture.density = density * float(values[1])
                body.ResetMassData()

    def begin_step(self) -> None:
        if self._agent is not None and self.values[2:].any():
            body = getattr(self._env, self._agent)
            body.ApplyForceToCenter((float(self.values[2]), float(self.values[3])), True)

    def keep(self, walk: Walk) -> None:
        raise NotCopied(self, "of a world that is replayed, and a replay knows no other parameters")

    def __getstate__(self) -> dict[str, Any]:
        """Without fixtures, and with the environment's own values: a copy has a world of its own once it is reset."""
        return {**self.__dict__, "_fixtures": [], "values": self.space.nominal.copy()}


def box2d_parameters(env: Any) -> Box2dParameters | None:
    """The parameters of an environment without wrappers; None where it has no world of Box2D."""
    return Box2dParameters(env) if is_of_box2d(getattr(env, "world", None)) else None
