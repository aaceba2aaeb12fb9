"""MinQ (Pattanaik et al. 2018; PA-AD, appendix D.3.3): lead the policy to actions of low value at the true state.

Discrete actions: minimise ``sum_a pi(a | s~) Q(s, a)``, with a softmax over Q for DQN. Where Q-values lie far apart
that softmax has no gradient in float32, so it is taken at a temperature there, or the margin is maximised instead
(``loss``). What an agent that plays its best action loses is ``Q(s, argmax pi(s~))``: the preset ``min-played-q``
minimises that, by one ascent toward every action (:mod:`adv_wrappers.attacks.multi_targeted`). Continuous actions:
minimise ``Q(s, mode of pi(s~))`` through the victim's critic. Published default: 10 steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, StepLength, Steps
from adv_wrappers.attacks.objectives import (
    CriticOfMode,
    ExpectedQ,
    MarginOfQ,
    Temperature,
    temperature_of,
)
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import need_q
from adv_wrappers.victims.gradients import Loss


@dataclass(frozen=True)
class MinQ(GradientAttack):
    """Minimise the victim's own Q of what it does.

    Args:
        victim: with Q-values (DQN) or a critic (DDPG, TD3, SAC).
        steps, step: number of steps, and length of each as a fraction of the budget's radius; None for a tenth, or,
            with ``keep="best"``, half of it, falling linearly to nothing.
        random_start: begin at a random point of the budget.
        loss: of discrete actions: ``"expected"``, the paper's, or ``"margin"``, the lead of the best other action over
            the one of the highest Q; None takes the paper's.
        temperature: of the softmax of ``"expected"``, 1e-9 to 1e9; None takes one, and more for Q-values
            that lie far apart.

    Raises:
        VictimError: for a victim without Q.
        ValueRangeError: for arguments out of range.
    """

    name: ClassVar[str] = "min-q"
    capturable: ClassVar[bool] = True
    steps: Steps = 10
    step: StepLength | None = None
    random_start: bool = False
    loss: Literal["expected", "margin"] | None = None
    temperature: Temperature | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.victim is not None:
            instead = "min-best or max-diff" if self.victim.discrete else "max-diff, or robust-sarsa with a critic"
            need_q(self.name, self.victim, f"use {instead}" + ", or min-value" * self.victim.has_value)

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        if not self.victim.discrete:
            return CriticOfMode(self.victim, lambda _, act: _present(bound.q(x, act)), None, bound.look)
        q = _present(bound.q(x))
        return MarginOfQ(q) if self.loss == "margin" else ExpectedQ(q, temperature_of(self.temperature, self.victim, q))


def _present(q: Tensor | None) -> Tensor:
    assert q is not None  # the victim has Q-values, or the attack was refused
    return q
