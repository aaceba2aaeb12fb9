"""Contexts made by hand, small victims whose answers are known, and environments of which little is asked."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers import from_module
from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.victims import Victim


def context(
    x: Tensor,
    budget: Budget,
    low: float = -torch.inf,
    high: float = torch.inf,
    grid: bool = False,
    seed: int = 0,
    **more: Any,
) -> Context:
    """The context of one step around ``x`` ``[B, *S]``, in a space from ``low`` to ``high``."""
    space = torch.full(x.shape[1:], low, dtype=x.dtype), torch.full(x.shape[1:], high, dtype=x.dtype)
    box = budget.box(x, torch.minimum(space[0], x), torch.maximum(space[1], x))
    if grid:
        box = box[0].ceil(), box[1].floor()
    row_keys = rng.fold(torch.arange(len(x)), seed)
    return Context.around(x, budget, box, row_keys, space=space, grid=grid, **more)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers from a seed."""
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """The layer ``x W^T + b``."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(weight.shape[0]) if bias is None else bias)
    return layer


def box(size: int, bound: float = np.inf) -> spaces.Box:
    """A float64 box of ``size`` features."""
    return spaces.Box(-bound, bound, (size,), np.float64)


def mlp(inputs: int, outputs: int, seed: int = 0) -> nn.Sequential:
    """A small float64 network with random weights."""
    w1, w2 = randn(16, inputs, seed=seed), randn(outputs, 16, seed=seed + 1)
    return nn.Sequential(linear(w1), nn.Tanh(), linear(w2))


def chooser(net: nn.Module, kind: str = "logits", size: int = 4, actions: int = 3, **more: Any) -> Victim:
    """A victim with discrete actions around a network."""
    return from_module(net, box(size), spaces.Discrete(actions), kind, **more)


def actor(net: nn.Module, kind: str = "mean", size: int = 4, actions: int = 3, **more: Any) -> Victim:
    """A victim with continuous actions around a network."""
    return from_module(net, box(size), spaces.Box(-1, 1, (actions,), np.float64), kind, **more)


class OnlySpaces(gym.Env[Any, Any]):
    """Spaces, and nothing to play."""

    def __init__(self, seen: spaces.Space[Any], acted: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = seen, acted


class Grey(OnlySpaces):
    """A picture of one grey level, again and again."""

    def __init__(self, level: int, shape: tuple[int, ...]) -> None:
        super().__init__(spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2))
        self.picture = np.full(shape, level, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.picture.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.picture.copy(), 0.0, False, False, {}
