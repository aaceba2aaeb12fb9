"""MinBest (Huang et al. 2017, "Adversarial Attacks on Neural Network Policies"): make the best action unlikely.

The paper takes the gradient of the cross-entropy between the policy and its own best action; DQN's Q-values pass
through a softmax. One step of the full radius is FGSM, the paper's attack and the default here; the presets ``fgsm``
and ``pgd`` are this attack with other numbers. Choices: Q-values get a margin loss by default (``loss``), because the
gradient of their cross-entropy underflows; ties go to the first action. A search (``keep="best"``) without a loss of
its own, against a victim that plays its best action, maximises the cross-entropy first, from the true point, and then
the margin: over six actions that finds flips which the cross-entropy, content with the likeliest action losing a
little, does not (``docs/results/strength.md``, Pong).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, StepLength, Steps
from adv_wrappers.attacks.objectives import Classifier, CrossEntropy, Margin, leave_best
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import Variants
from adv_wrappers.victims.gradients import Loss


@dataclass(frozen=True)
class MinBest(GradientAttack):
    """Minimise the probability of the victim's best action.

    Args:
        victim: with one discrete action.
        steps, step: number of steps, and length of each as a fraction of the budget's radius.
        random_start: begin at a random point of the budget.
        loss: ``"cross-entropy"`` or ``"margin"``; None takes the margin for Q-values, and else the cross-entropy, in
            searches for the first ascent alone.

    Raises:
        VictimError: for continuous actions, where the paper defines nothing (MaxDiff is the counterpart).
    """

    name: ClassVar[str] = "min-best"
    instead: ClassVar[str] = "use max-diff"
    variants: ClassVar[Variants] = {
        "fgsm": ({"steps": 1, "step": 1.0}, "One step of the full radius."),
        "pgd": (
            {"steps": 10, "step": 0.5, "restarts": 3, "keep": "best", "schedule": "linear"},
            "Three ascents of ten steps, the best point of them.",
        ),
    }
    capturable: ClassVar[bool] = True
    steps: Steps = 1
    step: StepLength = 1.0
    random_start: bool = False
    loss: Classifier | None = None

    def objective_of(self, params: Tensor) -> Loss:
        return leave_best("margin" if self._flips else self.loss, self.victim, params)

    @property
    def _flips(self) -> bool:
        """Whether this is a search for another action to be played, and free to choose its loss."""
        return self.loss is None and self.keep == "best" and self.victim.select == "mode"

    def losses(self, x: Tensor, bound: VictimView, objective: Loss) -> Sequence[Loss]:
        found = super().losses(x, bound, objective)
        if not self._flips or self.victim.kind == "q":
            return found
        assert isinstance(objective, Margin)
        return [CrossEntropy(objective.target), *found[1:]]
