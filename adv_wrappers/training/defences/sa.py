"""SA-PPO and SA-DQN (Zhang et al. 2020): a regularizer for policies that answer alike in the whole box.

``train_agent(..., robust="sa")`` adds to the loss of the algorithm a weight times how far the answer may move within
the budget: the divergence of the policy (:class:`SARegularizer`, for PPO and A2C), or the lead of another action
(:class:`SADQN`). ``form="interval"`` bounds it from above, ``form="sgld"`` finds a large one by gradient steps. What
the paper leaves open, or where this differs:

- SA-PPO's code (github.com/huanzhang12/SA_PPO) adds ``kappa * sum((mean(y) - mean(x))**2 / std**2)``, twice the
  divergence: its kappa of 0.03 (convex relaxation) and 0.1 (SGLD) on Hopper are a ``weight`` of 0.06 and 0.2 here. Its
  relaxation goes from CROWN's bounds to interval bounds while eps rises; ``form="interval"`` has the latter alone. Its
  eps rises over three quarters of 2M steps, and SGLD holds the clean mean constant.
- SA-DQN adds to the loss of DQN a weight times ``max(max_i u(Q_i - Q_b), -margin)``, with u an upper bound, and i over
  the actions other than the best one ``b``: no other action's value may come near that of the best. It would do so at
  eps = 0 too, so it begins where the schedule of eps does. ``form="sgld"`` takes the largest ``Q_i - Q_b`` that
  gradient steps find in place of the bound, as SA-PPO does; the paper has a convex relaxation and projected gradient
  descent.
- SA-DDPG is not here: at no weight that was tried did it leave TD3 more than TD3 has without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.core.training_schedules import LinearSchedule, ScheduledShare, ScheduledWeight, at
from adv_wrappers.training.defences.base import (
    InnerMaximization,
    PolicyBatch,
    RobustPolicyMethod,
    RobustQMethod,
    values_above,
)
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.sb3.prioritized_dqn import QBatch, error
from adv_wrappers.utils.validation import NotNegative


@dataclass(frozen=True)
class SARegularizer(InnerMaximization, RobustPolicyMethod):
    """The regularizer of SA-PPO (Zhang et al. 2020): the largest ``KL(pi(x), pi(y))`` for ``y`` in the box.

    Args:
        weight: of the divergence in the loss, a number or a schedule.
        eps: the share of the budget that is used, a number or a schedule.
        form, steps, noise: as :class:`InnerMaximization <adv_wrappers.training.defences.base.InnerMaximization>`
            has them: a bound of the divergence, or what gradient steps find.
    """

    name: ClassVar[str] = "sa"
    loss: ClassVar[str] = "sa"
    weight: ScheduledWeight = 0.1
    eps: ScheduledShare = field(default=LinearSchedule(0.0, 1.0, end=2 / 3))

    def policy_loss(self, bounds: BoundedPolicy, batch: PolicyBatch, done: float) -> Tensor:
        standard = batch.surrogate(batch.log_prob).mean()
        weight, share = at(self.weight, done), at(self.eps, done)
        return standard if weight == 0 or share == 0 else standard + weight * self.largest(bounds, batch, done).mean()

    def largest(self, bounds: BoundedPolicy, batch: PolicyBatch, done: float) -> Tensor:
        """The largest divergence inside the boxes around the observations of a minibatch, or its bound, ``[B]``."""
        share = at(self.eps, done)
        if self.form == "interval":
            return bounds.divergence(batch.observations, share)
        clean = bounds.net(bounds.observed(batch.observations))
        held, boxes = clean.detach(), bounds.boxes(batch.observations, share)
        points = self.ascend(lambda y: bounds.divergence_at(y, held), *boxes)
        return bounds.divergence_at(points, clean)


@dataclass(frozen=True)
class SADQN(InnerMaximization, RobustQMethod):
    """The hinge of SA-DQN (Zhang et al. 2020, their loss of DQN).

    Args:
        weight: of the hinge in the loss, a number or a schedule.
        margin: what the best action's value may be above all others in the box before the hinge is content.
        eps: the share of the budget that is used, a number or a schedule.
        form, steps, noise: as :class:`InnerMaximization <adv_wrappers.training.defences.base.InnerMaximization>`
            has them: a bound of the lead of another action, or what gradient steps find.
    """

    name: ClassVar[str] = "sa-dqn"
    loss: ClassVar[str] = "sa"
    weight: ScheduledWeight = 0.1
    margin: NotNegative = 1.0
    eps: ScheduledShare = field(default=LinearSchedule(0.0, 1.0, 0.25, 0.75))

    def losses(self, bounds: BoundedPolicy, batch: QBatch, done: float) -> Tensor:
        standard = error(batch.value, batch.target)
        weight, share = at(self.weight, done), at(self.eps, done)
        if weight == 0 or share == 0:
            return standard
        low, high = bounds.boxes(batch.observations, share)
        if self.form == "interval":
            return standard + weight * hinge(bounds, batch, low, high, self.margin)
        # SGLD: the largest lead of another action that gradient steps find
        best = batch.values.argmax(1)
        points = self.ascend(lambda y: lead(bounds.net(y), best), low, high)
        return standard + weight * lead(bounds.net(points), best).clamp(min=-self.margin)


def hinge(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor, margin: float) -> Tensor:
    """The hinge of SA-DQN in boxes ``[B, *S]``, ``[B]``."""
    best = batch.values.argmax(1)
    return lead(values_above(bounds, best, low, high), best).clamp(min=-margin)


def lead(values: Tensor, actions: Tensor) -> Tensor:
    """How far the largest of the other values ``[B, A]`` lies above that of an action, ``[B]``."""
    own = one_hot(actions, values.shape[1]).bool()
    return (values - values.gather(1, actions[:, None])).masked_fill(own, -torch.inf).amax(1)
