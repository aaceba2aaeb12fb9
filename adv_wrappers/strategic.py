"""Strategically timed attacks (Lin et al. 2017): strike when it matters to the victim what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import ValueRangeError, VictimError
from adv_wrappers.core.threat import expect_victim
from adv_wrappers.timing import Timing


@dataclass(frozen=True)
class Strategic(Timing):
    """Strike when the victim cares: its most and its least preferred action differ by more than beta.

    Source: Lin et al. 2017, "Tactics of Adversarial Attack on Deep Reinforcement Learning Agents", equation 6. The gap
    is one of probabilities, in [0, 1]; Q-values pass through a softmax (temperature 1).

    Raises:
        VictimError: without a victim, or with one whose actions are continuous.
    """

    name: ClassVar[str] = "strategic"
    blind: ClassVar[bool] = False
    beta: float
    victim: Any = None

    def __post_init__(self) -> None:
        expect_victim(self.name, self.victim)
        if isinstance(self.beta, bool) or not isinstance(self.beta, (int, float)) or not 0 <= self.beta <= 1:
            raise ValueRangeError(f"beta must be a gap of probabilities in [0, 1], got {self.beta!r}")

    def look(self, x: Tensor, context: Context, moment: Any, path: int = 0) -> Any:
        if self.victim is None:
            raise VictimError("strategic timing needs a victim: Strategic(beta, victim) or threat.against(victim)")
        probs = getattr(context.bind(self.victim).policy(), "probs", None)
        if probs is None or probs.dim() != 2:
            raise VictimError("strategic timing is defined for one discrete action, this victim's is of another kind")
        return probs.amax(1) - probs.amin(1) > self.beta
