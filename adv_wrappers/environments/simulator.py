"""The simulator of one step of a layer: actions are tried from the present state, and undone.

A layer around a single environment tries them in the environment beneath it, with all its wrappers and layers. A layer
around a vector tries them row by row in ``envs[i]``, which takes a vector in this process and nothing between it and
the layer that changes what the rows return.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from adv_wrappers.core.engine.simulator_protocol import SimulatedStep, SimulatorLike
from adv_wrappers.core.types import Rows
from adv_wrappers.environments.replay import record_for_replay
from adv_wrappers.environments.snapshot import Snapshot, check_repeats
from adv_wrappers.errors import SnapshotError
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


def stacked(space: spaces.Space[Any], observations: list[Any]) -> Any:
    """Observations of a space side by side, as a vector environment returns them."""
    if isinstance(space, spaces.Box):
        return np.stack(observations).astype(space.dtype, copy=False)
    empty: Any = create_empty_array(space, len(observations))
    return concatenate(space, observations, empty)


class Simulator:
    """Tries actions in the rows that a layer attacks at one step.

    Args:
        beneath: the environments of the layer.
        rows: numbers of the rows that are attacked; None for all.
    """

    at_once = 1

    def __init__(self, beneath: EnvironmentBeneath, rows: Rows = None) -> None:
        self._beneath, self._rows = beneath, rows
        self._before: list[Snapshot] = []

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The environment's names of the numbers of an observation; none where it has none."""
        return self._beneath.feature_names

    def step(self, actions: Any) -> SimulatedStep:
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
                repeat (:func:`adv_wrappers.environments.snapshot.check_repeats`).
        """
        with self.rollout() as rollout:
            return rollout.step(actions)

    @contextmanager
    def rollout(self, copies: int = 1) -> Iterator[Rollout]:
        """Several steps of every attacked row from its present state, undone at the end.

        Args:
            copies: 1; simulators that step many side by side take more.

        Raises:
            SnapshotError: as :meth:`step`.
        """
        if copies != 1:
            raise SnapshotError(f"this simulator steps one copy of a row at a time, asked for {copies}")
        envs = self._beneath.environments()
        numbers = range(len(envs)) if self._rows is None else self._rows.tolist()
        rollout = Rollout(self._beneath, [(number, envs[number]) for number in numbers], self._before)
        # whatever happens, the rows that were stepped come back
        try:
            yield rollout
        finally:
            for before, (_, env) in zip(self._before[: rollout.entered], rollout.rows, strict=False):
                before.restore(env)


class Rollout:
    """Steps the environments of some rows themselves, which a simulator brings back afterwards.

    Args:
        beneath: the environments of the layer.
        rows: numbers and environments of the rows.
        before: snapshots of the rows; where there is none yet, they are made at the first step.

    Attributes:
        entered: how many rows have been stepped.
    """

    def __init__(self, beneath: EnvironmentBeneath, rows: list[tuple[int, Any]], before: list[Snapshot]) -> None:
        self._beneath = beneath
        self.rows = rows
        self._before = before
        self.entered = 0
        self._last: list[Any] = [None] * len(rows)
        self._over = np.zeros(len(rows), bool)

    def step(self, actions: Any) -> SimulatedStep:
        """One step of every row, as :meth:`Simulator.step`; one whose episode is over stays where it is."""
        actions = trees.map_leaves(lambda leaf: leaf.cpu().numpy() if isinstance(leaf, Tensor) else leaf, actions)
        # the states to come back to are saved once, before the first step
        if not self._before:
            for i, (number, env) in enumerate(self.rows):
                self._beneath.check(number, env, trees.row(actions, i))
            self._before += [self._beneath.save(number, env) for number, env in self.rows]
        # row by row; an episode that is over earns nothing more
        rewards = np.zeros(len(self.rows))
        for i, (_, env) in enumerate(self.rows):
            if self._over[i]:
                continue
            self.entered = max(self.entered, i + 1)
            observation, reward, terminated, truncated, _ = env.step(trees.row(actions, i))
            self._last[i] = copy.deepcopy(observation)  # which may be the environment's own memory
            rewards[i], self._over[i] = float(reward), bool(terminated or truncated)
        return self._beneath.batch(self._last), rewards, self._over.copy()


class EnvironmentBeneath:
    """The environment beneath one layer, from which the layer's engine makes a simulator a step.

    Args:
        env: the environment that the layer is wrapped around, single or a vector.

    Attributes:
        action_space: of one row, with choices numbered as the agent does; None for the environment's own.
    """

    action_space: spaces.Space[Any] | None = None

    def __init__(self, env: Any) -> None:
        self.env, self.single = env, isinstance(env, gym.Env)
        self._checked: dict[int, Any] = {}
        self._saved: dict[int, Snapshot] = {}

    def __call__(self, rows: Rows) -> SimulatorLike:
        """The simulator of one step, for the rows of these numbers; None for all. A vector may have one of its own."""
        own = getattr(None if self.single else self._vector(), "simulator", None)
        return Simulator(self, rows) if own is None else own(rows)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names that the environment has for the numbers of an observation; none where it has none."""
        env = self.env if self.single else self._vector()
        rows = getattr(env, "envs", None)
        first = rows[0] if isinstance(rows, (list, tuple)) and rows else env
        if isinstance(first, gym.Env):
            names = first.get_wrapper_attr("feature_names") if first.has_wrapper_attr("feature_names") else ()
        else:
            names = getattr(first, "feature_names", ())
        return () if callable(names) else tuple(names)

    def environments(self) -> list[Any]:
        """The environments of the rows, those of a single environment itself.

        Raises:
            SnapshotError: for vectors whose rows cannot be stepped one by one, and for wrappers between the layer and
                the vector that change what the rows return.
        """
        if self.single:
            return [self.env]
        # a vector that simulates by itself, or one whose environments can be stepped one by one
        env = self._vector()
        if hasattr(env, "simulator"):
            return [env]
        name = type(env).__name__
        if isinstance(env, SyncVectorEnv) or name == "DummyVecEnv":
            return list(env.envs)
        if "env" in env.__dict__ or "venv" in env.__dict__:
            raise SnapshotError(
                f"a simulator steps the rows of a vector one by one, past {name}, which changes what they return: put "
                f"this layer directly around the vector, or {name} around each of its environments"
            )
        raise SnapshotError(f"{name} has no simulator: {_OTHERS.get(name, 'use SyncVectorEnv, or DummyVecEnv of SB3')}")

    def record(self) -> None:
        """Record the episodes of the rows from their next resets on, so that what cannot be saved is replayed.

        Raises:
            SnapshotError: as :meth:`environments`.
        """
        if self.single:
            self.env = record_for_replay(self.env)
            return
        rows, vector = self.environments(), self._vector()
        if not hasattr(vector, "simulator"):
            vector.envs = type(vector.envs)(record_for_replay(row) for row in rows)

    def _vector(self) -> Any:
        """The vector beneath the wrappers that hand on what it returns."""
        env = self.env
        while type(env).__name__ in _HAND_ON:
            env = env.__dict__.get("env") or env.__dict__.get("venv")
        return env

    def check(self, number: int, env: Any, action: Any) -> None:
        """Replay a few steps at the first use of a row's environment, beginning with an action."""
        if self._checked.get(number) is not env:
            check_repeats(env, action, action_space=self.action_space)
            self._checked[number] = env

    def save(self, number: int, env: Any) -> Snapshot:
        """A snapshot of a row, in the memory of the one before."""
        old = self._saved.pop(number, None)
        self._saved[number] = saved = Snapshot.of(env, old)
        return saved

    def batch(self, observations: list[Any]) -> Any:
        """Observations of rows as the vector returns them, of the one environment with a batch of one."""
        if self.single:
            return trees.map_leaves(lambda leaf: np.asarray(leaf)[None], observations[0])
        env = self.env
        return stacked(
            env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space, observations
        )

    def __getstate__(self) -> dict[str, object]:
        """Emulators and MuJoCo's data in old snapshots have no pickle, and are not needed."""
        kept = {"env": self.env, "single": self.single, "action_space": self.action_space}
        return kept | {"_checked": {}, "_saved": {}}
