"""MinQ (Pattanaik et al. 2018; PA-AD, appendix D.3.3): steer the policy to actions of low value at the true state.

Discrete actions: minimise ``sum_a pi(a | s~) Q(s, a)``, with a softmax over Q for DQN. Continuous actions: minimise
``Q(s, mode of pi(s~))`` through the victim's critic. Published default: 10 steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.attacks.ascent import Climb
from adv_wrappers.attacks.objectives import CriticOfMode, ExpectedQ
from adv_wrappers.core.errors import VictimError
from adv_wrappers.core.threat import expect_victim


@dataclass(frozen=True)
class MinQ(Climb):
    """Minimise the victim's own Q of what it does.

    Args:
        victim: with Q-values (DQN) or a critic (DDPG, TD3, SAC).
        steps, step: number of steps, and length of each as a fraction of the budget's radius.
        random_start: begin at a random point of the budget.

    Raises:
        VictimError: for a victim without Q.
    """

    name: ClassVar[str] = "min-q"
    capturable: ClassVar[bool] = True
    victim: Any = None
    steps: int = 10
    step: float = 0.1
    random_start: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_victim(self.name, self.victim)
        if self.victim is not None and not self.victim.has_q:
            instead = "min-best or max-diff" if self.victim.discrete else "max-diff, or robust-sarsa with a critic"
            raise VictimError(f"min-q needs Q-values, and this victim has none: use {instead}")

    def objective(self, x: Tensor, bound: Any) -> Any:
        if self.victim.discrete:
            return ExpectedQ(bound.q(x))
        return CriticOfMode(self.victim, lambda _, act: bound.q(x, act), None, bound.look)
