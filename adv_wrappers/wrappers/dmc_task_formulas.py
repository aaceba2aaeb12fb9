"""Observations and rewards of tasks of the DeepMind Control Suite, for many simulations at once.

dm_control computes both of one simulation at a time, in Python, which takes ten times as long as MuJoCo's own step of
cartpole. The formulas here are its own (Tassa et al. 2018; ``dm_control.suite``), written over arrays; a test compares
them with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adv_wrappers.core.types import Floats

XX, XZ, ZZ = 0, 2, 8  # of a rotation matrix of nine numbers
_STAND_HEIGHT = 1.2  # of walker's torso


class Simulations:
    """Arrays of many MuJoCo simulations of one model; objects of dm_control and MuJoCo have no types.

    Args:
        physics: dm_control's physics of the task, for its model.
        datas: MuJoCo's data of every simulation.
    """

    def __init__(self, physics: Any, datas: list[Any]) -> None:
        self.model, self.datas = physics.model.ptr, datas
        names = ("qpos", "qvel", "ctrl", "xmat", "xpos", "sensordata")
        self.views = {name: [getattr(data, name) for data in datas] for name in names}

    def get(self, name: str) -> Floats:
        """An array of all simulations, ``[N, ...]``."""
        return np.array(self.views[name])


@dataclass(frozen=True)
class Formulas:
    """One task.

    Attributes:
        observe: the observation, its keys in alphabetical order, ``[N, n]``.
        reward: the reward ``[N]`` of the state, given by its observation, and the control.
    """

    observe: Callable[[Simulations], Floats]
    reward: Callable[[Simulations, Floats], Floats]


def _cartpole(physics: Any, task: Any) -> Formulas | None:
    from dm_control.utils.rewards import tolerance

    if task._sparse:
        return None

    def observe(sims: Simulations) -> Floats:
        poles = sims.get("xmat")[:, 2:, [ZZ, XZ]].reshape(len(sims.datas), -1)
        return np.concatenate([sims.get("qpos")[:, :1], poles, sims.get("qvel")], 1)

    def reward(sims: Simulations, obs: Floats) -> Floats:
        joints = sims.model.nv - 1
        upright = (obs[:, 1 : 1 + 2 * joints : 2] + 1) / 2
        centered = (1 + tolerance(obs[:, 0], margin=2)) / 2
        control = sims.get("ctrl")[:, 0]
        small_control = (4 + tolerance(control, margin=1, value_at_margin=0, sigmoid="quadratic")) / 5
        small_velocity = (1 + tolerance(obs[:, -joints:], margin=5).min(1)) / 2
        found: Floats = upright.mean(1) * small_control * small_velocity * centered
        return found

    return Formulas(observe, reward)


def _walker(physics: Any, task: Any) -> Formulas | None:
    from dm_control.utils.rewards import tolerance

    speed = task._move_speed
    torso = physics.model.name2id("torso", "body")
    velocity = physics.model.ptr.sensor("torso_subtreelinvel").adr[0]

    def observe(sims: Simulations) -> Floats:
        turned = sims.get("xmat")[:, 1:, [XX, XZ]].reshape(len(sims.datas), -1)
        return np.concatenate([sims.get("xpos")[:, torso, 2:], turned, sims.get("qvel")], 1)

    def reward(sims: Simulations, obs: Floats) -> Floats:
        standing = tolerance(obs[:, 0], bounds=(_STAND_HEIGHT, float("inf")), margin=_STAND_HEIGHT / 2)
        upright = (1 + sims.get("xmat")[:, torso, ZZ]) / 2
        found: Floats = (3 * standing + upright) / 4
        if speed:
            moving = sims.get("sensordata")[:, velocity]
            bounds = (speed, float("inf"))
            moved = tolerance(moving, bounds=bounds, margin=speed / 2, value_at_margin=0.5, sigmoid="linear")
            found = found * (5 * moved + 1) / 6
        return found

    return Formulas(observe, reward)


def _fish(physics: Any, task: Any) -> Formulas | None:
    from dm_control.suite import fish
    from dm_control.utils.rewards import tolerance

    if not isinstance(task, fish.Upright):
        return None
    joints = [physics.model.ptr.joint(name).qposadr[0] for name in fish._JOINTS]
    torso = physics.model.name2id("torso", "body")

    def observe(sims: Simulations) -> Floats:
        return np.concatenate([sims.get("qpos")[:, joints], sims.get("xmat")[:, torso, ZZ, None], sims.get("qvel")], 1)

    def reward(sims: Simulations, obs: Floats) -> Floats:
        found: Floats = tolerance(obs[:, len(joints)], bounds=(1, 1), margin=1)
        return found

    return Formulas(observe, reward)


_DOMAINS: dict[str, Callable[[Any, Any], Formulas | None]] = {
    "cartpole": _cartpole,
    "walker": _walker,
    "fish": _fish,
}


def formulas_of(id: str, control: Any) -> Formulas | None:
    """The formulas of a task, or None for one that has none here.

    Args:
        id: of the suite, such as ``"dm_control/walker-walk-v0"``.
        control: dm_control's environment.
    """
    make = _DOMAINS.get(id.partition("/")[2].partition("-")[0])
    return None if make is None else make(control.physics, control.task)
