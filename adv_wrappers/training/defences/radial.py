"""RADIAL (Oikarinen et al. 2020): the loss of an algorithm, mixed with an upper bound of it over the box.

``train_agent(..., robust="radial")`` minimises ``kappa L + (1 - kappa) L_wc`` (equation 4), where ``L`` is the loss of
the algorithm and ``L_wc`` an upper bound of it over the box around each observation. :class:`Radial` is for PPO and
A2C, :class:`RadialDQN` for DQN.

For policies (equation 6) the log-probability of the action that was taken is replaced by its lower bound where the
advantage is positive, and by its upper bound where it is negative. Advantages, the value's loss and the entropy stay as
they are. Choices where the paper leaves one open, or where this differs:

- Bounds are interval bounds of the DIFFERENCES of the logits to the action's own, with the difference multiplied into
  the last layer. They are tighter than differences of bounds, and a constant that all logits share costs nothing.
- PPO has a ratio where equation 6 has a log-probability. ``form="ratio"`` bounds the clipped surrogate itself, which
  never rises in the ratio where the advantage is positive and never falls where it is negative. Its gradient vanishes
  with the lower bound of the probability, so where bounds are wide (images, an agent that was not trained for them)
  ``form="log"`` takes equation 6's logarithm and leaves out the rows that PPO would have clipped.
- ``form="overlap"`` is the second loss of the authors' later code for A3C ("approach 2"), for discrete actions:
  ``L_wc`` is the sum over actions i of ``d_i max(0, u_i - l_a + (z_a - z_i) / 2)``, with ``d_i = max(0, pi_a - pi_i)``
  and the logits ``z`` as numbers. So the logit of an action that is less probable than the one that was taken, ``a``,
  must stay below that of ``a`` by half of their distance everywhere in the box. Advantages play no part in it. ``u_i -
  l_a`` is a bound of the difference here, as above; and where the code subtracts the probability ``pi_i`` from the
  logit ``z_a``, this subtracts the logit ``z_i``, as the loss of their DQN does with values.
- ``imitate`` is ours: equation 6 alone made a Pong agent uniform: one that wins learns nothing from its advantages, and
  bounds are narrowest where all logits are the same. It adds to ``L`` the cross-entropy to the policy of the victim
  that the training started from, and to ``L_wc`` the same with the lower bounds of all log-probabilities. ``sharpness``
  raises the victim's probabilities to a power first: at 1 the agent learns its doubts as well, and its bounds decide
  little; at infinity, its most likely action, which between two equally good ones is chance, and costs what the network
  could have learned instead.
- Actions in a Box: the policy is Gaussian, the box of its means bounds the log-probability.
- The schedules give kappa, and the share of the budget that is used, as functions of the share of the training that is
  done. Appendix B has kappa 0.5, and eps from 0 to its full value over the first two thirds; the authors' later code
  has kappa 0.8.
- Training takes boxes in floats, certificates and attacks round inwards. So a budget of 1.5 grey levels is one of 1 to
  these; below one it is refused, as attacks do.
- ``Linf(eps, scale="victim")`` means the unit of the normaliser at every minibatch, as in SA-PPO's code, whose boxes
  lie around normalised observations. Before the first rollout that unit is the environment's own, in which eps 0.075 is
  1.2 standard deviations of the angle of Hopper's torso, and 0.014 of the angular velocity of its foot.

For values (equation 5), ``Q`` are those of the network at an observation, ``l`` and ``u`` interval bounds of them in
the box around it, ``a`` the action that was taken, ``B`` its target:

- ``form="equation-5"``: ``L_wc`` is the sum over all actions i of the larger loss of ``l_i`` and ``u_i``, for the
  target ``B`` where i is ``a``, and for ``Q_i`` otherwise. No perturbation in the box gives a larger loss than this,
  and for eps = 0 it is ``L``. All of it counts how wide the bounds of values are, which grow with the values.
- ``form="overlap"``, the later form of the authors' code ("approach 2"): ``L_wc`` is the sum over i of
  ``d_i max(0, u_i - l_a + d_i / 2)``, with ``d_i = max(0, Q_a - Q_i)`` as a number. So a worse action's value must stay
  below the value of the action that was taken by half of their distance everywhere in the box, and matters the more the
  worse it is. For eps = 0 it is 0. ``u_i - l_a`` is a bound of the difference ``Q_i - Q_a`` here, which is tighter than
  the difference of bounds: what two values have in common cancels.

Losses are those of the algorithm (:func:`adv_wrappers.training.sb3.prioritized_dqn.error`: squares up to 1, then
lines), where the papers write squares; what is said above holds for every loss that rises with the distance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core.training_schedules import LinearSchedule, ScheduledShare, ScheduledWeight, SmoothSchedule, at
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.training.defences.base import PolicyBatch, RobustPolicyMethod, RobustQMethod, values_above
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.sb3.prioritized_dqn import QBatch, error
from adv_wrappers.utils.validation import AboveZero


@dataclass(frozen=True)
class Radial(RobustPolicyMethod):
    """RADIAL (Oikarinen et al. 2020, equations 4 and 6).

    Args:
        kappa: the weight of the standard loss, a number or a schedule.
        eps: the share of the budget that is used, a number or a schedule.
        form: ``"ratio"``, ``"log"`` or ``"overlap"``, as the head of this file has them; A2C has the logarithm for the
            ratio too.
        imitate: the weight of a further term of both losses, a number or a schedule: the cross-entropy to
            the policy of the victim that the training started from. Not in the paper; see the head of this file.
        sharpness: the power to which that victim's probabilities are raised, before they are normalised.

    Raises:
        ValueRangeError: for ``imitate`` with ``"overlap"``, which has no
            log-probabilities to compare.
    """

    name: ClassVar[str] = "radial"
    loss: ClassVar[str] = "radial"
    kappa: ScheduledShare = 0.8
    eps: ScheduledShare = field(default=SmoothSchedule(0.0, 1.0, end=2 / 3))
    form: Literal["ratio", "log", "overlap"] = "log"
    imitate: ScheduledWeight = 0.0
    sharpness: AboveZero = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form == "overlap" and self.imitate != 0.0:
            raise ValueRangeError(f"imitate goes with form='ratio' or 'log', got {self.imitate!r:.80} with 'overlap'")

    def check(self, bounds: BoundedPolicy) -> None:
        if self.form == "overlap" and not bounds.count:
            raise ThreatError("form='overlap' is for discrete actions: it compares one with the others")
        if self.imitate != 0.0 and not bounds.count:
            raise ThreatError("imitate is for discrete actions: it raises the probability of one of them")
        if self.imitate != 0.0 and bounds.first is None:
            raise ThreatError("imitate needs a victim to start from: victim=")

    def policy_loss(self, bounds: BoundedPolicy, batch: PolicyBatch, done: float) -> Tensor:
        standard = batch.surrogate(batch.log_prob).mean()
        kappa, share, imitate = (at(number, done) for number in (self.kappa, self.eps, self.imitate))
        if imitate == 0 and (kappa == 1 or share == 0):  # then both losses are one
            return standard
        if self.form == "overlap":
            return kappa * standard + (1 - kappa) * self._overlap(bounds, batch, share).mean()
        # bounds on the log-probability of the action that was taken
        if not imitate:
            low, high = bounds.log_probability(batch.observations, share, batch.actions)
        else:
            lows, highs = bounds.log_probabilities(batch.observations, share)
            low, high = (end.gather(1, batch.actions[:, None])[:, 0] for end in (lows, highs))
        # equation 6: the lower bound where the advantage is positive, the upper one where it is negative
        worst = torch.where(batch.advantages >= 0, low, high)
        if self.form == "log":
            losses = torch.where(batch.clipped(worst), 0.0, -batch.advantages * worst)
        else:
            losses = batch.surrogate(worst)
        worst_case = losses.mean()
        # the cross-entropy to the first agent's policy, and its worst case
        if imitate:
            target = bounds.first_probabilities(batch.observations, self.sharpness)
            standard = standard - imitate * (target * bounds.log_policy(batch.observations)).sum(-1).mean()
            worst_case = worst_case - imitate * (target * lows).sum(-1).mean()
        # equation 4: kappa L + (1 - kappa) L_wc
        return kappa * standard + (1 - kappa) * worst_case

    def _overlap(self, bounds: BoundedPolicy, batch: PolicyBatch, share: float) -> Tensor:
        """``L_wc`` of ``form="overlap"``, ``[B]``."""
        own = batch.actions[:, None]
        with torch.no_grad():
            log_policy = bounds.log_policy(batch.observations)
            ahead = log_policy.gather(1, own) - log_policy  # of logits: the normalising constant cancels
            more_probable = (log_policy.gather(1, own).exp() - log_policy.exp()).clamp(min=0)
        above = bounds.logits_above(batch.observations, share, batch.actions)
        return (more_probable * (above + ahead / 2).clamp(min=0)).sum(-1)


@dataclass(frozen=True)
class RadialDQN(RobustQMethod):
    """RADIAL-DQN (Oikarinen et al. 2020, equations 4 and 5), and the later form of the authors' code.

    Args:
        kappa: the weight of the standard loss, a number or a schedule.
        eps: the share of the budget that is used, a number or a schedule.
        form: ``"overlap"`` or ``"equation-5"``, as the head of this file has them.
    """

    name: ClassVar[str] = "radial-dqn"
    loss: ClassVar[str] = "radial"
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


def equation_5(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor) -> Tensor:
    """``L_wc`` of equation 5 in boxes ``[B, *S]``, ``[B]``."""
    own = one_hot(batch.actions, batch.values.shape[1]).bool()
    around = torch.where(own, batch.target[:, None], batch.values)
    least, most = interval(bounds.net, low, high)
    return torch.maximum(error(least, around), error(most, around)).sum(1)


def overlap(bounds: BoundedPolicy, batch: QBatch, low: Tensor, high: Tensor) -> Tensor:
    """``L_wc`` of the authors' later code in boxes ``[B, *S]``, ``[B]``."""
    worse = (batch.value[:, None] - batch.values).clamp(min=0).detach()
    above = values_above(bounds, batch.actions, low, high)
    return (worse * (above + worse / 2).clamp(min=0)).sum(1)
