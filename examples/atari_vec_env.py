"""What training on Atari needs beside SB3: a small trunk, and ALE's own vector environment as a ``VecEnv``."""

from __future__ import annotations

from typing import Any

import ale_py.vector_env
import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv


class Trunk(BaseFeaturesExtractor):
    """The trunk of Mnih et al. 2015 with half of its channels: pixels in [0, 1] ``[B, 4, 84, 84]`` to ``[B, 256]``."""

    def __init__(self, observation_space: gym.spaces.Box) -> None:
        super().__init__(observation_space, features_dim=256)
        convs = [torch.nn.Conv2d(4, 16, 8, 4), torch.nn.Conv2d(16, 32, 4, 2), torch.nn.Conv2d(32, 32, 3)]
        layers = [layer for conv in convs for layer in (conv, torch.nn.ReLU())]
        self.net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(32 * 49, 256), torch.nn.ReLU())

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(pixels)
        return out


class AtariVecEnv(VecEnv):
    """ALE's own vector environment as the ``VecEnv`` that SB3 trains in."""

    def __init__(self, rom: str, num_envs: int, seed: int) -> None:
        mode = gym.vector.AutoresetMode.SAME_STEP
        self.env = ale_py.vector_env.AtariVectorEnv(rom, num_envs, num_threads=1, autoreset_mode=mode)
        self.first_seed: int | None = seed
        self.returns, self.lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        super().__init__(num_envs, self.env.single_observation_space, self.env.single_action_space)

    def reset(self) -> np.ndarray:
        obs, _ = self.env.reset(seed=self.first_seed)
        self.first_seed = None
        return np.asarray(obs)

    def step_async(self, actions: np.ndarray) -> None:
        self.env.send(actions)

    def step_wait(self) -> Any:
        obs, rewards, terminated, truncated, info = self.env.recv()
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.returns, self.lengths = self.returns + rewards, self.lengths + 1
        for i in np.flatnonzero(done):
            infos[i] = {
                "terminal_observation": info["final_obs"][i], "TimeLimit.truncated": bool(truncated[i]),
                "episode": {"r": float(self.returns[i]), "l": int(self.lengths[i])},
            }  # fmt: skip
            self.returns[i] = self.lengths[i] = 0
        return obs, rewards.astype(np.float32), done, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("the games of an AtariVectorEnv have no attributes of their own")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError("the games of an AtariVectorEnv have no methods of their own")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs
