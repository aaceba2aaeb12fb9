"""The simulator of one step of a layer: actions are tried from the present state, and undone.

A layer around a single environment tries them in the environment beneath it, with all its wrappers and layers. A layer
around a vector tries them row by row in ``envs[i]``, which takes a vector in this process and nothing between it and
the layer that changes what the rows return.
"""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.types import Action, Observation, Rows
from adv_wrappers.errors import SnapshotError
from adv_wrappers.snapshots.contents import Part
from adv_wrappers.snapshots.repeats import check_repeats
from adv_wrappers.snapshots.snapshot import Snapshot
from adv_wrappers.utils import trees

# wrappers of a vector that hand on observations, rewards and ends as they are
_HAND_ON = frozenset({
    "VectorActionRecorder", "VectorProbabilisticTiming", "VecProbabilisticTiming", "Sb3Adapter", "AgentVecEnv",
    "RecordEpisodeStatistics", "RecordVideo", "VecMonitor", "VecVideoRecorder",
})  # fmt: skip
_OTHERS = {
    "AsyncVectorEnv": "its environments are in other processes: use SyncVectorEnv",
    "SubprocVecEnv": "its environments are in other processes: use DummyVecEnv",
    "AtariVectorEnv": "its games cannot be saved: use SyncVectorEnv([lambda: atari(...)] * n)",
}


class Simulator:
    """Tries actions in the rows that a layer attacks at one step.

    Args:
        beneath: the environments of the layer.
        rows: numbers of the rows that are attacked; None for all.
    """

    def __init__(self, beneath: EnvironmentBeneath, rows: Rows = None) -> None:
        self._beneath, self._rows = beneath, rows
        self._before: list[Snapshot] = []

    def step(self, actions: Action) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_]]:
        """One step of every attacked row from its present state, undone afterwards.

        Args:
            actions: native actions ``[B, ...]`` as the environment's ``step`` takes them, arrays or tensors; a
                dictionary of them for a Dict space.

        Returns:
            The observations ``[B, *S]`` that the environment beneath the layer returns, numpy arrays in its dtype (or a
            dictionary of them), the rewards float64 ``[B]``, and bool ``[B]``, whether the episode is over by then,
            terminated or truncated.

        Raises:
            SnapshotError: for an environment that cannot be saved, and, at its first use, for one that does not
                repeat (:func:`adv_wrappers.snapshots.check_repeats`).
        """
        beneath = self._beneath
        envs = beneath.environments()
        numbers = range(len(envs)) if self._rows is None else self._rows.tolist()
        actions = trees.map_leaves(lambda leaf: leaf.cpu().numpy() if isinstance(leaf, Tensor) else leaf, actions)
        if not self._before:
            for i, number in enumerate(numbers):
                beneath.check(number, envs[number], trees.row(actions, i))
            self._before = [beneath.save(number, envs[number]) for number in numbers]
        observations, rewards, done = list[Observation](), np.zeros(len(numbers)), np.zeros(len(numbers), bool)
        for i, (number, before) in enumerate(zip(numbers, self._before, strict=True)):
            env = envs[number]
            try:
                observation, reward, terminated, truncated, _ = env.step(trees.row(actions, i))
                observations.append(copy.deepcopy(observation))  # which may be the environment's own memory
                rewards[i], done[i] = float(reward), bool(terminated or truncated)
            finally:
                before.restore(env)
        return beneath.batch(observations), rewards, done


class EnvironmentBeneath:
    """The environment beneath one layer, from which the layer's engine makes a simulator a step.

    Args:
        env: the environment that the layer is wrapped around, single or a vector.
    """

    def __init__(self, env: Part) -> None:
        self.env, self.single = env, isinstance(env, gym.Env)
        self._checked: dict[int, Part] = {}
        self._saved: dict[int, Snapshot] = {}

    def __call__(self, rows: Rows) -> Simulator:
        """The simulator of one step, for the rows of these numbers; None for all."""
        return Simulator(self, rows)

    def environments(self) -> list[Part]:
        """The environments of the rows, those of a single environment itself.

        Raises:
            SnapshotError: for vectors whose rows cannot be stepped one by one, and for wrappers between the layer and
                the vector that change what the rows return.
        """
        if self.single:
            return [self.env]
        env = self.env
        while type(env).__name__ in _HAND_ON:
            env = env.__dict__.get("env") or env.__dict__.get("venv")
        name = type(env).__name__
        if isinstance(env, SyncVectorEnv) or name == "DummyVecEnv":
            return list(env.envs)
        if "env" in env.__dict__ or "venv" in env.__dict__:
            raise SnapshotError(
                f"a simulator steps the rows of a vector one by one, past {name}, which changes what they return: put "
                f"this layer directly around the vector, or {name} around each of its environments"
            )
        raise SnapshotError(f"{name} has no simulator: {_OTHERS.get(name, 'use SyncVectorEnv, or DummyVecEnv of SB3')}")

    def check(self, number: int, env: Part, action: Action) -> None:
        """Replay a few steps at the first use of a row's environment, beginning with an action."""
        if self._checked.get(number) is not env:
            check_repeats(env, action)
            self._checked[number] = env

    def save(self, number: int, env: Part) -> Snapshot:
        """A snapshot of a row, in the memory of the one before."""
        old = self._saved.pop(number, None)
        self._saved[number] = saved = Snapshot.of(env, old)
        return saved

    def batch(self, observations: list[Observation]) -> Observation:
        """Observations of rows as the vector returns them, of the one environment with a batch of one."""
        if self.single:
            return trees.map_leaves(lambda leaf: np.asarray(leaf)[None], observations[0])
        env = self.env
        space = env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space
        empty: Observation = create_empty_array(space, len(observations))
        return concatenate(space, observations, empty)

    def __getstate__(self) -> dict[str, object]:
        """Emulators and MuJoCo's data in old snapshots have no pickle, and are not needed."""
        return {"env": self.env, "single": self.single, "_checked": {}, "_saved": {}}
