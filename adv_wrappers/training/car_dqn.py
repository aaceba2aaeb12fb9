"""CAR-DQN: robust Q-learning by the largest Bellman error (Li et al. 2024), ``train_agent(robust="car")``.

The policy that is best without attacks is also robust, the paper shows, as long as small perturbations do not change
which action is best; but values that are right on average do not make it so: what has to be small is the largest error.
So CAR-DQN minimises a soft form of the largest Bellman error over the transitions of a minibatch, each at the worst
point of its box (their equation of the loss "CAR")::

    L = sum of p_i e_i,   e_i = max over y in the box of error(Q(y, a_i), B_i),   p_i = exp(e_i / softness) / sum

with the target ``B_i`` of the transition at the true observation. ``e_i`` is bounded from the interval bounds of the
value of the action that was taken: the error is largest at one of their ends.

As in the authors' code the weights ``p_i`` have no gradient, and ``kappa`` mixes the loss of DQN in (their option; 0 is
the paper). The error is that of the algorithm here (squares, halved, up to 1, then lines), where the code has the
smaller one of the square and the distance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.bounds.interval_bound_propagation import interval
from adv_wrappers.core.schedules_over_training import LinearSchedule, Number, at, check_share
from adv_wrappers.training.dqn_of_behzadan_and_hsu import QBatch, error
from adv_wrappers.training.policy_interval_bounds import BoundedPolicy
from adv_wrappers.training.robust_dqn import RobustQMethod
from adv_wrappers.utils.check_numbers import check_number


@dataclass(frozen=True)
class CarDQN(RobustQMethod):
    """CAR-DQN (Li et al. 2024); see the head of this file.

    Args:
        softness: of the largest error of a minibatch, above 0: towards 0 the largest counts alone, towards infinity all
            count alike.
        kappa: the weight of the loss of DQN beside it, a number in [0, 1] or a schedule.
        eps: the share of the budget that is used, a number in [0, 1] or a schedule.

    Raises:
        ValueRangeError: for numbers out of range.
    """

    name: ClassVar[str] = "car-dqn"
    softness: float = 1.0
    kappa: Number = 0.0
    eps: Number = field(default=LinearSchedule(0.0, 1.0, 0.25, 0.75))

    def __post_init__(self) -> None:
        check_number("softness", self.softness, 0, above=True)
        check_share("kappa", self.kappa)
        check_share("eps", self.eps)

    def losses(self, bounds: BoundedPolicy, batch: QBatch, done: float) -> Tensor:
        kappa, share = at(self.kappa, done), at(self.eps, done)
        worst = largest_error(bounds, batch, *bounds.boxes(batch.observations, share))
        weights = len(worst) * torch.softmax(worst.detach() / self.softness, 0)  # their mean is one, as the loss takes
        return kappa * error(batch.value, batch.target) + (1 - kappa) * weights * worst


def largest_error(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor) -> Tensor:
    """A bound of the error of the action that was taken anywhere in boxes ``[B, *S]``, ``[B]``."""
    own = one_hot(batch.actions, batch.values.shape[1]).to(low.dtype)[:, None]
    least, most = (end[:, 0] for end in interval(bounds.net, low, high, own))
    return torch.maximum(error(least, batch.target), error(most, batch.target))
