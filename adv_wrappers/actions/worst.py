"""The worst action: what the victim values least (Behzadan and Hsu 2019, section 3: argmin of Q).

Without Q: the action that the policy itself finds least likely (the least preferred one; for continuous actions the
corner of the budget farthest from the mean). Continuous actions with a critic: projected gradient descent on
``Q(s, a)`` over the action, ``s`` being what the agent acted on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import On, Perturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import expect_victim
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.utils.numbers import check_integer


@dataclass(frozen=True)
class WorstAction(Perturbation):
    """Replace the action by the worst within the budget.

    Args:
        victim: whose opinion counts.
        by: ``"q"`` or ``"policy"``; None takes Q where there is one.
        steps: gradient steps for continuous actions with a critic, each ``2 / steps`` of the radius.

    Raises:
        VictimError: for ``by="q"`` on a victim without Q, for a critic without a gradient, and for several discrete
            actions at once.
    """

    name: ClassVar[str] = "worst-action"
    on: ClassVar[On] = "action"
    search: ClassVar[bool] = True
    needs_victim: ClassVar[bool] = True
    within: ClassVar[Budget | None] = Valid()
    victim: Any = None
    by: str | None = None
    steps: int = 10

    def __post_init__(self) -> None:
        expect_victim(self.name, self.victim)
        if self.by not in (None, "q", "policy"):
            raise ValueRangeError(f"by must be 'q' or 'policy', got {self.by!r}")
        check_integer("steps", self.steps, 1)
        if self.by == "q" and self.victim is not None and not self.victim.has_q:
            raise VictimError("worst-action by='q' needs Q-values, and this victim has none: use by='policy'")
        by_gradient = self.by != "policy" and self.victim is not None and not self.victim.discrete and self.victim.has_q
        if by_gradient and not self.victim.differentiable:
            raise VictimError("worst-action follows a critic's gradient, this victim has none: use by='policy'")

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.discrete and field.shape != ():
            raise VictimError("worst-action is for one discrete action or continuous ones, not for several discrete")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        by_q = self.by == "q" or (self.by is None and self.victim.has_q)
        if self.victim.discrete:
            scores = bound.q() if by_q else bound.params()
            assert scores is not None
            if context.mask is not None:
                scores = scores.masked_fill(~context.mask.bool(), torch.inf)
            return context.space[0] + scores.argmin(-1)
        if not by_q:
            mean = self.victim.mode(bound.params())
            return torch.where((context.high - mean).abs() >= (context.low - mean).abs(), context.high, context.low)
        y = x
        for _ in range(self.steps):
            with torch.enable_grad():
                leaf = y.detach().requires_grad_()
                value = bound.q(act=leaf)
                assert value is not None
                g = torch.autograd.grad(-value.sum(), leaf)[0]
            y = context.ascend(y, g, 2 / self.steps)
        return y
