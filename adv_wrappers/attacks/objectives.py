"""Objectives: losses ``[B, K] -> [B]`` on the parameters of a victim's action distribution, to be maximised.

Summed over a batch, never averaged, so that a row's result does not depend on its batch. Each has its gradient with
respect to the parameters in closed form (checked against autograd in the tests), except where a critic stands between.

One with a method ``success`` says what the action that is played at parameters ``[B, K]`` achieves, ``[B]``, more being
better: whether it is another one than at the true observation, or how little it is worth. A search that keeps its best
point compares that before the objective, which may go on rising where no action changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.validation import Limits
from adv_wrappers.victims.distributions import softmax
from adv_wrappers.victims.gradients import Loss, output_gradient
from adv_wrappers.victims.victim import Victim

_WIDEST = 10.0  # widest gap between Q-values that a softmax is taken of; e^-10 is still told from nothing


def _one_hot(target: Tensor, params: Tensor) -> Tensor:
    """``[B, A]`` in the dtype of ``params``; torch's own one asks the host for the largest number in ``target``."""
    return torch.zeros_like(params).scatter_(-1, target.unsqueeze(-1), 1.0)


class _OfChoice:
    """A loss of one action's parameter among all of them.

    Args:
        target: the action, int64 ``[B]``.
        toward: whether the loss drives to it, and not away from it.
    """

    def __init__(self, target: Tensor, toward: bool = False) -> None:
        self.target, self.sign = target, -1.0 if toward else 1.0
        self._hot: Tensor | None = None

    def _less_target(self, slope: Tensor) -> Tensor:
        """``slope`` minus one at the target, written over it; the negative of that with ``toward``."""
        if self._hot is None:
            self._hot = _one_hot(self.target, slope)
        return slope.sub_(self._hot) if self.sign > 0 else torch.sub(self._hot, slope, out=slope)


class CrossEntropy(_OfChoice):
    """``-log softmax(params)[target]``: up, the target becomes unlikely; with ``toward=True`` the negative of it.

    The gradient underflows to zero where the target leads by more than about 104; :class:`Margin` does not.
    """

    def __call__(self, params: Tensor) -> Tensor:
        return -self.sign * params.log_softmax(-1).gather(-1, self.target[:, None]).squeeze(-1)

    def success(self, params: Tensor) -> Tensor:
        """One where the target is not played, or with ``toward`` where it is; else zero."""
        played = params.argmax(-1) == self.target
        return (~played if self.sign > 0 else played).to(params.dtype)

    def gradient(self, params: Tensor) -> Tensor:
        """``softmax - one_hot(target)``."""
        return self._less_target(softmax(params))


class Margin(_OfChoice):
    """The best other action's lead over the target, ``max_{i != target} params_i - params_target``.

    Above zero another action is played (with ``toward`` the target), so it needs no ``success`` beside it.
    """

    def _others(self, params: Tensor) -> Tensor:
        return params.scatter(-1, self.target[:, None], -torch.inf)

    def __call__(self, params: Tensor) -> Tensor:
        own = params.gather(-1, self.target[:, None]).squeeze(-1)
        return self.sign * (self._others(params).amax(-1) - own)

    def gradient(self, params: Tensor) -> Tensor:
        """One at the best other action, minus one at the target."""
        return self._less_target(_one_hot(self._others(params).argmax(-1), params))


class LeadOver:
    """The lead of one action over another, ``params[target] - params[source]`` (Gowal et al. 2019, equation 5)."""

    def __init__(self, target: Tensor, source: Tensor) -> None:
        self.target, self.source = target, source
        self._slope: Tensor | None = None

    def __call__(self, params: Tensor) -> Tensor:
        pair = params.gather(-1, torch.stack([self.target, self.source], -1))
        return pair[:, 0] - pair[:, 1]

    def gradient(self, params: Tensor) -> Tensor:
        """One at the target, minus one at the source."""
        if self._slope is None:
            self._slope = _one_hot(self.target, params).sub_(_one_hot(self.source, params))
        return self._slope


class LogitRatio:
    """The difference of logits ratio (Croce and Hein 2020, equation 6), which does not change with their scale.

    ``(max_{i != target} z_i - z_target) / (z_(1) - z_(3))``, z sorted downwards: the lead in units of the gap between
    the best and the third best action.

    Raises:
        ValueRangeError: for less than three actions, where there is no third.
    """

    def __init__(self, target: Tensor, actions: int) -> None:
        if actions < 3:
            raise ValueRangeError(f"loss='dlr' needs three actions or more, got {actions}: take 'margin'")
        self.margin = Margin(target)

    def __call__(self, params: Tensor) -> Tensor:
        top = params.topk(3, -1).values
        return self.margin(params) / (top[:, 0] - top[:, 2] + 1e-12)

    def gradient(self, params: Tensor) -> Tensor:
        """By the rule for quotients."""
        top = params.topk(3, -1)
        gap = (top.values[:, :1] - top.values[:, 2:]) + 1e-12
        slope = self.margin.gradient(params) / gap
        part = self.margin(params)[:, None] / gap.square()
        return slope.scatter_add_(-1, top.indices[:, ::2], torch.cat([-part, part], -1))


