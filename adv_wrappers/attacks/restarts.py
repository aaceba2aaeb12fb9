"""Several ascents, and the best point of them: restarts, and the search that keeps its best iterate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from adv_wrappers.attacks.layout import LaidOut, rearranged
from adv_wrappers.core.arrays import broad
from adv_wrappers.core.budgets.budget import FewFeatures
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.victims.gradients import Gradient, Loss
from adv_wrappers.victims.victim import Victim


class Climbed(Protocol):
    """What an attack climbs in place of the parameters of the victim's policy."""

    def outputs(self, bound: VictimView, x: Tensor) -> Tensor:
        """The input of its losses at points, from the victim at this step."""

    def gradient(self, bound: VictimView, loss: Loss) -> Gradient:
        """The gradient function of a loss of it."""


def search(
    context: Context,
    bound: VictimView,
    objective: Loss,
    ascents: Iterable[tuple[int, Loss]],
    run: Callable[[Context, Gradient, int, Tensor | None], Tensor],
    keep: str,
    start: Tensor | None = None,
    climbed: Climbed | None = None,
) -> Tensor:
    """The best point of several ascents, ``[B, *S]``.

    Args:
        context: the context of this step.
        bound: the victim at this step.
        objective: ranks points (see :class:`BestPoints`).
        ascents: of each the number of its start, 0 for the attack's own, and its loss.
        run: one ascent, in the layout of pictures in which gradients are fastest: from a context, a gradient, the
            number of the start and the start (None for the attack's own) to the last iterate.
        keep: ``"last"`` or ``"best"``, see :class:`.gradient_attack.GradientAttack`.
        start: the attack's own start, where ``run`` does not know it. Where it does, one step of the full radius from
            there is tried as well.
        climbed: what is climbed; None for the parameters of the victim's policy.
    """
    ascents = list(ascents)
    last = TrackedLoss(ascents[0][1])
    # the victim's answers at the true point were checked; an iterate may be NaN, where its gradient was
    blind = copy.copy(bound)
    blind.look = False
    best = BestPoints(objective, bound.victim, blind.params if climbed is None else partial(climbed.outputs, blind))
    # all ascents share one gradient function, in the layout in which it is fastest
    slope = bound.gradient(last) if climbed is None else climbed.gradient(bound, last)
    other = rearranged(slope, context.x, context)
    if other is not None:
        layout, slope = other
        context, best.back = LaidOut(context, layout), layout.inverse
        start = None if start is None else layout(start)
    first = context if start is None else None
    starts = RestartPoints(context, start)
    for i, (number, loss) in enumerate(ascents):
        last.loss = loss
        tracked: Gradient = slope
        if keep == "best":
            tracked = TrackedGradient(slope, best, last, first if i == 0 else None)
        best.offer(run(context, tracked, number, starts(number)), end=True)
    return best.result()


