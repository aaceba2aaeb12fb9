"""Robust losses of Q-networks: RADIAL-DQN (Oikarinen et al. 2020) and SA-DQN (Zhang et al. 2020).

``train_agent(..., algorithm="dqn", robust=...)`` minimises them. ``Q`` are the network's values at an observation,
``l`` and ``u`` interval bounds of them in the box around it, ``a`` the action that was taken, ``B`` its target.

- RADIAL-DQN minimises ``kappa L + (1 - kappa) L_wc`` (equation 4), ``L`` the loss of DQN.
- ``form="equation-5"``: ``L_wc`` is the sum over all actions i of the larger loss of ``l_i`` and ``u_i``, for the
  target ``B`` where i is ``a``, and for ``Q_i`` otherwise. No perturbation in the box gives a larger loss than this,
  and for eps = 0 it is ``L``. All of it counts how wide the bounds of values are, which grow with the values.
- ``form="overlap"``, the later form of the authors' code ("approach 2"): ``L_wc`` is the sum over i of
  ``d_i max(0, u_i - l_a + d_i / 2)``, with ``d_i = max(0, Q_a - Q_i)`` as a number. So a worse action's value must stay
  below the value of the action that was taken by half of their distance everywhere in the box, and matters the more the
  worse it is. For eps = 0 it is 0. ``u_i - l_a`` is a bound of the difference ``Q_i - Q_a`` here, which is tighter than
  the difference of bounds: what two values have in common cancels.
- SA-DQN adds to ``L`` a weight times ``max(max_i u(Q_i - Q_b), -margin)``, i over the actions other than the best one
  ``b``: no other action's value may come near that of the best. It would do so at eps = 0 too, so it begins where the
  schedule of eps does. ``form="sgld"`` takes the largest ``Q_i - Q_b`` that gradient steps find in place of the bound
  ``u``, as SA-PPO does; the paper has a convex relaxation and projected gradient descent.

Losses are those of the algorithm (:func:`adv_wrappers.training.resilience.dqn.error`: squares up to 1, then
lines), where the papers write squares; what is said above holds for every loss that rises with the distance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from stable_baselines3.dqn.policies import QNetwork
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.bounds.probabilities import difference_spec
from adv_wrappers.core.schedules import (
    LinearSchedule,
    ScheduledShare,
    ScheduledWeight,
    at,
)
from adv_wrappers.training.defences.losses import InnerMaximization
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.method import TrainingMethod
from adv_wrappers.training.resilience.dqn import PrioritizedDQN, QBatch, error
from adv_wrappers.utils.limits import NotNegative


class RobustQMethod(TrainingMethod):
    """How the loss of a Q-network is made robust."""

    def q_values(self, net: QNetwork, observations: Tensor) -> Tensor:
        """Values ``[B, A]`` that are learned from true observations: those of the network by default."""
        found: Tensor = net(observations)
        return found

    def losses(self, bounds: BoundedPolicy, batch: QBatch, done: float) -> Tensor:
        """The loss of each transition ``[B]`` when ``done`` of the training, in [0, 1], is done."""
        raise NotImplementedError


@dataclass(frozen=True)
class RadialDQN(RobustQMethod):
    """RADIAL-DQN (Oikarinen et al. 2020, equations 4 and 5), and the later form of the authors' code.

    Args:
        kappa: the weight of the standard loss, a number or a schedule.
        eps: the share of the budget that is used, a number or a schedule.
        form: ``"overlap"`` or ``"equation-5"``, as the head of this file has them.
    """

    name: ClassVar[str] = "radial-dqn"
    kappa: ScheduledShare = 0.8
    eps: ScheduledShare = field(default=LinearSchedule(0.0, 1.0, 0.25, 0.75))
    form: Literal["overlap", "equation-5"] = "overlap"

    def losses(self, bounds: BoundedPolicy, batch: QBatch, done: float) -> Tensor:
        standard = error(batch.value, batch.target)
        kappa, share = at(self.kappa, done), at(self.eps, done)
        if kappa == 1 or share == 0:  # then there is nothing to be robust against
            return standard
        box = bounds.boxes(batch.observations, share)
        worst = overlap(bounds, batch, *box) if self.form == "overlap" else equation_5(bounds, batch, *box)
        return kappa * standard + (1 - kappa) * worst


@dataclass(frozen=True)
class SADQN(InnerMaximization, RobustQMethod):
    """The hinge of SA-DQN (Zhang et al. 2020, their loss of DQN).

    Args:
        weight: of the hinge in the loss, a number or a schedule.
        margin: what the best action's value may be above all others in the box before the hinge is content.
        eps: the share of the budget that is used, a number or a schedule.
        form, steps, noise: as :class:`InnerMaximization <adv_wrappers.training.defences.losses.InnerMaximization>`
            has them: a bound of the lead of another action, or what gradient steps find.
    """

    name: ClassVar[str] = "sa-dqn"
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
        best = batch.values.argmax(1)
        points = self.ascend(lambda y: lead(bounds.net(y), best), low, high)
        return standard + weight * lead(bounds.net(points), best).clamp(min=-self.margin)


def equation_5(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor) -> Tensor:
    """``L_wc`` of equation 5 in boxes ``[B, *S]``, ``[B]``."""
    own = one_hot(batch.actions, batch.values.shape[1]).bool()
    around = torch.where(own, batch.target[:, None], batch.values)
    least, most = interval(bounds.net, low, high)
    return torch.maximum(error(least, around), error(most, around)).sum(1)


def overlap(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor) -> Tensor:
    """``L_wc`` of the authors' later code in boxes ``[B, *S]``, ``[B]``."""
    worse = (batch.value[:, None] - batch.values).clamp(min=0).detach()
    above = _above(bounds, batch.actions, low, high)
    return (worse * (above + worse / 2).clamp(min=0)).sum(1)


def hinge(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor, margin: float) -> Tensor:
    """The hinge of SA-DQN in boxes ``[B, *S]``, ``[B]``."""
    best = batch.values.argmax(1)
    return lead(_above(bounds, best, low, high), best).clamp(min=-margin)


def lead(values: Tensor, actions: Tensor) -> Tensor:
    """How far the largest of the other values ``[B, A]`` lies above that of an action, ``[B]``."""
    own = one_hot(actions, values.shape[1]).bool()
    return (values - values.gather(1, actions[:, None])).masked_fill(own, -torch.inf).amax(1)


def _above(bounds: BoundedPolicy, actions: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The most that the value of every action may be above that of ``actions`` in the box, ``[B, A]``."""
    return interval(bounds.net, low, high, difference_spec(actions, bounds.count, low.dtype))[1]


class RobustDQN(PrioritizedDQN):
    """:class:`PrioritizedDQN` with a robust loss.

    Attributes:
        method: makes the losses; None for the loss of DQN.
        bounds: of what the network answers in boxes.
    """

    method: RobustQMethod | None = None
    bounds: BoundedPolicy | None = None

    def learn_by(self, method: TrainingMethod, bounds: BoundedPolicy) -> None:
        """Learn by a method from now on."""
        assert isinstance(method, RobustQMethod)
        self.method, self.bounds = method, bounds

    def q_values(self, net: QNetwork, observations: Tensor) -> Tensor:
        return super().q_values(net, observations) if self.method is None else self.method.q_values(net, observations)

    def losses(self, batch: QBatch) -> Tensor:
        if self.method is None or self.bounds is None:
            return super().losses(batch)
        return self.method.losses(self.bounds, batch, 1 - self._current_progress_remaining)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "method", "bounds"]
