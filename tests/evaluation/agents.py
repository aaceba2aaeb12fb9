"""Agents that are good at CartPole without training, by a law with a hand-picked slope, and one that sees pictures."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.wrappers import TimeLimit
from torch import nn

from adv_wrappers.victims import Victim, from_module


def balancing(kind: str = "logits", select: str = "mode", sharpness: float = 4.0) -> Victim:
    """Pushes right where 0.1 x + 0.3 v + 3 theta + omega > 0: keeps the pole up for 500 steps."""
    net = nn.Linear(4, 2, bias=False, dtype=torch.float64)
    law = sharpness * torch.tensor([0.1, 0.3, 3.0, 1.0], dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.stack([-law, law]))
    env = gym.make("CartPole-v1")
    return from_module(net, env.observation_space, env.action_space, kind, select=select)  # type: ignore[arg-type]


def short() -> gym.Env[Any, Any]:
    """CartPole that ends after 40 steps."""
    return gym.make("CartPole-v1", max_episode_steps=40)


def make_short(id: str, steps: int = 40) -> gym.Env[Any, Any]:
    """An environment that ends after this many steps."""
    return gym.make(id, max_episode_steps=steps)


class Uncopied(CartPoleEnv):
    """CartPole that holds what cannot be copied."""

    def reset(self, **given: Any) -> Any:
        self.handle = (i for i in range(1000))
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        next(self.handle)
        return super().step(action)


def uncopied(steps: int = 40) -> gym.Env[Any, Any]:
    """CartPole whose state cannot be saved."""
    return TimeLimit(Uncopied(), steps)


class Film(gym.Env[Any, Any]):
    """Random pictures from the seed, for a number of steps that differs from episode to episode."""

    def __init__(self, space: gym.Space[Any] | None = None) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (2, 12, 16), np.uint8) if space is None else space
        self.action_space = gym.spaces.Discrete(2)

    def _picture(self) -> Any:
        drawn = self.np_random.uniform(size=self.observation_space.shape)
        return (255 * drawn).astype(np.uint8) if self.observation_space.dtype == np.uint8 else drawn.astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(10, 30))
        return self._picture(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self._picture(), 1.0, self.left == 0, False, {}


def watcher(env: gym.Env[Any, Any]) -> Victim:
    """Acts by which of the first two pixels is brighter."""
    spaces: Any = env.observation_space, env.action_space
    return from_module(lambda x: x.flatten(1)[:, :2], *spaces, "q", dtype=torch.float32)
