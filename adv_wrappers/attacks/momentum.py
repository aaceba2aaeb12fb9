"""MinBest with momentum: the objective of Huang et al. 2017, the ascent of Dong et al. 2018 (MI-FGSM, algorithm 1).

Published defaults (PA-AD, appendix E.1): 10 steps, decay 0.5; the steps are a tenth of the radius here, which that
paper leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, StepLength, Steps, momentum
from adv_wrappers.attacks.objectives import Classifier, leave_best
from adv_wrappers.core.engine.context import Context
from adv_wrappers.utils.validation import Share
from adv_wrappers.victims.gradients import Gradient, Loss


@dataclass(frozen=True)
class Momentum(GradientAttack):
    """Minimise the probability of the victim's best action, with accumulated gradients.

    Args:
        victim: with one discrete action.
        steps, step: number of steps, and length of each as a fraction of the budget's radius; None for a tenth, or,
            with ``keep="best"``, half of it, falling linearly to nothing.
        decay: weight of the past gradients, in [0, 1].
        nesterov: take the gradient one step ahead.
        loss: ``"cross-entropy"`` or ``"margin"``; None takes the margin for Q-values.

    Raises:
        VictimError: for continuous actions.
    """

    name: ClassVar[str] = "momentum"
    instead: ClassVar[str] = "use max-diff"
    capturable: ClassVar[bool] = True
    steps: Steps = 10
    step: StepLength | None = None
    decay: Share = 0.5
    nesterov: bool = False
    loss: Classifier | None = None

    def run_once(self, context: Context, gradient: Gradient, start: Tensor | None) -> Tensor:
        step, schedule = self.lengths
        return momentum(context, gradient, self.steps, step, self.decay, self.nesterov, start, schedule)

    @property
    def starts_at_truth(self) -> bool:
        return not self.nesterov

    def objective_of(self, params: Tensor) -> Loss:
        return leave_best(self.loss, self.victim, params)
