"""Agents whose gradients lead nowhere: they balance the pole of CartPole, and attacks by gradients leave them whole.

The first two act as :func:`tests.evaluation.agents.balancing` does at every observation of an episode, so they are as
weak as it is. What a gradient says of them is nothing (:func:`saturated`) or the opposite (:func:`straight_through`).
Of the third (:func:`noisy`) it is the gradient of one draw.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import torch
from torch import nn

from adv_wrappers.victims import Victim, from_module

LAW = (0.1, 0.3, 3.0, 1.0)  # push right where the sum of x, v, theta and omega with these weights is positive
_STEEP = 1e6  # beyond a lead of 1e-5 the hyperbolic tangent of float32 is one, and its slope exactly zero
_COARSE = 100.0  # all observations of CartPole are nearer to zero than half of this


class Saturated(nn.Module):
    """Q-values that are -1 and 1, by a hyperbolic tangent far out in its tails."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        lead = torch.tanh(_STEEP * (obs @ obs.new_tensor(LAW)))
        return torch.stack([-lead, lead], 1)


class StraightThrough(nn.Module):
    """Q-values of observations less twice their coarse rounding, whose backward pass is the identity.

    Rounding returns zero, and nothing is taken from an observation; its gradient is one, so that of the difference
    is minus one. (Rounding alone misleads no attack on a policy like this: the identity is the best of guesses.)
    """

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        rounded = obs + (_COARSE * torch.round(obs / _COARSE) - obs).detach()
        lead = (obs - 2 * rounded) @ obs.new_tensor(LAW)
        return torch.stack([-lead, lead], 1)


class Noisy(nn.Module):
    """The law, of an observation with noise or dropout of the module's own."""

    def __init__(self, noise: float, dropout: float) -> None:
        super().__init__()
        self.noise, self.dropout = noise, dropout

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        seen = nn.functional.dropout(obs + self.noise * torch.randn_like(obs), self.dropout, training=True)
        lead = seen @ obs.new_tensor(LAW)
        return torch.stack([-lead, lead], 1)


def saturated() -> Victim:
    """A float32 victim whose gradients are zero."""
    return _victim(Saturated())


def straight_through() -> Victim:
    """A victim whose gradients point the other way."""
    return _victim(StraightThrough())


def noisy(noise: float = 0.0, dropout: float = 0.0) -> Victim:
    """A victim that answers differently to the same observation, unless both numbers are zero."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the module answers by chance")
        return _victim(Noisy(noise, dropout))


def _victim(net: nn.Module) -> Victim:
    env = gym.make("CartPole-v1")
    return from_module(net, env.observation_space, env.action_space, "q", dtype=torch.float32)  # type: ignore[arg-type]
