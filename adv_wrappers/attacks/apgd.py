"""Auto-PGD (Croce and Hein 2020, "Reliable evaluation of adversarial robustness with an ensemble of diverse attacks").

Algorithm 1: projected gradient ascent with momentum whose step begins at twice the radius and is halved, a row at a
time, where it no longer pays; the row then goes on from its best point. Halving is considered at the paper's
checkpoints (section 3.2): when fewer than three quarters of the steps since the last one raised the objective, or when
neither the step nor the best value changed between the last two.

The losses are the paper's cross-entropy and difference of logits ratio, the margin, and the divergence of MaxDiff, with
which it attacks continuous actions. The margin is the default: the softmax of Q-values underflows, and on a policy
over six actions it found more than the paper's two (``docs/results/strength.md``, Pong). Departures: 20 steps and 5
restarts stand for the paper's 100 and 5, since an agent is attacked at every step; restarts begin at spread corners of
the box rather than at random points (:class:`.restarts.RestartPoints`); MaxDiff's objective is flat at the
true point, so with it the first ascent begins one tenth of the radius away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, Keep, StepLength, Steps
from adv_wrappers.attacks.objectives import LogitRatio, Weights, score_name, score_of
from adv_wrappers.attacks.restarts import TrackedGradient
from adv_wrappers.core.arrays import broad
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.victims.gradients import Gradient, Loss

ApgdLoss = Literal["cross-entropy", "margin", "dlr", "divergence"]


@dataclass(frozen=True)
class APGD(GradientAttack):
    """Projected gradient ascent whose step adapts itself a row.

    Args:
        victim: of any kind.
        loss: ``"cross-entropy"``, ``"margin"``, ``"dlr"`` (three discrete actions or more) or ``"divergence"`` (any
            actions); None takes the margin for one discrete action, and else the divergence.
        steps: of every ascent; ``step`` is the length of the first, as a fraction of the budget's radius.
        weights: of the divergence, as for :class:`adv_wrappers.MaxDiff`.

    Raises:
        VictimError: for a loss that is not defined on the victim's actions.
        ValueRangeError: for arguments out of range.
    """

    name: ClassVar[str] = "apgd"
    capturable: ClassVar[bool] = True
    loss: ApgdLoss | None = None
    steps: Steps = 20
    step: StepLength = 2.0
    weights: Weights | None = None
    restarts: Steps = field(default=5, kw_only=True)
    keep: Keep = field(default="best", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep != "best" or self.schedule != "constant":
            raise ValueRangeError("apgd keeps the best point and adapts its step: leave keep and schedule as they are")
        if self.victim is None:
            return
        space = self.victim.action_space
        if self.loss not in (None, "divergence") and not isinstance(space, spaces.Discrete):
            raise VictimError(f"loss={self.loss!r} is for one discrete action, this victim acts in {space}")
        if self.loss == "dlr":
            LogitRatio(torch.zeros(0), int(space.n))  # raises for too few actions

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        return score_of(self.loss, self.victim, bound.params(x), self.weights)

    def run_once(self, context: Context, gradient: Gradient, start: Tensor | None) -> Tensor:
        assert isinstance(gradient, TrackedGradient)
        if start is None and score_name(self.loss, self.victim) == "divergence":
            start = context.ascend(context.x, context.signs(), 0.1)
        return apgd(context, gradient, self.steps, self.lengths[0], start)


def checkpoints(steps: int) -> list[int]:
    """Numbers of steps after which halving is considered (Croce and Hein 2020, section 3.2).

    >>> checkpoints(100)
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    found = []
    last = 0.0
    now = 0.22
    while now < 1:
        found.append(math.ceil(now * steps - 1e-9))
        last, now = now, now + max(now - last - 0.03, 0.06)
    return sorted(set(found))


def apgd(
    context: Context, gradient: TrackedGradient, steps: int, step: float = 2.0, start: Tensor | None = None
) -> Tensor:
    """Algorithm 1 of Croce and Hein 2020 with momentum 0.75, ``[B, *S]``.

    Args:
        context: of this step.
        gradient: the gradient of the objective; its ``value`` is the objective itself.
        steps: number of steps.
        step: length of the first, as a fraction of the budget's radius.
        start: ``[B, *S]``; None for the true point.
    """
    y = context.x if start is None else start
    _ = context.box

    g = gradient(y)
    y = y + 0 * g  # NaN where the gradient is NaN, which the engine then says
    now = best = last_best = gradient.value
    best_y = y
    best_g = g
    before = y
    length = y.new_full((len(y),), step)
    kept = torch.zeros_like(length, dtype=torch.bool)  # whether the step was the same at the last two checkpoints
    rises = torch.zeros_like(length)
    since = 0
    marks = checkpoints(steps)
    for i in range(1, steps + 1):
        # momentum: with z the point of a plain step, x <- P(x + 0.75 (z - x) + 0.25 (x - the x before))
        ahead = context.ascend(y, g, broad(length, y))
        new = ahead if i == 1 else context.project(y + 0.75 * (ahead - y) + 0.25 * (y - before))
        before, y = y, new
        g, value = gradient(y), gradient.value
        # what both conditions of the checkpoints look at: how many steps raised the objective, and the best point
        rises += value > now
        now, up = value, value > best
        best = torch.where(up, value, best)
        rows = broad(up, y)
        best_y, best_g = torch.where(rows, y, best_y), torch.where(rows, g, best_g)
        if i in marks:
            # condition 1: too few steps raised the objective; condition 2: since the last checkpoint neither the step
            # nor the best value changed. Either halves the row's step, and the row goes on from its best point
            halve = (rises < 0.75 * (i - since)) | (kept & (best <= last_best))
            length, kept = torch.where(halve, length / 2, length), ~halve
            rows = broad(halve, y)
            y, g = torch.where(rows, best_y, y), torch.where(rows, best_g, g)
            now, last_best = torch.where(halve, best, now), best
            rises, since = torch.zeros_like(rises), i
    return best_y
