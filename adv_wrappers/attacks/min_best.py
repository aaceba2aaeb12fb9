"""MinBest (Huang et al. 2017, "Adversarial Attacks on Neural Network Policies"): make the best action unlikely.

The paper takes the gradient of the cross-entropy between the policy and its own best action; DQN's Q-values pass
through a softmax. One step of the full radius is FGSM, the paper's attack and the default here; the presets ``fgsm``
and ``pgd`` are this attack with other numbers. Choices: Q-values get a margin loss by default (``loss``), because the
gradient of their cross-entropy underflows; ties go to the first action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.attacks.ascent import Climb
from adv_wrappers.attacks.objectives import classifier, leave_best, need_discrete


@dataclass(frozen=True)
class MinBest(Climb):
    """Minimise the probability of the victim's best action.

    Args:
        victim: with one discrete action.
        steps, step: number of steps, and length of each as a fraction of the budget's radius.
        random_start: begin at a random point of the budget.
        loss: ``"cross-entropy"`` or ``"margin"``; None takes the margin for Q-values.

    Raises:
        VictimError: for continuous actions, where the paper defines nothing (MaxDiff is the counterpart).
    """

    name: ClassVar[str] = "min-best"
    capturable: ClassVar[bool] = True
    victim: Any = None
    steps: int = 1
    step: float = 1.0
    random_start: bool = False
    loss: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        classifier(self.loss, "")
        need_discrete(self.name, self.victim, "use max-diff")

    def objective(self, x: Tensor, bound: Any) -> Any:
        return leave_best(self.loss, self.victim, bound.params(x))
