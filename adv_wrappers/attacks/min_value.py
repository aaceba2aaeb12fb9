"""The critic attack on a state value (Pattanaik et al. 2018, as Zhang et al. 2020 have it for PPO).

An agent without Q has a state value V. The attack shows it the state of the lowest value within the budget,
``min V(s~)``: what it does there is what it would do in trouble. It looks at the critic alone and never at the policy,
so it is weak where the two have nothing in common. Zhang et al. find it weaker than MaxDiff.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, StepLength, Steps
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.errors import VictimError
from adv_wrappers.victims.gradients import Gradient, Loss, by_autograd


class NegativeValue:
    """``-V``, a loss on values ``[B] -> [B]``."""

    def __call__(self, values: Tensor) -> Tensor:
        return -values

    def gradient(self, values: Tensor) -> Tensor:
        """Minus one."""
        return torch.full_like(values, -1.0)


@dataclass(frozen=True)
class MinValue(GradientAttack):
    """Show the victim the state that its critic values least.

    Args:
        victim: with a state value (an actor-critic, or Q-values).
        steps, step: number of steps, and length of each as a fraction of the budget's radius; None for a tenth, or,
            with ``keep="best"``, half of it, falling linearly to nothing.
        random_start: begin at a random point of the budget.

    Raises:
        VictimError: for a victim without a state value.
    """

    name: ClassVar[str] = "min-value"
    steps: Steps = 10
    step: StepLength | None = None
    random_start: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.victim is not None and not self.victim.has_value:
            raise VictimError("min-value needs a state value, and this victim has none: use max-diff, or min-q with Q")

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        return NegativeValue()

    def outputs(self, bound: VictimView, x: Tensor) -> Tensor:
        """State values ``[B]``."""
        values = bound.value(x)
        assert values is not None  # the victim has a state value, or the attack was refused
        return values

    def gradient(self, bound: VictimView, loss: Loss) -> Gradient:
        without = "the victim's value carries no gradient to the observation"
        return by_autograd(lambda x: self.outputs(bound, x), loss, without)
