"""What robust losses are made of: a base for each kind of algorithm, and the largest value of an objective in a box.

A defence is a file beside this one, named after its paper: a subclass of :class:`RobustPolicyMethod` (PPO, A2C) or
:class:`RobustQMethod` (DQN), which says what is minimised. ``robust_ppo.py`` and ``robust_dqn.py`` are the algorithms
that minimise it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.dqn.policies import QNetwork
from torch import Tensor, nn

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.bounds.probabilities import difference_spec
from adv_wrappers.training.defences.method import TrainingMethod
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.sb3.prioritized_dqn import QBatch
from adv_wrappers.utils.validation import NotNegative, Positive


@dataclass
class PolicyBatch:
    """A minibatch, as the losses of policies see it.

    Attributes:
        observations: of the rollout buffer, ``[B, *S]``.
        actions: int64 ``[B]``, or float ``[B, D]``.
        advantages: ``[B]``, as the algorithm uses them.
        log_prob: log-probabilities of the actions now, ``[B]``.
        old_log_prob: those at the time of the rollout, ``[B]``.
        clip: PPO's limit on how far probabilities move; None for A2C.
    """

    observations: Tensor
    actions: Tensor
    advantages: Tensor
    log_prob: Tensor
    old_log_prob: Tensor
    clip: float | None

    def surrogate(self, log_prob: Tensor) -> Tensor:
        """The algorithm's loss of each row ``[B]`` from log-probabilities ``[B]``: PPO's clipped one, or A2C's."""
        if self.clip is None:
            return -self.advantages * log_prob
        ratio = (log_prob - self.old_log_prob).exp()
        return -torch.min(ratio * self.advantages, ratio.clamp(1 - self.clip, 1 + self.clip) * self.advantages)

    def clipped(self, log_prob: Tensor) -> Tensor:
        """Bool ``[B]``, the rows that the algorithm would not move further, from log-probabilities ``[B]``."""
        if self.clip is None:
            return torch.zeros_like(log_prob, dtype=torch.bool)
        ratio = (log_prob - self.old_log_prob).exp()
        return torch.where(self.advantages >= 0, ratio > 1 + self.clip, ratio < 1 - self.clip)


class LearnsByMethod(BaseAlgorithm):
    """An algorithm with a robust loss; a base beside one of Stable-Baselines3.

    Attributes:
        method: makes the loss; None for that of the algorithm.
        bounds: of what the agent answers in boxes.
    """

    method: Any = None
    bounds: BoundedPolicy | None = None

    def learn_by(self, method: TrainingMethod, bounds: BoundedPolicy) -> None:
        """Learn by a method from now on."""
        self.method, self.bounds = method, bounds

    @property
    def done(self) -> float:
        """The share of the training that is done, in [0, 1]."""
        return 1 - self._current_progress_remaining

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "method", "bounds"]


class RobustPolicyMethod(TrainingMethod):
    """How the loss of a policy is made robust."""

    def check(self, bounds: BoundedPolicy) -> None:
        """Raise :class:`ThreatError` for a policy that the method is not for."""

    def make_critic(self, model: OnPolicyAlgorithm) -> nn.Module | None:
        """A critic of the method's own, with its ``optimizer``, which is kept with the model; None by default."""
        return None

    def noise_share(self, done: float) -> float:
        """Gaussian noise on what rollouts see when ``done`` of the training is done, in radii of the budget."""
        return 0.0

    def learn_from_rollout(self, model: OnPolicyAlgorithm, bounds: BoundedPolicy) -> None:
        """What the method learns from a rollout, before the policy does; nothing by default."""

    def policy_loss(self, bounds: BoundedPolicy, batch: PolicyBatch, done: float) -> Tensor:
        """The mean loss of a minibatch when ``done`` of the training, in [0, 1], is done."""
        raise NotImplementedError


class RobustQMethod(TrainingMethod):
    """How the loss of a Q-network is made robust."""

    def q_values(self, net: QNetwork, observations: Tensor) -> Tensor:
        """Values ``[B, A]`` that are learned from true observations: those of the network by default."""
        found: Tensor = net(observations)
        return found

    def losses(self, bounds: BoundedPolicy, batch: QBatch, done: float) -> Tensor:
        """The loss of each transition ``[B]`` when ``done`` of the training, in [0, 1], is done."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class InnerMaximization:
    """A loss that takes the largest value of an objective in a box, by a bound or by a search.

    Args:
        form: ``"interval"``, an upper bound of it, by interval bounds of the network; or ``"sgld"``, a lower one, at
            points that stochastic gradient Langevin dynamics along signs find, as in SA-PPO's code (Zhang et al. 2020).
        steps: of ``"sgld"``.
        noise: the standard deviation of its noise, for a gradient of length one.
    """

    form: Literal["interval", "sgld"] = "interval"
    steps: Positive = 10
    noise: NotNegative = 1e-5

    def ascend(self, objective: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
        """Points of boxes at which an objective is large, as :func:`langevin_ascent` finds them."""
        return langevin_ascent(objective, low, high, self.steps, self.noise)


def langevin_ascent(
    objective: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, steps: int, noise: float
) -> Tensor:
    """Points of boxes ``[B, *S]`` at which an objective ``[B]`` is large, by SGLD along signs, as in SA-PPO's code.

    Args:
        objective: of points ``[B, *S]``, each row for itself.
        low, high: the boxes; the first points are a step from their middle.
        steps: of half a width of the box in all.
        noise: the standard deviation of the noise, for a gradient of length one.

    The attack of this kind is :func:`adv_wrappers.attacks.gradient_attack.langevin`, which draws by the keys of its
    context and moves within a budget; here boxes of the training differ a row, and torch's generator draws.
    """
    step = (high - low) / (2 * steps)
    scale = noise * (2 / steps) ** 0.5
    y = torch.clamp((low + high) / 2 + torch.randn_like(low).sign() * step, low, high)
    # y <- clip(y + step sign(gradient + noise that falls with the steps))
    for i in range(steps):
        y = y.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(y).sum(), y)
        moved = y + (gradient + scale / (i + 2) * torch.randn_like(y)).sign() * step
        y = torch.clamp(moved, low, high)
    return y.detach()


def values_above(bounds: BoundedPolicy, actions: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The most that the value of every action may be above that of ``actions`` in the box, ``[B, A]``."""
    return interval(bounds.net, low, high, difference_spec(actions, bounds.count, low.dtype))[1]
