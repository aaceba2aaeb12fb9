"""Agents that are good at CartPole without training: a linear law with a hand-picked slope."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
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
    """CartPole that ends after 100 steps."""
    return gym.make("CartPole-v1", max_episode_steps=100)
