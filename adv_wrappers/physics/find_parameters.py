"""Which physical parameters an environment has, whatever simulates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from adv_wrappers.errors import SpaceError
from adv_wrappers.physics.attributes_as_parameters import attribute_parameters
from adv_wrappers.physics.box2d_parameters import box2d_parameters
from adv_wrappers.physics.mujoco_parameters import mujoco_parameters
from adv_wrappers.physics.physical_parameters import PhysicalParameters

_FINDERS: tuple[Callable[[Any], PhysicalParameters | None], ...] = (
    attribute_parameters, mujoco_parameters, box2d_parameters,
)  # fmt: skip


def parameters_of(env: gym.Env[Any, Any]) -> PhysicalParameters:
    """The physical parameters of an environment, through any wrappers.

    Raises:
        SpaceError: for an environment of which none are known.
    """
    for find in _FINDERS:
        found = find(env.unwrapped)
        if found is not None:
            return found
    raise SpaceError(
        f"{type(env.unwrapped).__name__} has no physical parameters that are known: those of MuJoCo, dm_control, Box2D "
        f"and classic control are, and attributes that an environment lists in physical_parameters"
    )
