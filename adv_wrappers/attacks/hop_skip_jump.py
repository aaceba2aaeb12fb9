"""HopSkipJumpAttack (Chen et al. 2020, "HopSkipJumpAttack: A Query-Efficient Decision-Based Attack").

By decisions alone: of the victim's answers nothing but the action that it plays is looked at. From a point where that
action is another one, a bisection leads back to the boundary of the decision (algorithm 1 there); around that point
random probes vote on the direction in which the boundary lies (equation 9, less the mean vote as in equation 16); a
step that way, halved until the action is another one again, is the next point to begin from (algorithm 2). Within
:class:`L2` directions are those of the vote and bisections go along the line to the true observation, elsewhere they
are its signs and bisections clip to a shrinking box.

Departures: the paper looks for the smallest change, and an agent is attacked within a budget. So whatever changes the
action within the budget is a success, and the answer is the point that the last step within the budget led to: a step
there is up to the whole radius long and ends behind the boundary, where a point on it would be lost to rounding. The
search begins from random points of the budget; only where none of these changes the action does it begin from farther
away, and walk towards the budget. Probes are a tenth of the distance long in every feature, where the paper's shrink
with the number of features and would be lost to single precision. Without any success the answer is the projection of
the nearest point that changes the action, or the first point that was tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from adv_wrappers.attacks.square import MOST_QUERIES
from adv_wrappers.core.arrays import broad, flat_rows
from adv_wrappers.core.budgets.budget import L2, Linf
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import VictimAttack
from adv_wrappers.utils.validation import Limits
from adv_wrappers.victims.victim import Victim

# of a round
_BISECTIONS = 6  # a change that is 64 times as short counts as none
_HALVINGS = 3
_LEAST_PROBES = 4
_FARTHER = 8  # starts from outside of the budget are up to 2 ** _FARTHER radii away
_PROBE = 0.1  # length of a probe in every feature, as a share of the distance of the boundary


@dataclass(frozen=True)
class HopSkipJump(VictimAttack):
    """Another action by looking at nothing but the action that the victim plays.

    Args:
        victim: with one discrete action.
        queries: how often the victim is asked a step, the true observation included; at least 16.

    Raises:
        VictimError: for other actions than one of ``n``.
        ValueRangeError: for too few queries.
    """

    name: ClassVar[str] = "hop-skip-jump"
    instead: ClassVar[str] = "use square"
    capturable: ClassVar[bool] = True
    queries: Annotated[int, Limits(3 + _BISECTIONS + _LEAST_PROBES + _HALVINGS, MOST_QUERIES)] = 500

    @property
    def network_passes(self) -> int:
        return self.queries

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        tries, rounds = plan(self.queries)
        search = BoundarySearch(self.victim, context)
        # points to begin from, then rounds of bisection, votes and a step (algorithm 2)
        for i in range(tries):
            search.begin(i, tries)
        for number, probes in enumerate(rounds, 1):
            search.bisect()
            search.step(search.direction(probes), number)
        return search.result()


def plan(queries: int) -> tuple[int, list[int]]:
    """How many points are tried to begin from, and the number of probes of every round.

    Round t has the square root of t times the probes of the first (section III.D of the paper).
    """
    first, left = max(queries // 20, _LEAST_PROBES), queries - 1
    rounds: list[int] = []
    while True:
        probes = round(first * math.sqrt(len(rounds) + 1))
        cost = _BISECTIONS + probes + _HALVINGS
        # at least a fifth of the queries is kept for the points to begin from, but for the first round
        if left - cost < (queries // 5 if rounds else 1):
            return left, rounds
        rounds.append(probes)
        left -= cost


class BoundarySearch:
    """Where every row stands, and what it has found.

    Attributes:
        point: a point where the victim plays another action, ``[B, *S]``, in ``started`` rows.
        distance: of that point, ``[B]``: 1 is the radius of the budget.
        answer: the best point within the budget so far; one that changes the action in ``done`` rows.
    """

    def __init__(self, victim: Victim, context: Context) -> None:
        self.victim = victim
        self.context = context
        self.bound = context.bind(victim)
        self.x = context.x
        self.low, self.high = context.low, context.high
        self.round = isinstance(context.budget, L2)
        # outside of other budgets than these two there is no telling how far the way back is
        self.leaves = isinstance(context.budget, (L2, Linf))
        space = context.space
        self.space = torch.minimum(space[0], self.x), torch.maximum(space[1], self.x)
        self.played = self._action(self.x)
        self.point = self.answer = self.x
        self.started = self.done = torch.zeros(len(self.x), dtype=torch.bool, device=self.x.device)
        self.distance = self.x.new_full((len(self.x),), torch.inf)

    def begin(self, i: int, tries: int) -> None:
        """Try a random point: of the budget, or in the last third of the tries farther away."""
        context, near = self.context, i < tries - tries // 3 or not self.leaves
        # a point of the budget, every fourth time one of its corners; or one that is up to 2 ** _FARTHER radii away
        if near:
            y = context.noise("sign") if i % 4 == 3 else context.draw()
        else:
            y = self.place(self.x + 2.0 ** (1 + i % _FARTHER) * (context.draw() - self.x))
        flips, distance = self.flips(y), self.far(y)
        if i == 0:
            self.answer = y
        self.keep(y, flips & near & ~self.done)
        # of all points that change the action the nearest is where the search begins
        closer = flips & (distance < self.distance)
        self.point, self.distance = self.choose(closer, y, self.point), torch.where(closer, distance, self.distance)
        self.started = self.started | flips

    def bisect(self) -> None:
        """Draw the point back towards the true observation, to the boundary; of far ones the budget's edge first."""
        low, high = torch.zeros_like(self.distance), torch.ones_like(self.distance)
        start, away = self.point, self.distance
        # algorithm 1: of the way from the truth (0) to the point (1), `low` keeps the action and `high` changes it
        for i in range(_BISECTIONS):
            middle = (low + high) / 2
            if i == 0:
                middle = torch.where(away > 1, 1 / away, middle)
            y = self.place(self.toward(start, away, middle))
            flips = self.flips(y) & self.started
            low, high = torch.where(flips, low, middle), torch.where(flips, middle, high)
            self.move(y, flips)
            self.keep(y, flips & (self.distance <= 1) & ~self.done)

    def direction(self, probes: int) -> Tensor:
        """Where the boundary's other side lies, ``[B, *S]``, by the votes of random probes around the point."""
        size = self.x.shape[1:].numel()
        # how long a probe is: in every direction alike within an L2 ball, elsewhere by the sides of the box
        unit = self.context.budget.eps / math.sqrt(size) if self.round else (self.high - self.low) / 2  # type: ignore[attr-defined]
        reach = broad(_PROBE * self.distance.clamp(max=2.0**_FARTHER), self.x) * unit
        if self.context.grid:  # a probe shorter than a level would be none
            reach = torch.where(reach > 0, reach.clamp(min=1.0), reach)
        # equation 9: the sum of the probes, each with the sign of its vote: +1 where it changes the action, else -1
        votes = self.x.new_zeros(len(self.x))
        moves = torch.zeros_like(self.x)
        voted = torch.zeros_like(self.x)
        for u in self.context.normals(probes):
            y = self.valid(self.point + reach * u)
            vote, move = 2.0 * self.flips(y).to(self.x.dtype) - 1, y - self.point
            votes = votes + vote
            moves = moves + move
            voted = voted + broad(vote, self.x) * move
        # equation 16: less the mean vote, for a smaller variance; where all voted alike that would leave nothing
        mean = broad(votes / probes, self.x)
        return torch.where(mean.abs() == 1, voted, voted - mean * moves)

    def step(self, direction: Tensor, number: int) -> None:
        """Go that way, at first as far as the budget (or the distance) in the first round, then by halves."""
        # the longest step that the budget allows in this direction
        if self.round:
            unit = self.context.budget.direction(direction) * self.context.budget.eps  # type: ignore[attr-defined]
        else:
            unit = torch.where(direction > 0, self.high - self.x, self.x - self.low) * direction.sign()
        # algorithm 2: the distance over sqrt(t), halved until the action is another one again
        length = self.distance.clamp(min=1.0, max=2.0**_FARTHER) / math.sqrt(number)
        start, near = self.point, self.distance <= 1
        waiting = self.started
        for _ in range(_HALVINGS):
            y = start + broad(length, self.x) * unit
            y = self.choose(near, self.context.project(y), self.place(y))
            flips = self.flips(y) & waiting
            waiting, length = waiting & ~flips, length / 2
            self.move(y, flips)
            self.keep(y, flips & (self.distance <= 1))

    def result(self) -> Tensor:
        """The answer; where nothing within the budget changed the action, the nearest point that did, projected."""
        return self.choose(self.started & ~self.done, self.context.project(self.point), self.answer)

    def flips(self, y: Tensor) -> Tensor:
        """Whether the victim plays another action, bool ``[B]``: one query."""
        return self._action(y) != self.played

    def _action(self, y: Tensor) -> Tensor:
        action: Tensor = self.victim.mode(self.bound.params(y))
        return action

    def move(self, y: Tensor, rows: Tensor) -> None:
        """Stand at ``y`` in some rows."""
        self.point = self.choose(rows, y, self.point)
        self.distance = torch.where(rows, self.far(y), self.distance)

    def keep(self, y: Tensor, rows: Tensor) -> None:
        """``y`` is the answer in some rows."""
        self.answer, self.done = self.choose(rows, y, self.answer), self.done | rows

    def far(self, y: Tensor) -> Tensor:
        """Distance of ``y`` from the true observation in radii of the budget, ``[B]``; exactly 1 is within."""
        move = flat_rows(y - self.x)
        if self.round:
            eps = self.context.budget.eps  # type: ignore[attr-defined]
            share = torch.linalg.vector_norm(move, dim=1) / (eps if eps > 0 else 1.0)
        else:
            side = flat_rows(torch.where(y > self.x, self.high - self.x, self.x - self.low))
            share = torch.where(side > 0, move.abs() / torch.where(side > 0, side, 1.0), 0.0).amax(1)
        return torch.where(share <= 1 + 1e-5, share.clamp(max=1.0), share)

    def toward(self, y: Tensor, away: Tensor, share: Tensor) -> Tensor:
        """``y``, whose distance is ``away``, at ``share`` of that distance."""
        if self.round:
            return self.x + broad(share, self.x) * (y - self.x)
        reach = broad(torch.where(self.started, share * away, 1.0), self.x)
        return torch.clamp(y, self.x - reach * (self.x - self.low), self.x + reach * (self.high - self.x))

    def place(self, y: Tensor) -> Tensor:
        """``y`` in the space and on its grid, and exactly in the budget where it is in the budget."""
        if not self.leaves:
            return self.context.project(y)
        y = self.valid(y)
        return self.choose(self.far(y) <= 1, self.context.project(y), y)

    def valid(self, y: Tensor) -> Tensor:
        """``y`` in the space and on its grid."""
        y = torch.clamp(y, *self.space)
        return y.round_() if self.context.grid else y

    def choose(self, rows: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Some rows of ``a``, the others of ``b``."""
        return torch.where(broad(rows, self.x), a, b)
