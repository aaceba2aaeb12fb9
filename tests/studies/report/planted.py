"""Agents whose report is known beforehand, in an environment of single guesses."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers.utils.trees import leaves

STEPS = 20
SEEN = spaces.Box(0, 1, (3,), np.float32)
GUESSES = spaces.Discrete(2)


class Guess(gym.Env[Any, Any]):
    """Twenty guesses whether the first feature is above one half, a point for each that is right.

    Args:
        margin: how far from one half it is at least, on either side.
        wide: whether it may be anywhere beyond the margin, so that its range is large.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form
    observation_space, action_space = SEEN, GUESSES

    def __init__(self, margin: float = 0.1, wide: bool = True) -> None:
        self.margin, self.wide = margin, wide

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, self.t = float(int(action) == self.right), self.t + 1
        return self._next(), reward, self.t == STEPS, False, {}

    def _next(self) -> Any:
        self.right = int(self.np_random.integers(2))
        far = self.margin if self.t % 4 or not self.wide else self.np_random.uniform(self.margin, 0.5)
        first = 0.5 + (far if self.right else -far)
        return np.array([first, *self.np_random.uniform(0, 1, 2)], np.float32)


class Narrow(Guess):
    """Guesses that are decided by less than a hundredth of the range."""

    def __init__(self) -> None:
        super().__init__(0.002)


class Plain(nn.Module):
    """Logits by the first feature alone."""

    def forward(self, obs: Tensor) -> Tensor:
        return torch.stack([0.5 - obs[:, 0], obs[:, 0] - 0.5], 1) * 10


class Deaf(nn.Module):
    """The same logits whatever is seen."""

    def forward(self, obs: Tensor) -> Tensor:
        return obs[:, :2] * 0 + torch.tensor([0.0, 1.0])


def victim(net: nn.Module) -> adv.Victim:
    """An agent with these logits."""
    return adv.from_module(net, SEEN, GUESSES, "logits")


class Shown(gym.Env[Any, Any]):
    """Four observations drawn from a space, a point for each action 1.

    Args:
        space: of the observations.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form
    action_space = GUESSES

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.observation_space.sample(), float(action), self.t == 4, False, {}


class Sum(nn.Module):
    """Logits by the sum of all numbers of an observation of any space."""

    def forward(self, obs: Any) -> Tensor:
        total = sum(leaf.float().reshape(len(leaf), -1).sum(1) for leaf in leaves(obs))
        assert isinstance(total, Tensor)
        return torch.stack([total, 1 - total], 1)


def showing(space: spaces.Space[Any]) -> Shown:
    """The environment that shows samples of a copy of a space."""
    return Shown(copy.deepcopy(space))


def agent_for(space: spaces.Space[Any]) -> adv.Victim:
    """An agent that sees such a space."""
    return adv.from_module(Sum(), space, GUESSES, "logits")
