"""Robust Sarsa (Zhang et al. 2020, section 3.5 and appendix D): MinQ through a critic trained to be smooth.

Minimises ``Q_RS(s, mode of pi(s~))`` with the clean state in the critic's first argument, as released. The critic is
the attacker's own: one that comes with the victim's card, any function, or one that
:mod:`adv_wrappers.training.models.robust_sarsa` made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gymnasium import spaces
from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, StepLength, Steps
from adv_wrappers.attacks.objectives import CriticOfMode
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.victims.auxiliary_networks import Critic
from adv_wrappers.victims.gradients import Loss


@dataclass(frozen=True)
class RobustSarsa(GradientAttack):
    """Minimise a robust critic's value of what the victim does.

    Args:
        victim: with continuous actions.
        critic: a trained :class:`Critic` or its folder, or any ``(observations [B, *S], native actions [B, D]) ->
            [B]``; None takes the victim's ``robust_sarsa``.
        steps, step: number of steps, and length of each as a fraction of the budget's radius; None for a tenth, or,
            with ``keep="best"``, half of it, falling linearly to nothing.
        random_start: begin at a random point of the budget.

    Raises:
        VictimError: for discrete actions, where there is no critic, and for one that does not fit.
        CardError: for a folder that holds no critic.
    """

    name: ClassVar[str] = "robust-sarsa"
    capturable: ClassVar[bool] = True
    critic: Any = None
    steps: Steps = 10
    step: StepLength | None = None
    random_start: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.critic, (str, Path)):
            set_fields(self, critic=Critic(str(self.critic)))
        if self.critic is not None and not callable(self.critic):
            raise VictimError(f"critic must be a Critic, its folder or a function, got {self.critic!r:.80}")
        if self.victim is None:
            return
        if not isinstance(self.victim.action_space, spaces.Box):
            raise VictimError(f"robust-sarsa is for continuous actions, this victim acts in {self.victim.action_space}")
        if self.critic is None and self.victim.robust_sarsa is None:
            raise VictimError("robust-sarsa needs a critic: this victim brings none, so give critic=")
        if isinstance(self.critic, Critic):
            self.critic.check(self.victim)

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        return CriticOfMode(self.victim, self.critic or self.victim.robust_sarsa, bound.full(x), bound.look)
