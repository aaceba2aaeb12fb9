"""Carlini and Wagner 2017, "Towards Evaluating the Robustness of Neural Networks", the l2 attack of section VI.

Minimum distance: minimise ``||x' - x||^2 + c f(x')`` over w, ``x' = low + (high - low)(tanh w + 1) / 2``, with Adam,
and search for the c of every row tenfold upwards and by bisection. ``f`` is the paper's f6: the lead that the right (or
wrong) action must lose, down to ``-confidence``. Departures: the box is the budget's, which an unbounded space needs;
few long steps (50 of 0.05) stand for the paper's thousands of 0.01, since an agent is attacked at every step;
the batch is optimised together, a row's c and best point being its own; a row for which nothing succeeded keeps the
point of the smallest lead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from adv_wrappers.attacks.adam import Adam
from adv_wrappers.attacks.gradient_attack import StepLength, Steps
from adv_wrappers.attacks.objectives import Margin
from adv_wrappers.core.arrays import broad, flat_rows
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import VictimAttack
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import is_integer
from adv_wrappers.utils.validation import Limits
from adv_wrappers.victims.gradients import need_gradient


class CappedMargin:
    """A :class:`Margin` up to ``most``, beyond which nothing is gained: minus the paper's f6."""

    def __init__(self, margin: Margin, most: float) -> None:
        self.margin, self.most = margin, most

    def __call__(self, params: Tensor) -> Tensor:
        return self.margin(params).clamp(max=self.most)

    def gradient(self, params: Tensor) -> Tensor:
        """That of the margin, and nothing beyond."""
        return torch.where((self.margin(params) <= self.most)[:, None], self.margin.gradient(params), 0.0)


@dataclass(frozen=True)
class CarliniWagner(VictimAttack):
    """The smallest l2 change that makes the victim choose another action.

    Args:
        victim: with one discrete action.
        target: None (any other action), ``"worst"`` (the least likely one), or the number of an action from 0.
        steps: Adam steps for every c.
        step: Adam's learning rate in the space of w.
        searches: number of values of c.
        c: first value of c, for distances in units of the widest side of the box.
        confidence: by how much the new action must lead.

    Raises:
        VictimError: for continuous actions.
        ValueRangeError: for a target that is no action, and a confidence below 0.
    """

    name: ClassVar[str] = "carlini-wagner"
    instead: ClassVar[str] = "use max-diff"
    capturable: ClassVar[bool] = True
    within: ClassVar[Budget | None] = Valid()
    target: int | str | None = None
    steps: Steps = 50
    step: StepLength = 0.05
    searches: Steps = 5
    c: Annotated[float, Limits(0, 1e9, above=True)] = 1e-3
    confidence: Annotated[float, Limits(0, 1e9)] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        need_gradient(self.name, self.victim)
        if self.target not in (None, "worst") and not (is_integer(self.target) and self.target >= 0):
            raise ValueRangeError(f"target must be None, 'worst' or the number of an action, got {self.target!r}")
        actions = int(self.victim.action_space.n) if self.victim is not None else None
        if isinstance(self.target, int) and actions is not None and not 0 <= self.target < actions:
            raise ValueRangeError(f"target must be an action from 0 to {actions - 1}, got {self.target}")

    @property
    def network_passes(self) -> int:
        return self.steps * self.searches

    def objective(self, x: Tensor, bound: VictimView) -> Margin:
        """What is maximised: the lead of the wanted action, a loss on parameters ``[B, K] -> [B]``."""
        params = bound.params(x)
        if self.target is None:
            return Margin(params.argmax(-1))
        wanted = params.argmin(-1) if self.target == "worst" else torch.full_like(params.argmin(-1), int(self.target))
        return Margin(wanted, toward=True)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        lead = self.objective(x, bound)
        # the change of variables: middle + half tanh(w) lies in the box for every w; w of the true point to begin with
        middle, half = (context.high + context.low) / 2, ((context.high - context.low) / 2).clamp(min=1e-12)
        start = ((x - middle) / half).clamp(-0.999999, 0.999999).atanh()
        slope = bound.gradient(CappedMargin(lead, self.confidence))
        best = x.clone()
        best_cost = x.new_full((len(x),), torch.inf)
        best_lead = x.new_full((len(x),), -torch.inf)
        # the paper's pixels span one unit: so does the widest side of the box, for c to mean the same everywhere
        c = self.c * flat_rows(context.high - context.low).amax(1).square()
        # of each row the largest c that failed, and the smallest that succeeded
        floor, ceiling = x.new_zeros(len(x)), x.new_full((len(x),), torch.inf)
        for _ in range(self.searches):
            w, adam = start, Adam(start, self.step)
            won = torch.zeros(len(x), dtype=torch.bool, device=x.device)
            for _ in range(self.steps):
                # one step of Adam on ||x' - x||^2 + c f(x'), whose gradient with respect to w is written out; f is
                # minus the lead
                tanh = w.tanh()
                y = middle + half * tanh
                g = (2 * (y - x) - broad(c, x) * slope(y)) * half * (1 - tanh.square())
                w = w - adam.step(g)
                y = context.project(middle + half * w.tanh())
                # a row keeps its nearest point that succeeded, and until one has, that of the best lead
                score = lead(bound.params(y))
                cost = flat_rows(y - x).square().sum(1)
                success = (score > 0) & (score >= self.confidence)
                won |= success
                better = torch.where(success, cost < best_cost, best_cost.isinf() & (score > best_lead))
                best = torch.where(broad(better, x), y, best)
                best_lead = torch.where(better, score, best_lead)
                best_cost = torch.where(better & success, cost, best_cost)
            # the search for c: by bisection, and tenfold upwards as long as nothing succeeded
            ceiling, floor = torch.where(won, c, ceiling), torch.where(won, floor, c)
            c = torch.where(ceiling.isinf(), c * 10, (floor + ceiling) / 2)
        return best
