"""MaxWorst (Pattanaik et al. 2018, "Robust Deep RL with Adversarial Attacks"): make the worst action likely.

The paper's worst action is the one of the lowest Q; the PA-AD paper (appendix D.3.2) also reads it as the one the
policy likes least. Both are offered: Q where the victim has it, the policy elsewhere, or as ``by`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, StepLength, Steps
from adv_wrappers.attacks.objectives import Classifier, classifier
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import need_q
from adv_wrappers.victims.gradients import Loss


@dataclass(frozen=True)
class MaxWorst(GradientAttack):
    """Maximise the probability of the victim's worst action.

    Args:
        victim: with one discrete action.
        by: ``"q"`` or ``"policy"``: what calls an action the worst; None takes Q where there is one.
        steps, step: number of steps, and length of each as a fraction of the budget's radius; None for a tenth, or,
            with ``keep="best"``, half of it, falling linearly to nothing.
        loss: ``"cross-entropy"`` or ``"margin"``; None takes the margin for Q-values.

    Raises:
        VictimError: for continuous actions, and for ``by="q"`` on a victim without Q.
    """

    name: ClassVar[str] = "max-worst"
    instead: ClassVar[str] = "use min-q or max-diff"
    capturable: ClassVar[bool] = True
    by: Literal["q", "policy"] | None = None
    steps: Steps = 10
    step: StepLength | None = None
    loss: Classifier | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by == "q":
            need_q("max-worst by='q'", self.victim, "use by='policy'")

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        by_q = self.by == "q" or (self.by is None and self.victim.has_q)
        params = bound.q(x) if by_q else bound.params(x)
        assert params is not None  # the victim has Q-values, or the attack was refused
        return classifier(self.loss, self.victim.kind)(params.argmin(-1), toward=True)
