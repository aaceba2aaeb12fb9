"""Tasks of the DeepMind Control Suite side by side, MuJoCo being stepped directly.

A row returns what :func:`.dmc_env` returns, and costs a tenth of it in cartpole: observations and rewards are
computed of all rows at once. Rows are reset by dm_control itself. From the present states others can branch off, which
is how a planner tries what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from adv_wrappers.core.clock import Seeds, row_seeds
from adv_wrappers.core.types import Array, Info, Rows
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.utils.checks import check_integer
from adv_wrappers.wrappers.dmc_env import CONTROL_OBSERVATIONS, FlatVector, dmc, feature_names
from adv_wrappers.wrappers.dmc_task_formulas import Formulas, Simulations, formulas_of

MOST_COPIES = 1024  # simulations that a planner branches off at once
VectorStep = tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_]]


class DmcVectorEnv(VectorEnv[FlatVector, FlatVector, Array]):
    """Tasks of the suite side by side, in DISABLED autoreset mode: a finished row stands still until it is reset.

    ``info["control_observations"]`` is a list of arrays ``[k, n]``, as :class:`.ActionRepeat` has them, None for a row
    that stands still.

    Args:
        id: of a cartpole, walker or fish-upright task, such as ``"dm_control/walker-walk-v0"``.
        num_envs: the number of rows.
        action_repeat: how many control steps an action is held for.

    Raises:
        SpaceError: for other ids, and without Shimmy and dm_control.
        ValueRangeError: for numbers below 1.
    """

    metadata: Info = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": []}  # noqa: RUF012

    def __init__(self, id: str, num_envs: int = 1, action_repeat: int = 1) -> None:
        check_integer("num_envs", num_envs, 1)
        self._env = dmc(id, action_repeat)
        control = self._env.unwrapped._env  # type: ignore[attr-defined]  # Shimmy's name for dm_control's environment
        formulas = formulas_of(id, control)
        if formulas is None:
            self._env.close()
            raise SpaceError(f"the formulas of {id} are not known: use SyncVectorEnv([lambda: adv.dmc({id!r})] * n)")
        self.id, self.num_envs, self.action_repeat = id, num_envs, action_repeat
        self.feature_names = feature_names(self._env)
        self.single_observation_space, self.single_action_space = self._env.observation_space, self._env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.spec = None
        self._physics, self._limit = control.physics, control._step_limit
        self._formulas, self._substeps = formulas, control._n_sub_steps
        self._rows = Branch(self, self._simulations(num_envs))
        self._spare: list[Any] = []  # of branches, which share them
        self._branches: dict[int, Branch] = {}

    def reset(self, *, seed: Seeds = None, options: Info | None = None) -> tuple[FlatVector, Info]:
        """Reset all rows, or those of ``options["reset_mask"]``, bool ``[N]``."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seeds = row_seeds(seed, self.num_envs, mask)
        for row in np.flatnonzero(mask).tolist():
            self._env.reset(seed=seeds[row])
            self._rows.set(row, self._physics.data.ptr, 0)
        self._rows.look(mask)
        return self._rows.obs.copy(), {}

    def step(self, actions: FlatVector) -> tuple[FlatVector, Array, Array, Array, Info]:
        """One decision of every row."""
        seen: list[FlatVector | None] = [None] * self.num_envs
        obs, rewards, over = self._rows.step(np.asarray(actions), seen)
        return obs, rewards, np.zeros(self.num_envs, bool), over, {CONTROL_OBSERVATIONS: seen}

    def simulator(self, rows: Rows = None) -> DmcSimulator:
        """Tries actions in some rows from their present states; None for all."""
        return DmcSimulator(self, np.arange(self.num_envs) if rows is None else np.asarray(rows))

    def branch(self, rows: NDArray[np.intp], copies: int) -> Branch:
        """Simulations that go on from the present states of rows: all rows, then all again, ``copies`` times.

        They end where another branch begins, whose memory is the same.
        """
        sources = np.tile(rows, copies)
        count = len(sources)
        self._spare += self._simulations(max(count - len(self._spare), 0))
        branch = self._branches.get(count)
        if branch is None:
            branch = self._branches[count] = Branch(self, self._spare[:count])
        for i, row in enumerate(sources.tolist()):
            branch.set(i, self._rows.datas[row], int(self._rows.steps[row]))
        branch.obs[:] = self._rows.obs[sources]
        return branch

    def _simulations(self, count: int) -> list[Any]:
        return [mujoco.MjData(self._physics.model.ptr) for _ in range(count)]

    def close_extras(self, **kwargs: object) -> None:
        """Close the environment that rows are reset by."""
        self._env.close()


