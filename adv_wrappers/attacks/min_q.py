"""MinQ (Pattanaik et al. 2018; PA-AD, appendix D.3.3): steer the policy to actions of low value at the true state.

Discrete actions: minimise ``sum_a pi(a | s~) Q(s, a)``, with a softmax over Q for DQN. Continuous actions: minimise
``Q(s, mode of pi(s~))`` through the victim's critic. Published default: 10 steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.attacks.ascent import check_steps, pgd
from adv_wrappers.attacks.objectives import CriticOfMode, ExpectedQ
from adv_wrappers.core.arrays import Field
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import VictimError
from adv_wrappers.core.threat import Perturbation


@dataclass(frozen=True)
class MinQ(Perturbation):
    """Minimise the victim's own Q of what it does.

    Args:
        victim: with Q-values (DQN) or a critic (DDPG, TD3, SAC).
        steps, step: number of steps, and length of each as a fraction of the budget's radius.
        random_start: begin at a random point of the budget.

    Raises:
        VictimError: for a victim without Q.
    """

    name: ClassVar[str] = "min-q"
    search: ClassVar[bool] = True
    needs_victim: ClassVar[bool] = True
    victim: Any = None
    steps: int = 10
    step: float = 0.1
    random_start: bool = False

    def __post_init__(self) -> None:
        check_steps(self.steps, self.step)
        if self.victim is not None and not self.victim.has_q:
            raise VictimError("min-q needs Q-values, and this victim has none: use robust-sarsa, min-best or max-diff")

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        self.__post_init__()

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        return pgd(context, bound.gradient(self.objective(x, bound)), self.steps, self.step, self.random_start)

    def objective(self, x: Tensor, bound: Any) -> Any:
        """What is maximised, a loss on parameters ``[B, K] -> [B]``."""
        if self.victim.discrete:
            return ExpectedQ(bound.q(x))
        return CriticOfMode(self.victim, lambda _, act: bound.q(x, act), None)
