"""Square Attack (Andriushchenko et al. 2020, "Square Attack: a query-efficient black-box adversarial attack").

Random search by scores alone (algorithm 1 there): a proposal is kept, row by row, where it raises the loss. The loss is
the lead of the best other action over the victim's own (the margin, equation 2), or the divergence from what the victim
would do where an action is not one of ``n``. On images a proposal sets one square of every channel to an end of the box
(algorithm 2), beginning with vertical stripes; its share of the image is halved on the paper's schedule.

Departures: the paper stops at the first success; here all queries are spent, for a larger lead. Within :class:`L2` a
square adds a change of the whole radius and the result is drawn back into the ball, where the paper moves mass between
two windows. Observations that are no image have no squares: there every third proposal sets a random subset of the
features to ends of the box. Since in few dimensions the best point often lies inside of the box, where ends never come,
another third are points anywhere in the budget, and another third points around the best one, in a window that closes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from adv_wrappers.attacks.objectives import Divergence, Margin
from adv_wrappers.core.arrays import broad
from adv_wrappers.core.budgets.budget import L2, FewFeatures
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.core.perturbation import VictimAttack
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils.validation import Limits, PositiveShare
from adv_wrappers.victims.gradients import Loss

_HALVED = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 queries: where the share is halved
MOST_QUERIES = 10**7
_SMALLEST = 8  # sides of an image: what is smaller is a table of features
_CLOSING = 2.0  # the window around the best point has the share (1 - i / queries) ** _CLOSING of the budget


@dataclass(frozen=True)
class Square(VictimAttack):
    """Random search by the victim's scores alone: no gradient, whatever the victim is made of.

    Args:
        victim: of any kind.
        queries: how often the victim is asked a step, the true observation included; at least 2.
        share: share of an observation that a proposal sets to ends of the box at first, in (0, 1] (the paper's p);
            None takes the paper's 0.05 for images, and 0.5 for other observations.

    Raises:
        ValueRangeError: for numbers outside of these ranges.
    """

    name: ClassVar[str] = "square"
    capturable: ClassVar[bool] = True
    queries: Annotated[int, Limits(2, MOST_QUERIES)] = 500
    share: PositiveShare | None = None

    @property
    def network_passes(self) -> int:
        return self.queries

    def score(self, x: Tensor, bound: VictimView) -> Loss:
        """What is maximised, a loss on parameters ``[B, K] -> [B]``; ``bound`` is the victim at this step."""
        params = bound.params(x)
        return Margin(params.argmax(-1)) if self.victim.discrete else Divergence(self.victim, params)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        score = self.score(x, bound)
        # images are searched by squares, other observations by features
        layout = image_layout(tuple(x.shape[1:])) if not isinstance(context.budget, FewFeatures) else None
        features = Features(context) if layout is None else Squares(context, layout)
        share = self.share if self.share is not None else 0.5 if layout is None else 0.05
        best = features.start()
        reached = score(bound.params(best))
        # algorithm 1: a proposal is kept where it raises the loss
        for i in range(self.queries - 2):
            y = features.propose(best, i, self.queries, share)
            found = score(bound.params(y))
            better = found > reached
            best = torch.where(broad(better, x), y, best)
            reached = torch.where(better, found, reached)
        return best


class Squares:
    """Proposals for images: a square at a random place, every channel of it at one end of the box."""

    def __init__(self, context: Context, layout: str) -> None:
        self.context, self.shape = context, tuple(context.x.shape[1:])
        self.axes = layout.index("H"), layout.index("W")
        self.height, self.width = (self.shape[axis] for axis in self.axes)
        self.channels = [1 if axis in self.axes else size for axis, size in enumerate(self.shape)]

    def start(self) -> Tensor:
        """Vertical stripes, one column wide."""
        stripes = list(self.channels)
        stripes[self.axes[1]] = self.width
        up = self.context.numbers(math.prod(stripes)).view(-1, *stripes) < 0.5
        return ends(self.context, self.context.x, None, up, math.prod(self.shape))

    def propose(self, best: Tensor, i: int, queries: int, share: float) -> Tensor:
        """``best`` with one square of it changed."""
        # algorithm 2: a square of so large a share, at a random place, each channel to one end of the box
        side = round(math.sqrt(share_at(i, queries, share) * self.height * self.width))
        side = min(max(side, 1), self.height, self.width)
        u = self.context.numbers(2 + math.prod(self.channels))
        rows = self._within(u[:, 0], self.height, side, self.axes[0])
        columns = self._within(u[:, 1], self.width, side, self.axes[1])
        up = u[:, 2:].reshape(-1, *self.channels) < 0.5
        return ends(self.context, best, rows & columns, up, side * side * math.prod(self.channels))

    def _within(self, u: Tensor, size: int, side: int, axis: int) -> Tensor:
        """Which entries of an axis the square covers, bool ``[B, ...]``, to be broadcast."""
        shape = [1] * len(self.shape)
        shape[axis] = size
        first = (u * (size - side + 1)).floor_().clamp_(max=size - side)[:, None]
        place = torch.arange(size, device=u.device, dtype=u.dtype)
        return ((place >= first) & (place < first + side)).view(-1, *shape)


class Features:
    """Proposals for other observations: ends of the box, points anywhere in the budget, and points around the best."""

    def __init__(self, context: Context) -> None:
        self.context, self.shape = context, tuple(context.x.shape[1:])
        self.size = math.prod(self.shape)

    def start(self) -> Tensor:
        """Every feature at one end of the box."""
        return ends(self.context, self.context.x, None, self.context.uniform() < 0.5, self.size)

    def propose(self, best: Tensor, i: int, queries: int, share: float) -> Tensor:
        """A point of the budget."""
        context = self.context
        if i % 3 == 0:
            # a random subset of the features goes to ends of the box
            count = min(max(round(share_at(i, queries, share) * self.size), 1), self.size)
            u = context.numbers(2 * self.size)
            ranks = u[:, : self.size]
            chosen = torch.zeros_like(ranks, dtype=torch.bool).scatter_(1, ranks.topk(count, 1).indices, True)
            up = u[:, self.size :].reshape(best.shape) < 0.5
            return ends(context, best, chosen.view(best.shape), up, count)
        # any point of the budget
        y = context.draw()
        if i % 3 == 1:
            return y
        # a point around the best one, in a window that closes
        move = (y - context.x) * (2 * (1 - i / queries) ** _CLOSING)
        if context.grid:  # by whole levels, fewer features as the window closes
            move = (move + context.uniform()).floor_()
        return context.project(best + move)


def ends(context: Context, y: Tensor, where: Tensor | None, up: Tensor, count: int) -> Tensor:
    """``y`` with some features at ends of the box, the upper one where ``up``; projected.

    Args:
        where: which features, bool, broadcast to ``[B, *S]``; None for all.
        count: how many these are.
    """
    if isinstance(context.budget, L2):  # a corner of the box is far outside of the ball
        step = (2.0 * up.to(y.dtype) - 1) * (context.budget.eps / math.sqrt(count))
        return context.project(y + (step if where is None else step * where))
    end = torch.where(up, context.high, context.low)
    return context.project(end if where is None else torch.where(where, end, y))


def share_at(i: int, queries: int, first: float) -> float:
    """The share of an observation that proposal ``i`` changes: the paper's schedule for 10,000 queries, squeezed."""
    return first * 0.5 ** sum(i * 10_000 / queries > at for at in _HALVED)


def image_layout(shape: tuple[int, ...]) -> str | None:
    """The layout of an observation that is an image, or None."""
    try:
        layout = layout_of(shape)
    except SpaceError:
        return None
    return layout if min(shape[layout.index("H")], shape[layout.index("W")]) >= _SMALLEST else None