class Branch:
    """Simulations of one task side by side.

    Args:
        env: of the task.
        datas: MuJoCo's data of each, N of them.

    Attributes:
        datas: MuJoCo's data of each.
        steps: control steps since the reset, int ``[N]``.
        obs: the newest observations, float32 ``[N, n]``.
    """

    def __init__(self, env: DmcVectorEnv, datas: list[Any]) -> None:
        self._limit, self._substeps, self._repeat = env._limit, env._substeps, env.action_repeat
        self._formulas: Formulas = env._formulas
        self._model = env._physics.model.ptr
        # else a simulation that diverges would begin anew, unnoticed
        self._model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self._half_steps = self._model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4
        self.datas, count = datas, len(datas)
        self._sims = Simulations(env._physics, self.datas)
        self.steps = np.zeros(count, np.int64)
        self.obs = np.zeros((count, len(env.feature_names)), np.float32)

    def set(self, i: int, data: Any, steps: int) -> None:
        """Simulation i goes on from another's data."""
        mujoco.mj_copyData(self.datas[i], self._model, data)
        self.steps[i] = steps

    def look(self, mask: NDArray[np.bool_]) -> None:
        """Observe anew the simulations of a mask, bool ``[N]``."""
        self.obs[mask] = self._formulas.observe(self._sims)[mask]

    def step(self, actions: NDArray[np.float32], seen: list[FlatVector | None] | None = None) -> VectorStep:
        """One decision of all that are not over.

        Args:
            actions: ``[N, k]``.
            seen: gets the observations after every control step, ``[k, n]`` of each simulation.

        Returns:
            Observations float32 ``[N, n]``, the sums of rewards ``[N]``, and whether the episode is over, bool ``[N]``.

        Raises:
            ValueRangeError: for actions, and for states, that are not finite.
        """
        if not np.isfinite(actions).all():  # which MuJoCo would take for zeros
            raise ValueRangeError(f"actions must be finite, got {actions}")
        count, total = len(self.datas), np.zeros(len(self.datas))
        control = self._sims.views["ctrl"]
        for i in range(count):
            control[i][:] = actions[i]
        left = np.minimum(self._repeat, self._limit - self.steps).astype(np.int64)
        history = []
        for k in range(int(left.max(initial=0))):
            moving = left > k
            for i in range(count) if moving.all() else np.flatnonzero(moving).tolist():
                self._advance(self.datas[i])
            obs = self._formulas.observe(self._sims)
            rewards = self._formulas.reward(self._sims, obs)
            total += np.where(moving, rewards, 0.0)
            self.obs = np.where(moving[:, None], obs, self.obs).astype(np.float32)
            if seen is not None:
                history.append(self.obs)
        self.steps += left
        if not np.isfinite(self.obs).all():
            raise ValueRangeError(f"the simulation of {np.flatnonzero(~np.isfinite(self.obs).all(1))} is not finite")
        if seen is not None:
            whole = np.stack(history, 1) if history else np.zeros((count, 0, self.obs.shape[1]), np.float32)
            for i in np.flatnonzero(left).tolist():
                seen[i] = whole[i, : left[i]]
        return self.obs.copy(), total, self.steps >= self._limit

    def _advance(self, data: Any) -> None:
        """One control step, as dm_control's ``Physics.step`` makes it."""
        if self._half_steps:
            mujoco.mj_step2(self._model, data)
            if self._substeps > 1:
                mujoco.mj_step(self._model, data, self._substeps - 1)
        else:
            mujoco.mj_step(self._model, data, self._substeps)
        mujoco.mj_step1(self._model, data)


class DmcSimulator:
    """Tries actions in some rows of a :class:`DmcVectorEnv` (:class:`adv_wrappers.snapshots.Simulator`).

    Args:
        env: the environment.
        rows: numbers of the rows, int ``[B]``.
    """

    at_once = MOST_COPIES

    def __init__(self, env: DmcVectorEnv, rows: NDArray[np.intp]) -> None:
        self._env, self._rows = env, rows
        self.feature_names = env.feature_names

    def step(self, actions: NDArray[np.float32]) -> VectorStep:
        """One step of every row, which stays where it is."""
        return self._env.branch(self._rows, 1).step(np.asarray(actions))

    @contextmanager
    def rollout(self, copies: int = 1) -> Iterator[Branch]:
        """Simulations of every row, ``copies`` times, that step on together."""
        yield self._env.branch(self._rows, copies)


def dmc_vector(id: str, num_envs: int, kwargs: Info) -> DmcVectorEnv | None:
    """A task's rows side by side, or None for a task or keyword arguments that :class:`DmcVectorEnv` does not know."""
    if {*kwargs} - {"action_repeat"}:
        return None
    try:
        return DmcVectorEnv(id, num_envs, **kwargs)
    except SpaceError:  # another task, or nothing is installed, of which the task itself tells
        return None