class TrackedLoss:
    """A loss that keeps the parameters of its last call, ``[B, K]``: those of the victim at the last iterate.

    ``loss`` is exchanged between two ascents, which so share one gradient function and its memory.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss, self.params = loss, None  # type: Loss, Tensor | None
        if hasattr(loss, "gradient"):
            self.gradient = self._gradient

    def __call__(self, params: Tensor) -> Tensor:
        self.params = params.detach()
        return self.loss(params)

    def _gradient(self, params: Tensor) -> Tensor:
        self.params = params  # memory that the next step overwrites; it is read before
        return self.loss.gradient(params)  # type: ignore[attr-defined,no-any-return]  # it has one, see __init__


class BestPoints:
    """The best point of every row among those that were offered, ``[B, *S]``.

    Args:
        objective: ranks points: by its method ``success`` of the parameters, if it has one and the victim plays the
            mode, and then by the objective itself.
        victim: the victim whose policy is attacked.
        outputs: the parameters ``[B, K]`` at points.

    Attributes:
        back: converts points from the layout in which they are offered to that of ``outputs`` and of the result.
    """

    def __init__(self, objective: Loss, victim: Victim, outputs: Callable[[Tensor], Tensor]) -> None:
        self.objective, self.outputs = objective, outputs
        self.back: Callable[[Tensor], Tensor] = lambda y: y
        self.success = getattr(objective, "success", None) if victim.select == "mode" else None
        self.point: Tensor | None = None
        self.rank: tuple[Tensor | None, Tensor] | None = None

    def offer(self, y: Tensor, params: Tensor | None = None, end: bool = False) -> Tensor:
        """Take the rows of ``y`` that are better than the best so far; returns the objective at ``y``, ``[B]``.

        Args:
            y: points ``[B, *S]``.
            params: the victim's parameters at ``y``, if they are known.
            end: whether ``y`` is the end of an ascent. Rows that are NaN there, as their gradient was, stay NaN.
        """
        params = self.outputs(self.back(y)) if params is None else params
        success = None if self.success is None else self.success(params)
        value: Tensor = self.objective(params)
        if self.point is None or self.rank is None:
            self.point, self.rank = y, (success, value)
            return value
        # a point that succeeds is better than any that does not, and among equals the objective decides
        old_success, old = self.rank
        better = value > old
        if success is not None and old_success is not None:
            better = (success > old_success) | ((success == old_success) & better)
            success = torch.where(better, success, old_success)
        if end:
            better = better | value.isnan()
        self.point = torch.where(broad(better, y), y, self.point)
        self.rank = success, torch.where(better, value, old)
        return value

    def result(self) -> Tensor:
        """The best points, in the layout of the observations."""
        assert self.point is not None
        return self.back(self.point)


class TrackedGradient:
    """A gradient function ``[B, *S] -> [B, *S]`` that offers every point at which it is called to ``best``.

    Args:
        gradient: the gradient, in the layout of the ascent.
        best: collects the best points.
        last: the loss, which has the parameters at a point once the gradient was computed there.
        first: the context of an ascent from the true point. One step of the full radius along its first gradient is
            offered as well, so that keeping the best is in no row weaker than FGSM.

    Attributes:
        value: the objective at the last point, ``[B]``.
        overwritable: see :class:`adv_wrappers.networks.input_gradient.InputGradient`.
    """

    value: Tensor

    def __init__(self, gradient: Gradient, best: BestPoints, last: TrackedLoss, first: Context | None) -> None:
        self.gradient = gradient
        self.best = best
        self.last = last
        self.first = first
        self.overwritable = getattr(gradient, "overwritable", False)

    def __call__(self, y: Tensor) -> Tensor:
        g = self.gradient(y)
        self.value = self.best.offer(y, self.last.params)
        if self.first is not None:
            context, self.first = self.first, None
            self.best.offer(context.ascend(y, g, 1.0))
        return g


class RestartPoints:
    """The starts of restarts: the attack's own start, opposite corners of the box pair by pair, then random points.

    The signs of the first corner are drawn; the corner of pair p is the first one with the signs of the p-th Walsh
    function, which is orthogonal to those before. So few starts are spread as widely as a box allows: in two
    dimensions four of them are its corners, which random points would leave out.
    """

    def __init__(self, context: Context, first: Tensor | None = None) -> None:
        self.context = context
        self.first = first
        self._signs: Tensor | None = None

    def __call__(self, number: int) -> Tensor | None:
        """Start ``number``, ``[B, *S]``; that of 0 is ``first``, None for the attack's own."""
        if number == 0:
            return self.first
        context, pair = self.context, (number - 1) // 2
        if self._signs is None:
            self._signs = context.signs()
        size = max(self._signs[0].numel(), 1)
        if pair >= size or isinstance(context.budget, FewFeatures):  # all corners of a box would share a few features
            return context.draw()
        signs = self._signs * _walsh(pair, size, self._signs.device).view(self._signs.shape[1:])
        low, high = context.box
        up = signs > 0 if number % 2 else signs < 0
        return context.project(torch.where(up, high, low))


def _walsh(number: int, size: int, device: torch.device) -> Tensor:
    """A Walsh function, +-1 int64 ``[size]``: the parity of the bits that ``number`` and the index share."""
    index = torch.arange(size, device=device) & number
    parity = torch.zeros_like(index)
    for bit in range(number.bit_length()):
        parity ^= (index >> bit) & 1
    return 1 - 2 * parity
