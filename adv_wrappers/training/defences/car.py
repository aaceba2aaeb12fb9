"""CAR-DQN: robust Q-learning by the largest Bellman error (Li et al. 2024), ``train_agent(robust="car")``.

The policy that is best without attacks is also robust, the paper shows, as long as small perturbations do not change
which action is best; but values that are right on average do not make it so: what has to be small is the largest error.
So CAR-DQN minimises a soft form of the largest Bellman error over the transitions of a minibatch, each at the worst
point of its box (their equation of the loss "CAR")::

    L = sum of p_i e_i,   e_i = max over y in the box of error(Q(y, a_i), B_i),   p_i = exp(e_i / softness) / sum

with the target ``B_i`` of the transition at the true observation. As in the paper there are two forms of ``e_i``:

- ``form="interval"`` bounds it from above, by the interval bounds of the value of the action that was taken: the error
  is largest at one of their ends;
- ``form="sgld"`` bounds it from below, by the error at a point that gradient steps find in the box, as SA-PPO takes
  them; the paper takes steps of projected gradient descent.

As in the authors' code the weights ``p_i`` have no gradient, and ``kappa`` mixes the loss of DQN in (their option; 0 is
the paper). They go on from an agent that was trained without attacks: ``train_agent(victim=...)``. The error is that of
the algorithm here (squares, halved, up to 1, then lines), where the code has the smaller one of the square and the
distance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core.training_schedules import LinearSchedule, ScheduledShare, at
from adv_wrappers.training.defences.base import InnerMaximization, RobustQMethod
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.sb3.prioritized_dqn import QBatch, error
from adv_wrappers.utils.validation import AboveZero


@dataclass(frozen=True)
class CarDQN(InnerMaximization, RobustQMethod):
    """CAR-DQN (Li et al. 2024); see the head of this file.

    Args:
        softness: of the largest error of a minibatch: towards 0 the largest counts alone, towards infinity all
            count alike.
        kappa: the weight of the loss of DQN beside it, a number or a schedule.
        eps: the share of the budget that is used, a number or a schedule.
        form, steps, noise: as :class:`InnerMaximization <adv_wrappers.training.defences.base.InnerMaximization>`
            has them: a bound of the error, or what gradient steps find.
    """

    name: ClassVar[str] = "car-dqn"
    loss: ClassVar[str] = "car"
    softness: AboveZero = 1.0
    kappa: ScheduledShare = 0.0
    eps: ScheduledShare = field(default=LinearSchedule(0.0, 1.0, 0.25, 0.75))

    def losses(self, bounds: BoundedPolicy, batch: QBatch, done: float) -> Tensor:
        kappa, share = at(self.kappa, done), at(self.eps, done)
        low, high = bounds.boxes(batch.observations, share)
        if self.form == "interval":
            worst = largest_error(bounds, batch, low, high)
        else:
            worst = error_at(bounds, batch, self.ascend(lambda y: error_at(bounds, batch, y), low, high))
        weights = len(worst) * torch.softmax(worst.detach() / self.softness, 0)  # their mean is one, as the loss takes
        return kappa * error(batch.value, batch.target) + (1 - kappa) * weights * worst


def largest_error(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor) -> Tensor:
    """A bound of the error of the action that was taken anywhere in boxes ``[B, *S]``, ``[B]``."""
    own = one_hot(batch.actions, batch.values.shape[1]).to(low.dtype)[:, None]
    least, most = (end[:, 0] for end in interval(bounds.net, low, high, own))
    return torch.maximum(error(least, batch.target), error(most, batch.target))


def error_at(bounds: BoundedPolicy, batch: QBatch, points: Tensor) -> Tensor:
    """The error of the action that was taken at other observations ``[B, *S]``, ``[B]``."""
    return error(bounds.net(points).gather(1, batch.actions[:, None])[:, 0], batch.target)
