"""Environments of a few steps, small trainings and batches for the tests of robust losses."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Normal

from adv_wrappers.training.agent import AGENT_ALGORITHMS, algorithm_settings, make_agent
from adv_wrappers.training.defences.base import PolicyBatch
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.defences.radial import Radial
from adv_wrappers.training.sb3.algorithms import Training
from adv_wrappers.training.sb3.conversion import live_victim
from tests.toys import Brief

SMALL: dict[str, Any] = {
    "steps": 128, "num_envs": 4, "checks": 2, "episodes": 2,
    "settings": {"n_steps": 16, "n_epochs": 1, "batch_size": 32},
}  # fmt: skip


class Reach(Brief):
    """Four features, two numbers to act with, eight steps an episode."""

    observation_space = spaces.Box(-3.0, 3.0, (4,), np.float32)
    action_space: spaces.Space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def seen(self):
        return self.np_random.uniform(-3, 3, 4).astype(np.float32)

    def seen_at(self, i):
        """The observation of this number."""
        self._np_random = np.random.default_rng(i)
        return self.seen()

    def act(self, action):
        return np.sum(action)


class Pictures(Reach):
    """Two frames of 36 x 36 pixels; the third of three actions pays, and costs now and then."""

    observation_space = spaces.Box(0, 255, (2, 36, 36), np.uint8)
    action_space = spaces.Discrete(3)

    def seen(self):
        return self.np_random.integers(0, 256, (2, 36, 36), dtype=np.uint8)

    def act(self, action):
        return 5.0 if action == 2 else -3.0


def bounded(env, budget, algorithm="ppo", **settings):
    """A new model, its bounds, and a batch of observations as its rollout buffer would hold them."""
    vector = gym.vector.SyncVectorEnv([env] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    images = len(vector.single_observation_space.shape) == 3
    every = algorithm_settings(AGENT_ALGORITHMS[algorithm], 2, {"n_steps": 8, **settings}, None, images=images)
    training = Training(64, algorithm, 2, 1, 1, 0, every, "cpu")
    model = make_agent(vector, training, None, None, method=Radial())
    normal = model.get_vec_normalize_env()
    if normal.norm_obs:
        normal.obs_rms.mean, normal.obs_rms.var = np.linspace(-1, 1, 4), np.linspace(0.5, 4, 4)
    with torch.no_grad():  # a new policy answers the same everywhere
        model.policy.action_net.weight.mul_(100)
    policy = BoundedPolicy(model, live_victim(model, "mode"), budget)
    return model, policy, torch.as_tensor(normal.normalize_obs(np.stack([env().seen_at(i) for i in range(16)])))


class Choose(Reach):
    """As :class:`Reach`, with three actions."""

    action_space = spaces.Discrete(3)


def points(policy, x, share, count=40):
    """Points of the boxes: corners, and random ones."""
    low, high = policy.boxes(x, share)
    generator = torch.Generator().manual_seed(0)
    for i in range(count):
        u = torch.rand(low.shape, generator=generator)
        yield low + (high - low) * (u.round() if i % 2 else u)


def distribution(policy, y):
    out = policy.net(y)
    if policy.count:
        return Categorical(logits=out)
    mean, log_std = out.chunk(2, -1)
    return Normal(mean, log_std.exp())


def total(value):
    return value.sum(-1) if value.dim() > 1 else value


def batch_of(policy, x, clip, seed=0):
    generator = torch.Generator().manual_seed(seed)
    advantages = torch.randn(len(x), generator=generator)
    actions = distribution(policy, policy.observed(x)).sample()
    log_prob = total(distribution(policy, policy.observed(x)).log_prob(actions))
    old = (log_prob + 0.2 * torch.randn(len(x), generator=generator)).detach()
    return PolicyBatch(x, actions, advantages, log_prob, old, clip)
