"""The normaliser of an agent in training: statistics of true observations, which move between rollouts only.

Many of an adversary's chairs as the vector environment that Stable-Baselines3 trains in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv

from adv_wrappers.errors import SpaceError
from adv_wrappers.wrappers.adversary_env import VectorAdversaryEnv


class Held(RunningMeanStd):
    """Statistics that stay as they are until :meth:`settle`, and for ever if they are ``fixed``."""

    fixed = False

    def update(self, arr: NDArray[Any]) -> None:
        """Nothing: ``VecNormalize`` would move them at every step."""

    def settle(self, true: list[NDArray[Any]]) -> None:
        """Take in batches ``[N, n]`` of true observations."""
        if true and not self.fixed:
            super().update(np.concatenate(true))


def copied(rms: Any, into: Any) -> Any:
    """``into`` with the statistics of another."""
    into.mean, into.var, into.count = rms.mean, rms.var, rms.count
    return into


def hold(normal: Any, fixed: bool) -> None:
    """Make the observation statistics of a ``VecNormalize`` :class:`Held` ones."""
    if normal.norm_obs:
        normal.obs_rms = copied(normal.obs_rms, Held(shape=normal.obs_rms.mean.shape))
        normal.obs_rms.fixed = fixed


class Chairs(VecEnv):
    """A :class:`VectorAdversaryEnv` in SAME_STEP mode, which is the mode of SB3: all rows attacked as one batch.

    Every finished row's ``info`` holds ``terminal_observation``, ``TimeLimit.truncated`` and, as SB3's Monitor writes
    it, ``episode`` with the adversary's return ``r`` and the length ``l``.
    """

    def __init__(self, env: VectorAdversaryEnv) -> None:
        if env.mode != AutoresetMode.SAME_STEP:
            raise SpaceError(f"expected a vector environment in SAME_STEP mode, got {env.mode}")
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._returns, self._lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
        self._actions: Any = None

    def reset(self) -> Any:
        seeds = [None if seed is None else int(seed) for seed in self._seeds]
        obs, _ = self.env.reset(seed=seeds if any(seed is not None for seed in seeds) else None)
        self._reset_seeds()
        self._returns[:], self._lengths[:] = 0.0, 0
        return np.array(obs)

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        obs, rewards, terminated, truncated, info = self.env.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(done).tolist():
            infos[row] = {
                "terminal_observation": info["final_obs"][row],
                "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                "episode": {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": 0.0},
            }
        self._returns[done], self._lengths[done] = 0.0, 0
        return np.array(obs), np.asarray(rewards, np.float32), done, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name, None)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise SpaceError(f"rows of a batch have no method of their own: {method_name}")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))
