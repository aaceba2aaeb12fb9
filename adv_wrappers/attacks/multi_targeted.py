"""MultiTargeted (Gowal et al. 2019, "An Alternative Surrogate Loss for PGD-based Adversarial Testing").

The margin over the best other action changes its target on the way and may move in vain toward one that is out of
reach. Here every other action is a target of its own: one ascent for each maximises its lead over the action that is
played at the true observation, and the best point of all is kept. The paper decreases its step twice on the way; here
the steps fall linearly. Of more than ``targets`` actions those nearest to being played are taken, as AutoAttack does
(Croce and Hein 2020).

``by="q"`` is MinQ for agents that play their best action: ``min Q(s, argmax pi(s~))``. Of the points on all ways the
one is kept at which the action that is played is worth least at the true state; only actions that are worth less than
the best are targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, Keep, LengthSchedule, StepLength, Steps
from adv_wrappers.attacks.objectives import LeadOver, Margin, MarginOfQ
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import Variants, need_q
from adv_wrappers.utils.validation import Positive
from adv_wrappers.victims.gradients import Loss


@dataclass(frozen=True)
class MultiTargeted(GradientAttack):
    """One ascent toward each other action; the best of them.

    Args:
        victim: with one discrete action.
        by: ``"margin"``: the victim plays another action, with the largest lead; ``"q"``: the victim plays the action
            of the lowest Q at the true state, which takes a victim with Q-values.
        steps, step: of every ascent, and length of the first step as a fraction of the budget's radius.
        targets: number of actions that are tried, at most all others.
        restarts: ascents toward each target.

    Raises:
        VictimError: for continuous actions, and for ``by="q"`` on a victim without Q.
        ValueRangeError: for arguments out of range.
    """

    name: ClassVar[str] = "multi-targeted"
    instead: ClassVar[str] = "use max-diff"
    variants: ClassVar[Variants] = {"min-played-q": ({"by": "q"}, "Best is what plays the action of the lowest Q.")}
    capturable: ClassVar[bool] = True
    by: Literal["margin", "q"] = "margin"
    steps: Steps = 5
    step: StepLength = 0.5
    targets: Positive = 9
    restarts: Steps = field(default=8, kw_only=True)
    keep: Keep = field(default="best", kw_only=True)
    schedule: LengthSchedule = field(default="linear", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by == "q":
            need_q(f"{self.name} by='q'", self.victim, "use by='margin'")

    @property
    def network_passes(self) -> int:
        others = self.targets if self.victim is None else int(self.victim.action_space.n) - 1
        return self.steps * self.restarts * min(self.targets, others)

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        if self.by != "q":
            return Margin(bound.params(x).argmax(-1))
        q = bound.q(x)
        assert q is not None  # the victim has Q-values, or the attack was refused
        return MarginOfQ(q)

    def losses(self, x: Tensor, bound: VictimView, objective: Loss) -> Sequence[Loss]:
        assert isinstance(objective, Margin)
        near = self.by == "margin"  # the nearest targets come first, by Q the worst
        order = bound.params(x).argsort(dim=-1, descending=near, stable=True)
        count = min(self.targets, order.shape[-1] - 1)
        aims = [LeadOver(order[:, rank + int(near)], objective.target) for rank in range(count)]
        return aims * self.restarts
