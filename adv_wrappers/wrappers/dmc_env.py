"""Tasks of the DeepMind Control Suite as agents and attacks take them: one vector, and an action held for a while.

Shimmy gives the tasks ids of Gymnasium (``dm_control/walker-walk-v0``) whose observations are dictionaries. Here they
become one float32 vector, the keys in alphabetical order, and an action can be held for several control steps, as most
agents of the suite are trained.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from adv_wrappers.core.types import Array, Info
from adv_wrappers.errors import SpaceError
from adv_wrappers.snapshots.try_actions import EnvironmentBeneath
from adv_wrappers.utils.checks import check_integer

PREFIX = "dm_control/"  # of the ids
CONTROL_OBSERVATIONS = "control_observations"  # the key in a step's info
FlatVector = NDArray[np.float32]
Keys = dict[str, NDArray[np.float64]]


class FlatObservation(gym.ObservationWrapper[FlatVector, FlatVector, Keys], RecordConstructorArgs):
    """The entries of a dictionary of observations as one float32 vector, in the order of the space.

    ``feature_names`` has a name for every number: the key alone where it has one (``"height"``), with an index where it
    has several (``"position[1]"``).

    Args:
        env: one whose observations are a flat dictionary of boxes.

    Raises:
        SpaceError: for other observations.
    """

    def __init__(self, env: gym.Env[Keys, FlatVector]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        if not isinstance(space, spaces.Dict) or not all(isinstance(part, spaces.Box) for part in space.values()):
            raise SpaceError(f"expected observations that are a dictionary of boxes, got {space}")
        sizes = {key: int(np.prod(part.shape or ())) for key, part in space.items()}
        self._keys: tuple[str, ...] = tuple(sizes)
        self.feature_names = tuple(
            key if size == 1 else f"{key}[{i}]" for key, size in sizes.items() for i in range(size)
        )
        self.observation_space = spaces.Box(-np.inf, np.inf, (len(self.feature_names),), np.float32)

    def observation(self, observation: Keys) -> FlatVector:
        """The vector of one dictionary."""
        parts = [np.ravel(observation[key]) for key in self._keys]  # which come in the order of the task
        return np.concatenate(parts).astype(np.float32)


class ActionRepeat(gym.Wrapper[FlatVector, FlatVector, FlatVector, FlatVector], RecordConstructorArgs):
    """Holds every action for several control steps, whose rewards are added.

    ``info["control_observations"]`` has the observation after each control step, as an array ``[steps, *shape]``: what
    a perturbed decision did is known at every one of them.

    Args:
        env: the environment to wrap.
        count: how many control steps an action is held for, at least 1. The end of an episode ends the step.

    Raises:
        ValueRangeError: for a count below 1.
    """

    def __init__(self, env: gym.Env[FlatVector, FlatVector], count: int) -> None:
        check_integer("the number of control steps that an action is held for", count, 1)
        RecordConstructorArgs.__init__(self, count=count)
        gym.Wrapper.__init__(self, env)
        self.count = count

    def step(self, action: FlatVector) -> tuple[FlatVector, SupportsFloat, bool, bool, Info]:
        """The control steps of one decision."""
        total, seen = 0.0, list[FlatVector]()
        for _ in range(self.count):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            seen.append(obs)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, {**info, CONTROL_OBSERVATIONS: np.stack(seen)}


def dmc(id: str, action_repeat: int = 1, **kwargs: object) -> gym.Env[FlatVector, FlatVector]:
    """A task of the DeepMind Control Suite whose observations are one vector.

    Args:
        id: such as ``"dm_control/walker-walk-v0"``.
        action_repeat: how many control steps an action is held for. An episode has 1000 control steps.
        kwargs: what ``gymnasium.make`` takes.

    Returns:
        The environment: observations float32 ``[n]``, the keys of the task in alphabetical order, and actions float32
        ``[k]`` in the task's box.

    Raises:
        SpaceError: for another id, or without Shimmy and dm_control (``pip install 'adv_wrappers[dmc]'``).
        ValueRangeError: for an action repeat below 1.
    """
    if not id.startswith(PREFIX):
        raise SpaceError(f"expected the id of a task of the DeepMind Control Suite ({PREFIX}...), got {id!r}")
    register_dmc(id)
    kwargs = {"disable_env_checker": True} | kwargs  # it would check dictionaries that nobody sees
    env = FlatObservation(gym.make(id, **kwargs))  # type: ignore[arg-type]
    box = env.action_space
    assert isinstance(box, spaces.Box)
    single = spaces.Box(box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32)
    return ActionRepeat(gym.wrappers.TransformAction(env, np.asarray, single), action_repeat)


def feature_names(env: gym.Env[FlatVector, FlatVector] | VectorEnv[FlatVector, FlatVector, Array]) -> tuple[str, ...]:
    """The names that an environment, single or a vector, has for the numbers of an observation; none without any."""
    return EnvironmentBeneath(env).feature_names


def register_dmc(id: str) -> None:
    """Register the ids of the suite, if this is one of them that is not registered yet.

    Raises:
        SpaceError: without Shimmy, which registers them, or with a MuJoCo that dm_control does not work with.
    """
    if not id.startswith(PREFIX) or id in gym.registry:
        return
    # with EGL dm_control loads the system's LLVM, after which Triton, which torch's optimizers import, crashes
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")
    try:
        import mujoco

        if int(mujoco.__version__.partition(".")[0]) >= 4:
            raise SpaceError(f"dm_control works with mujoco >=3.17,<4, this is {mujoco.__version__}")
        import shimmy
    except ImportError as error:
        raise SpaceError(
            f"{id} needs Shimmy and dm_control: pip install 'adv_wrappers[dmc]', on Python 3.11 or 3.12 (dm_control "
            "needs labmaze, which has no wheels for newer ones)"
        ) from error
    gym.register_envs(shimmy)
