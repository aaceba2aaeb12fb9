"""Agents trained for randomized smoothing: S-DQN and S-PPO (Sun et al. 2024), ``train_agent(robust="smoothed")``.

A smoothed agent (:class:`adv_wrappers.victims.smoothed.Smoothed`) adds Gaussian noise to all that it sees, so that its
return under every attack of a given length has a lower bound. An agent that never met such noise falls with it. These
meet it in training, and their result is the smoothed agent. The radius of the budget is the standard deviation of the
noise: ``eps`` is sigma, in the units of ``scale``.

- S-PPO, here also A2C (:class:`SmoothedPolicy`): rollouts are made on noisy observations, and the policy learns from
  them by its own loss.
- S-DQN (:class:`SmoothedDQN`): a denoiser ``D`` stands before the Q-network ``Q``. ``Q`` learns from true observations
  by the loss of DQN, as if there were no noise. From a transition whose observation ``s`` gets new noise at every
  update, ``y = s + N(0, sigma^2)``, ``D`` learns what ``Q`` needs to see, with the weights of ``Q`` held::

      error(Q(D(y), a), B) + reconstruction * mean of ((D(y) - s) / sigma)^2

  with the target ``B`` of ``Q`` at the true next observation, as in the authors' code. The agent that comes out acts by
  the most frequent of the best actions for ``vote`` noisy copies of what it sees ("hard randomized smoothing").

Departures: the paper's S-DQN sums the squares over pixels, and its denoiser is a convolutional network of images, this
one two linear layers that begin as the identity. It trains ``D`` for a ``Q`` that was trained before and is held; here
both learn at once, the agent explores through ``D`` without noise, and ``victim=`` begins from a trained ``Q``. The
paper's noise grows over a third of the training, here over the first half. Its S-PPO acts by the median of the noisy
policy's means, in training too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.dqn.policies import QNetwork
from torch import Tensor, nn
from torch.func import functional_call

from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.training_schedules import (
    LinearSchedule,
    ScheduledShare,
    ScheduledWeight,
    at,
)
from adv_wrappers.errors import BudgetError
from adv_wrappers.training.defences.base import PolicyBatch, RobustPolicyMethod, RobustQMethod
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.sb3.prioritized_dqn import QBatch, error
from adv_wrappers.utils.validation import Positive
from adv_wrappers.victims.smoothed import Smoothed
from adv_wrappers.victims.victim import Victim

_HIDDEN = 64  # of the denoiser, at least


class DenoisingExtractor(BaseFeaturesExtractor):
    """Two linear layers from observations ``[B, n]`` to observations, the identity at first."""

    def __init__(self, space: spaces.Box) -> None:
        count = space.shape[0]
        super().__init__(space, count)
        hidden = max(_HIDDEN, 2 * count)
        first, last = nn.Linear(count, hidden), nn.Linear(hidden, count)
        self.net = nn.Sequential(first, nn.ReLU(), last)
        with torch.no_grad():  # x = relu(x) - relu(-x); the other hidden neurons count for nothing yet
            eye = torch.eye(count)
            first.weight[: 2 * count] = torch.cat([eye, -eye])
            first.bias[: 2 * count] = 0.0
            last.weight.copy_(torch.cat([eye, -eye, torch.zeros(count, hidden - 2 * count)], 1))
            last.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


def smoothed(victim: Victim, within: Budget, vote: int = 1) -> Smoothed:
    """A victim with the noise whose standard deviation is the radius of a budget, and ``vote`` copies of it.

    Raises:
        BudgetError: for a budget that is no :class:`Linf`.
    """
    if not isinstance(within, Linf):
        raise BudgetError(f"the radius of Linf is the standard deviation of the noise: {within!r:.80} has none")
    return Smoothed(victim, within.eps, vote, scale=within.scale)


@dataclass(frozen=True)
class SmoothedPolicy(RobustPolicyMethod):
    """S-PPO (Sun et al. 2024): the algorithm's own loss, on noisy observations; see the head of this file.

    Args:
        sigma: the share of the noise that is added, a number or a schedule.
    """

    name: ClassVar[str] = "smoothed"
    loss: ClassVar[str] = "smoothed"
    bounded: ClassVar[bool] = False
    images: ClassVar[bool] = False
    sigma: ScheduledShare = field(default=LinearSchedule(0.0, 1.0, end=0.5))

    def deployed(self, victim: Victim, within: Budget) -> Victim:
        return smoothed(victim, within)

    def noise_share(self, done: float) -> float:
        return at(self.sigma, done)

    def policy_loss(self, bounds: BoundedPolicy, batch: PolicyBatch, done: float) -> Tensor:
        return batch.surrogate(batch.log_prob).mean()


@dataclass(frozen=True)
class SmoothedDQN(RobustQMethod):
    """S-DQN (Sun et al. 2024); see the head of this file.

    Args:
        sigma: the share of the noise that is added, a number or a schedule.
        reconstruction: the weight of the denoiser's squared error, a number or a schedule.
        vote: how many noisy copies of an observation the agent that comes out acts on, at least 1.
    """

    name: ClassVar[str] = "smoothed-dqn"
    loss: ClassVar[str] = "smoothed"
    bounded: ClassVar[bool] = False
    images: ClassVar[bool] = False
    policy_kwargs: ClassVar[dict[str, Any]] = {"features_extractor_class": DenoisingExtractor}
    sigma: ScheduledShare = field(default=LinearSchedule(0.0, 1.0, end=0.5))
    reconstruction: ScheduledWeight = 0.1
    vote: Positive = 15

    def deployed(self, victim: Victim, within: Budget) -> Victim:
        return smoothed(victim, within, self.vote)

    def q_values(self, net: QNetwork, observations: Tensor) -> Tensor:
        found: Tensor = net.q_net(observations)  # without the denoiser
        return found

    def losses(self, bounds: BoundedPolicy, batch: QBatch, done: float) -> Tensor:
        net: QNetwork = bounds.model.q_net  # type: ignore[attr-defined]
        unit = bounds.radius(batch.observations)
        noisy = batch.observations + at(self.sigma, done) * unit * torch.randn_like(batch.observations)
        denoised = net.features_extractor(noisy)
        held = {name: weight.detach() for name, weight in net.q_net.named_parameters()}
        values = functional_call(net.q_net, held, denoised).gather(1, batch.actions[:, None])[:, 0]
        # a feature without noise has nothing to reconstruct, and no unit
        off = ((denoised - batch.observations) / unit.where(unit > 0, torch.inf)).square().mean(1)
        standard = error(batch.value, batch.target)
        found: Tensor = standard + error(values, batch.target) + at(self.reconstruction, done) * off
        return found