class _Tempered:
    """A loss of a policy, whose parameters are divided by temperatures ``[B]`` first; None for one."""

    def __init__(self, temperature: Tensor | None) -> None:
        self.temperature = None if temperature is None else temperature[:, None]

    def _divided(self, values: Tensor) -> Tensor:
        return values if self.temperature is None else values / self.temperature


class Divergence(_Tempered):
    """``KL(policy at the true observation || policy here)``.

    Args:
        victim: whose policy.
        params: its parameters at the true observation, ``[B, K]``.
        averaged: for Gaussian policies: times twice the square of the average standard deviation.
        temperature: ``[B]``, divides logits and Q-values first; None for one.
    """

    def __init__(
        self, victim: Victim, params: Tensor, averaged: bool = False, temperature: Tensor | None = None
    ) -> None:
        super().__init__(temperature)
        self.family, self.clean = victim.family, self._divided(params)
        self._from = victim.family.divergence(self.clean, averaged)
        if not isinstance(victim.action_space, spaces.Box):
            self.success = self._success

    def __call__(self, params: Tensor) -> Tensor:
        return self._from(self._divided(params))

    def _success(self, params: Tensor) -> Tensor:
        """How many of the actions that are played are others than at the true observation."""
        other: Tensor = (self.family.mode(params) != self.family.mode(self.clean)).to(params.dtype)
        return other if other.dim() == 1 else other.sum(-1)

    def gradient(self, params: Tensor) -> Tensor:
        """In closed form from the family of distributions."""
        return self._divided(self._from.gradient(self._divided(params)))


class OfMean:
    """A loss of the mean of a victim's continuous actions, which it reads from the parameters ``[B, K]``."""

    def __init__(self, victim: Any) -> None:
        self.gaussian = victim.kind == "gaussian"

    def mean(self, params: Tensor) -> Tensor:
        """The means ``[B, D]``."""
        return params.chunk(2, -1)[0] if self.gaussian else params

    def of_params(self, slope: Tensor) -> Tensor:
        """The gradient of the parameters from that of the mean: nothing for a deviation."""
        return torch.cat([slope, torch.zeros_like(slope)], -1) if self.gaussian else slope


class SquaredDistance(OfMean):
    """``||mean here - goal||^2`` of continuous actions, all of the same weight; with ``toward`` the negative of it.

    From the mean at the true observation it is MaxDiff's objective for agents that play their mean, as released: twice
    the divergence of Normals of variance one.
    """

    def __init__(self, victim: Any, goal: Tensor, toward: bool = False) -> None:
        super().__init__(victim)
        self.goal, self.sign = goal, -1.0 if toward else 1.0

    def __call__(self, params: Tensor) -> Tensor:
        return self.sign * (self.mean(params) - self.goal).square().sum(-1)

    def gradient(self, params: Tensor) -> Tensor:
        """``2 (mean - goal)``."""
        return self.of_params(2 * self.sign * (self.mean(params) - self.goal))


def _against(q: Tensor, params: Tensor) -> Tensor:
    """``-Q(true observation, action that is played at params)``, ``[B]``."""
    return -q.gather(-1, params.argmax(-1, keepdim=True)).squeeze(-1)


class ExpectedQ(_Tempered):
    """``-sum_a pi(a | here) Q(true observation, a)`` for discrete actions.

    Args:
        q: Q-values at the true observation, ``[B, A]``.
        temperature: ``[B]``, divides the parameters of the policy first; None for one.
    """

    def __init__(self, q: Tensor, temperature: Tensor | None = None) -> None:
        super().__init__(temperature)
        self.q = q

    def __call__(self, params: Tensor) -> Tensor:
        return -(self._divided(params).softmax(-1) * self.q).sum(-1)

    def success(self, params: Tensor) -> Tensor:
        """``-Q(true observation, action that is played here)``."""
        return _against(self.q, params)

    def gradient(self, params: Tensor) -> Tensor:
        """``-pi (Q - E Q)``, divided by the temperature."""
        pi = softmax(self._divided(params))
        return self._divided(-pi * (self.q - (pi * self.q).sum(-1, keepdim=True)))


class MarginOfQ(Margin):
    """``max_{i != a} params_i - params_a`` with ``a = argmax Q(true observation, a)``, ranked by Q.

    Of two points the one counts for more at which the action that is played is worth less at the true observation.
    """

    def __init__(self, q: Tensor) -> None:
        super().__init__(q.argmax(-1))
        self.q = q

    def success(self, params: Tensor) -> Tensor:
        """``-Q(true observation, action that is played here)``."""
        return _against(self.q, params)


