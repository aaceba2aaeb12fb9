"""What an actor maximises: changes of a policy, losses ``[B, K] -> [B]`` with their gradients in closed form.

``delta`` below is the change of the policy from the true state, of probabilities or of the mean of continuous actions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_TINY = 1e-12


class _Change:
    """A function of the change of a victim's policy."""

    def __init__(self, victim: Any, params: Tensor, wanted: Tensor) -> None:
        self.discrete, self.gaussian = victim.kind in ("q", "logits"), victim.kind == "gaussian"
        self.own, self.wanted = self._policy(params), wanted

    def _policy(self, params: Tensor) -> Tensor:
        if self.discrete:
            return params.softmax(-1)
        return params.chunk(2, -1)[0] if self.gaussian else params

    def _value(self, delta: Tensor) -> Tensor:
        raise NotImplementedError

    def _slope(self, delta: Tensor) -> Tensor:
        raise NotImplementedError

    def __call__(self, params: Tensor) -> Tensor:
        return self._value(self._policy(params) - self.own)

    def gradient(self, params: Tensor) -> Tensor:
        """``[B, K]``, through the softmax where there is one."""
        policy = self._policy(params)
        slope = self._slope(policy - self.own)
        if self.discrete:
            return policy * (slope - (policy * slope).sum(-1, keepdim=True))
        return torch.cat([slope, torch.zeros_like(slope)], -1) if self.gaussian else slope


class Along(_Change):
    """``d . delta``: how far the policy went in the wanted direction ``d`` ``[B, K]`` of length one."""

    def _value(self, delta: Tensor) -> Tensor:
        return (delta * self.wanted).sum(-1)

    def _slope(self, delta: Tensor) -> Tensor:
        return self.wanted


class Turned(_Change):
    """``||delta|| + weight cos(delta, d)`` (PA-AD, equation G)."""

    def __init__(self, victim: Any, params: Tensor, wanted: Tensor, weight: float) -> None:
        super().__init__(victim, params, wanted)
        self.weight = weight

    def _value(self, delta: Tensor) -> Tensor:
        length = (delta.square().sum(-1) + _TINY).sqrt()
        return length + self.weight * (delta * self.wanted).sum(-1) / length

    def _slope(self, delta: Tensor) -> Tensor:
        length = (delta.square().sum(-1, keepdim=True) + _TINY).sqrt()
        unit = delta / length
        cosine = (unit * self.wanted).sum(-1, keepdim=True)
        return unit + self.weight * (self.wanted - cosine * unit) / length


class Toward:
    """``-||mean - goal||^2``: the mean of continuous actions is brought to ``goal`` ``[B, K]``."""

    def __init__(self, victim: Any, goal: Tensor) -> None:
        self.gaussian, self.goal = victim.kind == "gaussian", goal

    def __call__(self, params: Tensor) -> Tensor:
        mean = params.chunk(2, -1)[0] if self.gaussian else params
        return -(mean - self.goal).square().sum(-1)

    def gradient(self, params: Tensor) -> Tensor:
        """``2 (goal - mean)``."""
        mean = params.chunk(2, -1)[0] if self.gaussian else params
        slope = 2 * (self.goal - mean)
        return torch.cat([slope, torch.zeros_like(slope)], -1) if self.gaussian else slope


class TowardPolicy:
    """``-KL(policy || goal)``, the goal a policy of the victim's own family ``[B, K]``."""

    def __init__(self, victim: Any, goal: Tensor) -> None:
        self.victim, self.goal = victim, goal

    def __call__(self, params: Tensor) -> Tensor:
        return -self.victim.kl(params, self.goal)  # type: ignore[no-any-return]
