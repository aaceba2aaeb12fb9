"""Small DQN agents with known Q-values, and batches of transitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from adv_wrappers.training.sb3.prioritized_dqn import QBatch

SMALL: dict[str, Any] = {
    "num_envs": 4, "checks": 2, "episodes": 2,
    "settings": {"learning_starts": 32, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}},
}  # fmt: skip


def lines(weights, biases):
    """A network of one linear layer, as the losses see it."""
    layer = nn.Linear(len(weights[0]), len(weights))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights))
        layer.bias.copy_(torch.tensor(biases))
    return SimpleNamespace(net=nn.Sequential(layer), count=len(weights))


def made(bounds, x, actions, target):
    return QBatch(x, bounds.net(x), torch.tensor(actions), torch.tensor(target))


def random_batch(seed, rows=64, count=3):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, count)).double()
    x, bounds = torch.randn(rows, 4).double(), SimpleNamespace(net=net, count=count)
    return bounds, QBatch(x, net(x), torch.randint(count, (rows,)), 2 * torch.randn(rows).double())
