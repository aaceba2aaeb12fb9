"""Tasks of the DeepMind Control Suite as agents and attacks take them: one vector, and an action held for a while.

Shimmy gives the tasks ids of Gymnasium (``dm_control/walker-walk-v0``) whose observations are dictionaries. Here they
become one float32 vector, the keys in alphabetical order, and an action can be held for several control steps, as most
agents of the suite are trained.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from adv_wrappers.core.engine.clock import Seeds, row_seeds
from adv_wrappers.core.types import Array, Floats, Info, Rows
from adv_wrappers.environments.simulator import EnvironmentBeneath
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.validation import EnvCount, checked

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
        integer("the number of control steps that an action is held for", count, 1)
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


# ----------------------------------------------------------------------------------------------------------------------
# Observations and rewards of tasks of the DeepMind Control Suite, for many simulations at once.
#
# dm_control computes both of one simulation at a time, in Python, which takes ten times as long as MuJoCo's own step
# of cartpole. The formulas here are its own (Tassa et al. 2018; ``dm_control.suite``), written over arrays; a test
# compares them with it.
# ----------------------------------------------------------------------------------------------------------------------


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
        # cosine and sine of every pole, from its rotation matrix
        poles = sims.get("xmat")[:, 2:, [ZZ, XZ]].reshape(len(sims.datas), -1)
        return np.concatenate([sims.get("qpos")[:, :1], poles, sims.get("qvel")], 1)

    def reward(sims: Simulations, obs: Floats) -> Floats:
        # the product of four shares: poles upright, cart in the middle, little control, slow poles
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
        # three parts of height and one of an upright torso, and where the task asks for a speed, of that
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


# ----------------------------------------------------------------------------------------------------------------------
# Tasks of the DeepMind Control Suite side by side, MuJoCo being stepped directly.
#
# A row returns what :func:`.dmc` returns, and costs a tenth of it in cartpole: observations and rewards are computed
# of all rows at once. ``evaluate`` of four episodes of cartpole-swingup, clean and under noise, takes 1.3 s of a
# processor so, and 4.2 s row by row. Rows are reset by dm_control itself. From the present states others can branch
# off, which is how a planner tries what follows.
# ----------------------------------------------------------------------------------------------------------------------


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

    @checked
    def __init__(self, id: str, num_envs: EnvCount = 1, action_repeat: int = 1) -> None:
        self._env = dmc(id, action_repeat)
        control = self._env.unwrapped._env  # type: ignore[attr-defined]  # Shimmy's name for dm_control's environment
        formulas = formulas_of(id, control)
        if formulas is None:
            self._env.close()
            raise SpaceError(f"the formulas of {id} are not known: use SyncVectorEnv([lambda: adv.dmc({id!r})] * n)")
        # one environment of dm_control makes the resets, simulations of the same model are the rows
        self.id = id
        self.num_envs = num_envs
        self.action_repeat = action_repeat
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
        # a branch of this many is made once, and set to the present states every time
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
        self._limit = env._limit
        self._substeps = env._substeps
        self._repeat = env.action_repeat
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
        # control steps of this decision: fewer in rows whose episode ends before
        left = np.minimum(self._repeat, self._limit - self.steps).astype(np.int64)
        history = []
        for k in range(int(left.max(initial=0))):
            moving = left > k
            for i in range(count) if moving.all() else np.flatnonzero(moving).tolist():
                self._advance(self.datas[i])
            # observations and rewards of all rows at once; those that stand still keep theirs
            obs = self._formulas.observe(self._sims)
            rewards = self._formulas.reward(self._sims, obs)
            total += np.where(moving, rewards, 0.0)
            self.obs = np.where(moving[:, None], obs, self.obs).astype(np.float32)
            if seen is not None:
                history.append(self.obs)
        self.steps += left
        if not np.isfinite(self.obs).all():
            raise ValueRangeError(f"the simulation of {np.flatnonzero(~np.isfinite(self.obs).all(1))} is not finite")
        # every row gets what it saw after each of its own control steps
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
    """Tries actions in some rows of a :class:`DmcVectorEnv` (:class:`adv_wrappers.environments.simulator.Simulator`).

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
