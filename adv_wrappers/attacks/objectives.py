"""Objectives: losses ``[B, K] -> [B]`` on the parameters of a victim's action distribution, to be maximised.

Summed over a batch, never averaged, so that a row's result does not depend on its batch. Each has its gradient with
respect to the parameters in closed form (checked against autograd in the tests), except where a critic stands between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.errors import ValueRangeError, VictimError
from adv_wrappers.core.threat import expect_victim


def _one_hot(target: Tensor, params: Tensor) -> Tensor:
    """``[B, A]`` in the dtype of ``params``; torch's own one asks the host for the largest number in ``target``."""
    return torch.zeros_like(params).scatter_(-1, target[:, None], 1.0)


def _softmax(params: Tensor) -> Tensor:
    """``[B, A]``, over the actions; a walk's parameters are the transpose of what is in memory, where this is fast."""
    return params.t().softmax(0).t()


class CrossEntropy:
    """``-log softmax(params)[target]``: up, the target becomes unlikely; with ``toward=True`` the negative of it.

    The gradient underflows to zero where the target leads by more than about 104; :class:`Margin` does not.
    """

    def __init__(self, target: Tensor, toward: bool = False) -> None:
        self.target, self.sign = target, -1.0 if toward else 1.0
        self._hot: Tensor | None = None

    def __call__(self, params: Tensor) -> Tensor:
        return -self.sign * params.log_softmax(-1).gather(-1, self.target[:, None]).squeeze(-1)

    def gradient(self, params: Tensor) -> Tensor:
        """``softmax - one_hot(target)``."""
        if self._hot is None:
            self._hot = _one_hot(self.target, params)
        slope = _softmax(params)
        return slope.sub_(self._hot) if self.sign > 0 else torch.sub(self._hot, slope, out=slope)


class Margin:
    """The best other action's lead over the target, ``max_{i != target} params_i - params_target``."""

    def __init__(self, target: Tensor, toward: bool = False) -> None:
        self.target, self.sign = target, -1.0 if toward else 1.0
        self._hot: Tensor | None = None

    def _others(self, params: Tensor) -> Tensor:
        return params.scatter(-1, self.target[:, None], -torch.inf)

    def __call__(self, params: Tensor) -> Tensor:
        own = params.gather(-1, self.target[:, None]).squeeze(-1)
        return self.sign * (self._others(params).amax(-1) - own)

    def gradient(self, params: Tensor) -> Tensor:
        """One at the best other action, minus one at the target."""
        if self._hot is None:
            self._hot = _one_hot(self.target, params)
        best = _one_hot(self._others(params).argmax(-1), params)
        return best.sub_(self._hot) if self.sign > 0 else torch.sub(self._hot, best, out=best)


class Divergence:
    """``KL(policy at the true observation || policy here)``.

    ``averaged`` is for Gaussian policies: times twice the square of the average standard deviation.
    """

    def __init__(self, victim: Any, params: Tensor, averaged: bool = False) -> None:
        self._from = victim.family.divergence(params, averaged)

    def __call__(self, params: Tensor) -> Tensor:
        return self._from(params)  # type: ignore[no-any-return]

    def gradient(self, params: Tensor) -> Tensor:
        """In closed form from the family of distributions."""
        return self._from.gradient(params)  # type: ignore[no-any-return]


class ExpectedQ:
    """``-sum_a pi(a | here) Q(true observation, a)`` for discrete actions."""

    def __init__(self, q: Tensor) -> None:
        self.q = q

    def __call__(self, params: Tensor) -> Tensor:
        return -(params.softmax(-1) * self.q).sum(-1)

    def gradient(self, params: Tensor) -> Tensor:
        """``-pi (Q - E Q)``."""
        pi = _softmax(params)
        return -pi * (self.q - (pi * self.q).sum(-1, keepdim=True))


class CriticOfMode:
    """``-Q(true observation, most likely action here)`` for continuous actions, Q a critic."""

    def __init__(
        self, victim: Any, critic: Callable[[Any, Tensor], Tensor], observation: Any, look: bool = False
    ) -> None:  # fmt: skip
        self.victim, self.critic, self.observation = victim, critic, observation
        self._look = look  # whether the first parameters are looked at: nothing else asks for them

    def __call__(self, params: Tensor) -> Tensor:
        if self._look:
            self.victim.check_params(params)
            self._look = False
        return -self.critic(self.observation, self.victim.mode(params)).reshape(len(params))


def classifier(loss: str | None, kind: str) -> type[CrossEntropy] | type[Margin]:
    """The class that ``"cross-entropy"`` or ``"margin"`` names; None takes the margin for Q-values (large gaps)."""
    if loss not in (None, "cross-entropy", "margin"):
        raise ValueRangeError(f"loss must be 'cross-entropy' or 'margin', got {loss!r}")
    return Margin if loss == "margin" or (loss is None and kind == "q") else CrossEntropy


def leave_best(loss: str | None, victim: Any, params: Tensor) -> CrossEntropy | Margin:
    """The objective of MinBest: the action that is best by ``params`` ``[B, A]`` becomes unlikely."""
    return classifier(loss, victim.kind)(params.argmax(-1))


def need_discrete(attack: str, victim: Any, instead: str) -> None:
    """Raise :class:`VictimError` unless the victim (if there is one yet) chooses one of ``n`` actions."""
    expect_victim(attack, victim)
    if victim is not None and not isinstance(victim.action_space, spaces.Discrete):
        space = victim.action_space
        raise VictimError(f"{attack} is defined for one discrete action, this victim acts in {space}: {instead}")
