"""Robust training by bounds: RADIAL (Oikarinen et al. 2020) and the regularizer of SA-PPO (Zhang et al. 2020).

Both ask what a policy can answer anywhere in a box around an observation, ``train_agent(..., robust=...)``.

RADIAL minimises ``kappa L + (1 - kappa) L_wc`` (equation 4), where ``L`` is the loss of the algorithm and ``L_wc`` an
upper bound of it over the box (equation 6): the log-probability of the action that was taken is replaced by its lower
bound where the advantage is positive, and by its upper bound where it is negative. Advantages, the value's loss and
the entropy stay as they are. SA-PPO adds the largest divergence of the policy inside the box, times a weight.

Choices where the papers leave one open, or where this differs:

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
- SA-PPO's code (github.com/huanzhang12/SA_PPO) adds ``kappa * sum((mean(y) - mean(x))**2 / std**2)``, twice the
  divergence: its kappa of 0.03 (convex relaxation) and 0.1 (SGLD) on Hopper are a ``weight`` of 0.06 and 0.2 here. Its
  relaxation goes from CROWN's bounds to interval bounds while eps rises; ``form="interval"`` has the latter alone. Its
  eps rises over three quarters of 2M steps, and SGLD holds the clean mean constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor, nn

from adv_wrappers.core.schedules import (
    LinearSchedule,
    ScheduledShare,
    ScheduledWeight,
    SmoothSchedule,
    at,
)
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.method import TrainingMethod
from adv_wrappers.utils.limits import AboveZero, NotNegative, Positive

# ----------------------------------------------------------------------------------------------------------------------
# The largest value of an objective in a box around an observation, as losses of robust training take it.
# ----------------------------------------------------------------------------------------------------------------------


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
    """
    step = (high - low) / (2 * steps)
    scale = noise * (2 / steps) ** 0.5
    y = torch.clamp((low + high) / 2 + torch.randn_like(low).sign() * step, low, high)
    for i in range(steps):
        y = y.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(y).sum(), y)
        moved = y + (gradient + scale / (i + 2) * torch.randn_like(y)).sign() * step
        y = torch.clamp(moved, low, high)
    return y.detach()


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


class RobustMethod(TrainingMethod):
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


@dataclass(frozen=True)
class Radial(RobustMethod):
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
        if not imitate:
            low, high = bounds.log_probability(batch.observations, share, batch.actions)
        else:
            lows, highs = bounds.log_probabilities(batch.observations, share)
            low, high = (end.gather(1, batch.actions[:, None])[:, 0] for end in (lows, highs))
        worst = torch.where(batch.advantages >= 0, low, high)
        if self.form == "log":
            losses = torch.where(batch.clipped(worst), 0.0, -batch.advantages * worst)
        else:
            losses = batch.surrogate(worst)
        worst_case = losses.mean()
        if imitate:
            target = bounds.first_probabilities(batch.observations, self.sharpness)
            standard = standard - imitate * (target * bounds.log_policy(batch.observations)).sum(-1).mean()
            worst_case = worst_case - imitate * (target * lows).sum(-1).mean()
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
class SARegularizer(InnerMaximization, RobustMethod):
    """The regularizer of SA-PPO (Zhang et al. 2020): the largest ``KL(pi(x), pi(y))`` for ``y`` in the box.

    Args:
        weight: of the divergence in the loss, a number or a schedule.
        eps: the share of the budget that is used, a number or a schedule.
        form, steps, noise: as :class:`InnerMaximization <adv_wrappers.training.defences.losses.InnerMaximization>`
            has them: a bound of the divergence, or what gradient steps find.
    """

    name: ClassVar[str] = "sa"
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


PAPER: dict[str, dict[str, object]] = {
    "a3c": {
        "robust": Radial(0.5, LinearSchedule(0.0, 1.0, end=2 / 3)), "steps": 10_000_000, "standard_steps": 20_000_000,
        "learning_rate": 1e-4, "betas": (0.9, 0.999), "amsgrad": True, "entropy": 0.01, "n_steps": 20, "workers": 16,
        "clip_rewards": True, "eps": 1.0,  # grey levels: 1/255 of their range, as the paper has it
    },
}  # fmt: skip
"""The settings of Appendix B, as data: those that were published, of which ``train_agent`` takes those it has."""
