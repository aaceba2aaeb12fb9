"""A vector environment of Gymnasium as a ``VecEnv`` of Stable-Baselines3: the one adapter of all trainings.

SB3's own ``DummyVecEnv`` steps environments one by one; attacks are computed for all rows as one batch, which needs a
Gymnasium vector environment beneath them. An adversary is trained in
``VecAdversaryEnv(Sb3Adapter(SyncVectorEnv(...)), ...)``, an agent in ``AgentVecEnv``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import DTypeLike
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array
from adv_wrappers.errors import SpaceError
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.action_recorder import VectorActionRecorder
from adv_wrappers.wrappers.layer import Layer, autoreset_mode, layers
from adv_wrappers.wrappers.perturb_dynamics import end_diverged_episodes
from adv_wrappers.wrappers.wrap import wrap


class Sb3Adapter(VecEnv):
    """A Gymnasium vector environment in SAME_STEP mode, which is the mode of SB3, as a ``VecEnv``.

    The ``info`` of a finished row holds ``terminal_observation``, ``TimeLimit.truncated`` and, as SB3's Monitor writes
    it, ``episode`` with the return ``r`` and the length ``l``.

    Args:
        env: the vector environment, on the host.
        reward_dtype: dtype of the rewards. SB3's algorithms take float32; float64 is for a wrapper that computes its
            own rewards from these.

    Raises:
        SpaceError: for a vector environment in another autoreset mode.
    """

    def __init__(self, env: VectorEnv[Any, Any, Array], reward_dtype: DTypeLike = np.float32) -> None:
        mode = autoreset_mode(env)
        if mode != AutoresetMode.SAME_STEP:
            raise SpaceError(f"expected a vector environment in SAME_STEP mode, got {mode}")
        self.env, self.reward_dtype = env, reward_dtype  # before SB3 asks for attributes of the environments
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._returns, self._lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
        self._actions: Array | None = None

    def reset(self) -> VecEnvObs:
        seeds = [None if seed is None else int(seed) for seed in self._seeds]
        given = seeds if any(seed is not None for seed in seeds) else None
        obs, _ = self.env.reset(seed=given)  # type: ignore[arg-type]  # SyncVectorEnv takes one a row
        self._reset_seeds()
        self._returns[:], self._lengths[:] = 0.0, 0
        return np.array(obs)

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, terminated, truncated, info = self.env.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        # what SB3 asks of the last step of an episode, which the vector has reset already
        for row in np.flatnonzero(done).tolist():
            infos[row] = {
                "terminal_observation": info["final_obs"][row],
                "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                "episode": {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": 0.0},
            }
        self._returns[done], self._lengths[done] = 0.0, 0
        return np.array(obs), np.asarray(rewards, self.reward_dtype), done, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: object, indices: VecEnvIndices = None) -> None:
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: object, indices: VecEnvIndices = None, **method_kwargs: object
    ) -> NoReturn:
        raise SpaceError(f"rows of a batch have no method of their own: {method_name}")

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))


class AgentVecEnv(Sb3Adapter):
    """The environments that an agent is trained in: under attack or not, with the true observations recorded.

    Args:
        env: the vector environment, on the host.
        clip_rewards: return the signs of the rewards. The returns of finished episodes are as they are.

    Attributes:
        true_observations: the true observations ``[N, n]``, one batch a step, since somebody cleared them.
        add_noise: what the agent adds to observations ``[N, n]`` itself, after any attack; None for nothing.
    """

    def __init__(self, env: VectorEnv[Any, Any, Array], clip_rewards: bool = False) -> None:
        self.recorder, self.clip_rewards = VectorActionRecorder(env), clip_rewards
        super().__init__(self.recorder)
        self.true_observations: list[Array] = []
        self.add_noise: Callable[[Array], Array] | None = None

    def attack(self, threat: ThreatModel, victim: Victim) -> list[Layer]:
        """Put a threat between the environments and the agent; returns its layers.

        Args:
            threat: the threat to the agent's observations or actions.
            victim: fills in victims that the threat leaves open.
        """
        self.env = wrap(self.recorder, threat, victim=victim)
        end_diverged_episodes(self.env)
        return layers(self.env)

    def reset(self) -> VecEnvObs:
        return self._noisy(super().reset())

    def _noisy(self, obs: VecEnvObs) -> VecEnvObs:
        return obs if self.add_noise is None or not isinstance(obs, np.ndarray) else self.add_noise(obs)

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, done, infos = super().step_wait()
        self.true_observations.append(self.recorder.observation)
        obs = self._noisy(obs)
        return obs, np.sign(rewards) if self.clip_rewards else rewards, done, infos


class EpisodicNormalize(VecNormalize):
    """A ``VecNormalize`` that tells an algorithm of no time limit: every end of an episode is its end.

    Without a discount what counts is the sum of an episode. SB3 adds the value of the last state to an episode that was
    truncated, and so would go on adding, since the sum of all that might have followed has no bound.
    """

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = super().step_wait()
        return obs, rewards, dones, [{**info, "TimeLimit.truncated": False} for info in infos]