class CriticOfMode:
    """``-Q(true observation, most likely action here)`` for continuous actions, Q a critic."""

    def __init__(
        self,
        victim: Victim,
        critic: Callable[[Any, Tensor], Tensor],
        observation: Any,
        look: bool = False,
    ) -> None:
        self.victim = victim
        self.critic = critic
        self.observation = observation
        self._look = look  # whether the first parameters are looked at: nothing else asks for them

    def __call__(self, params: Tensor) -> Tensor:
        if self._look:
            self.victim.check_params(params)
            self._look = False
        return -self.critic(self.observation, self.victim.mode(params)).reshape(len(params))


class FirstObjective:
    """An objective that is made of the first parameters that it is given, ``[B, K]``.

    Args:
        make: makes the objective of parameters.
    """

    def __init__(self, make: Callable[[Tensor], Loss]) -> None:
        self._make, self._objective = make, None  # type: Callable[[Tensor], Loss], Loss | None

    def _made(self, params: Tensor) -> Loss:
        if self._objective is None:
            self._objective = self._make(params)
            self._slope = output_gradient(self._objective)
        return self._objective

    def __call__(self, params: Tensor) -> Tensor:
        return self._made(params.detach())(params)

    def gradient(self, params: Tensor) -> Tensor:
        """That of the objective."""
        self._made(params)
        return self._slope(params)


Classifier = Literal["cross-entropy", "margin"]
Weights = Literal["one", "std"]
Temperature = Annotated[float, Limits(1e-9, 1e9)]  # that float32 can divide by


def classifier(loss: Classifier | None, kind: str) -> type[CrossEntropy] | type[Margin]:
    """The class that ``"cross-entropy"`` or ``"margin"`` names; None takes the margin for Q-values (large gaps)."""
    return Margin if loss == "margin" or (loss is None and kind == "q") else CrossEntropy


def leave_best(loss: Classifier | None, victim: Victim, params: Tensor) -> CrossEntropy | Margin:
    """The objective of MinBest: the action that is best by ``params`` ``[B, A]`` becomes unlikely."""
    return classifier(loss, victim.kind)(params.argmax(-1))


def temperature_of(given: float | None, victim: Victim, params: Tensor) -> Tensor | None:
    """Temperatures ``[B]`` of a softmax over ``params`` ``[B, A]``; None for one.

    None takes one for policies, whose softmax is how they act, and for Q-values one as long as the best and the worst
    action of a row are less than 10 apart. Beyond, the softmax of float32 is no longer told from a choice, and an
    attack on it has no gradient: there the parameters of the row are divided until 10 apart.
    """
    if given is not None:
        return None if given == 1 else params.new_full((len(params),), given)
    if victim.kind != "q":
        return None
    return ((params.amax(-1) - params.amin(-1)) / _WIDEST).clamp(min=1.0)


def divergence_of(
    victim: Victim, params: Tensor, weights: Weights | None = None, temperature: float | None = None
) -> Divergence | SquaredDistance:
    """MaxDiff's objective at the true parameters ``[B, K]``; see :class:`adv_wrappers.attacks.max_diff.MaxDiff`."""
    # a policy that plays its mean is moved by the distance of means, one that samples by the divergence
    if victim.kind == "gaussian":
        if weights == "one" or (weights is None and victim.select == "mode"):
            return SquaredDistance(victim, victim.family.mode(params))
        return Divergence(victim, params, averaged=True)
    discrete = victim.discrete
    return Divergence(victim, params, temperature=temperature_of(temperature, victim, params) if discrete else None)


def score_name(loss: str | None, victim: Victim) -> str:
    """The name of a loss of :func:`score_of`: None is the margin for one discrete action, and else the divergence."""
    return loss or ("margin" if victim.discrete else "divergence")


def score_of(
    loss: str | None, victim: Victim, params: Tensor, weights: Weights | None = None
) -> Divergence | SquaredDistance | Margin | CrossEntropy | LogitRatio:
    """What an attack by a victim's scores makes large, by its name: ``margin``, ``cross-entropy``, ``dlr``, ...

    Args:
        loss: None takes that of :func:`score_name`.
        victim: the victim.
        params: its parameters at the true observation, ``[B, K]``; for ``q`` Q-values.
        weights: of ``divergence``, as for :class:`adv_wrappers.attacks.max_diff.MaxDiff`.
    """
    loss = score_name(loss, victim)
    if loss == "divergence":
        return divergence_of(victim, params, weights)
    if loss == "q":
        return MarginOfQ(params)
    best = params.argmax(-1)
    if loss == "dlr":
        return LogitRatio(best, params.shape[-1])
    return Margin(best) if loss == "margin" else CrossEntropy(best)
