"""Searches over boxes of states: certified returns of CartPole, MountainCar and Pendulum, for all starts at once.

What an adversary can make of an episode after some steps is a set of states. The search follows a set of boxes that
holds it: at every step the possible actions in each box are computed, by bounds on the victim's network over the box of
everything it may be shown there, and the box is stepped with each of them by interval arithmetic
(:mod:`adv_wrappers.certification.interval_dynamics`). The boxes that come out are cut along a grid of cells, and of
those within a cell the hull is kept. Cells are small at first, and larger ones are taken whenever there are more boxes
than are followed at once, so that the few sets of states of the first steps are held closely. Hulls hold every state;
to keep one of several neighbouring states for all would not.

A cell's possible actions are computed once. Where several are possible the cell is split, until the parts are small
beside the budget; an action then is taken from the hull of those parts in which it is possible.

The smallest reward so far is kept for every box. The search stops at any time: what the boxes have earned then, and
what every rest of an episode earns at least, is certified. It starts with few boxes at once, and goes on with more, as
many as what is left of the time, or of the number of boxes, seems to allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adv_wrappers.certification.cells import CellActions, CellGrid
from adv_wrappers.certification.interval_dynamics import MOST, IntervalDynamics, dynamics_of
from adv_wrappers.certification.perturbed_victim import given_budget
from adv_wrappers.certification.shown_boxes import ROWS, ShownBoxes
from adv_wrappers.core.arithmetic import Scale
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.types import Floats
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.utils.deadline import Deadline, OutOfTimeError, TimedBatches
from adv_wrappers.utils.numbers import check_number, integer
from adv_wrappers.utils.precision import full_precision
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.possible import Method
from adv_wrappers.wrappers.base import AnyEnv

MOST_BOXES = 10_000_000  # that a search steps by default
# boxes that the first round follows at once: so many, or these shares of the limits where they are less
_FIRST, _OF_SECONDS, _OF_BOXES = 1000, 200, 0.01
_POWER = 1.15  # the number of boxes that a round steps grows by about this power of how many it follows at once
_FASTER = 2.0  # more boxes are stepped a second where there are more of them
_LEAST_MORE, _MOST_MORE = 2.0, 32.0  # by how much their number grows from one round to the next
# the scale of the first cells, by how much that of the next ones is larger, and that of the last
_FINEST, _COARSER, _COARSEST = 1 / 512, 1.5, 16.0
_CUTS = 32  # into how many pieces boxes are cut at most, for each that is followed at once
# of a search from a set of states: the scale of the cells of its first round, and that below which it has no more
_OF_MANY, _FINEST_OF_MANY = 2.0, 1 / 16
_SLOPE_RADIUS = 1e-3  # of the boxes in whose middles the slopes of the victim's choice are taken
_PIECES = 8  # of the box of starts along every axis


@dataclass(frozen=True)
class StateBoxCertificate:
    """A certified return for a box of start states.

    Attributes:
        lower: no episode that starts in the box returns less, whatever an attack within the budget does.
        steps: for how many steps all episodes were followed in the round that certified it.
        boxes: how many boxes were stepped, in all rounds.
        rounds: how many rounds there were, each with more boxes at once.
        finished: whether episodes were followed to their ends in that round. CartPole's search stops where an episode
            may end early, so that a finished one certifies the largest return.
        start_low, start_high: the box of start states; float64 ``[D]``.
    """

    lower: float
    steps: int
    boxes: int
    rounds: int
    finished: bool
    start_low: Floats
    start_high: Floats


def certify_all_starts(
    victim: Victim | str,
    env: AnyEnv,
    eps: float | None = None,
    *,
    scale: Scale = None,
    within: Budget | None = None,
    method: Method = "crown",
    budget_s: float | None = 10.0,
    max_boxes: int | None = MOST_BOXES,
    most_at_once: int = 100_000,
) -> StateBoxCertificate:
    """Bound from below the return of every episode, whatever its start and whatever is done to observations.

    Args:
        victim: the agent, or its reference: feed-forward, playing its mode.
        env: CartPole, MountainCar or Pendulum as ``gymnasium.make`` makes them, with a limit of steps. Its constants
            (``g=``, ``sutton_barto_reward=``, ...) are read from it. It is not stepped.
        eps, scale, within: the budget, as for :func:`adv_wrappers.certify`.
        method: how the outputs of the network are bounded, as for :func:`adv_wrappers.certify`.
        budget_s: seconds, of the monotonic clock; None for no limit. At least one step is followed.
        max_boxes: how many boxes are stepped at most, in all rounds; None for no limit. With ``budget_s=None`` results
            are those of every machine, up to rounding.
        most_at_once: how many boxes are followed at once at most, some hundred bytes each.

    Raises:
        ValueRangeError: for other environments, and limits that are none.
        VictimError: for a victim that samples, has a hidden state or no bounds.
        BudgetError: for a budget that is no box.

    >>> import gymnasium as gym
    >>> from adv_wrappers.certification.state_boxes import certify_all_starts
    >>> found = certify_all_starts("zoo:cartpole-dqn", gym.make("CartPole-v1"), 0.001, budget_s=None, max_boxes=5000)
    >>> 5 < found.lower < 500, found.finished
    (True, False)
    """
    search = StateBoxSearch(victim, env, eps, scale=scale, within=within, method=method, most_at_once=most_at_once)
    dynamics = search.dynamics
    return search.run(dynamics.start_low, dynamics.start_high, budget_s, max_boxes)


class StateBoxSearch:
    """Certifies the return from any box of start states.

    Args:
        victim, env, eps, scale, within, method, most_at_once: as for :func:`certify_all_starts`.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`certify_all_starts`.
    """

    @full_precision()
    def __init__(
        self,
        victim: Victim | str,
        env: AnyEnv,
        eps: float | None = None,
        *,
        scale: Scale = None,
        within: Budget | None = None,
        method: Method = "crown",
        most_at_once: int = 100_000,
    ) -> None:
        budget = given_budget(eps, scale, within)
        victim = load_victim(victim)
        if victim.select != "mode" or victim.recurrent:
            raise VictimError(
                f"a search over boxes of states needs a victim that plays its mode, without a hidden state, got "
                f"{victim!r}"
            )
        self.dynamics = dynamics_of(env)
        self.shown = ShownBoxes(victim, env, budget.resolve(victim), self.dynamics, method)
        self._most = integer("most_at_once", most_at_once, 1)
        self.slopes = self._slopes()

    def _slopes(self) -> Floats:
        """How much the difference of the victim's largest outputs changes along every axis, the mean around starts."""
        dynamics = self.dynamics
        if not self.shown.count:
            return np.ones(len(dynamics.coordinates))
        low, high = _start_boxes(dynamics, dynamics.start_low, dynamics.start_high)
        middle = (low + high) / 2
        self.shown.possible(middle[:1], middle[:1])  # which refuses weights that are not finite
        found: Floats = self.shown.effects(middle - _SLOPE_RADIUS, middle + _SLOPE_RADIUS)[0].mean(0) / _SLOPE_RADIUS
        return found

    @full_precision()
    def run(
        self, start_low: Floats, start_high: Floats, budget_s: float | None = 10.0, max_boxes: int | None = MOST_BOXES
    ) -> StateBoxCertificate:
        """The certified return of all episodes from the states between ``start_low`` and ``start_high``.

        Args:
            start_low, start_high: states of the environment ``[D]`` (its ``unwrapped.state``), not observations.
            budget_s, max_boxes: as for :func:`certify_all_starts`.

        Raises:
            ValueRangeError: for boxes that are none.
        """
        low, high = (np.asarray(end, np.float64) for end in (start_low, start_high))
        shape = (len(self.dynamics.coordinates),)
        if low.shape != shape or high.shape != shape or not (np.abs([low, high]) <= MOST).all() or (low > high).any():
            raise ValueRangeError(f"expected two states {shape} with low <= high, got {start_low!r} and {start_high!r}")
        if budget_s is not None:
            check_number("budget_s", budget_s, 0)
        deadline = Deadline(budget_s)
        self.shown.batches = TimedBatches(Deadline(None), ROWS)  # the first step of the first round is always followed
        left = None if max_boxes is None else integer("max_boxes", max_boxes, 1)
        best, boxes, rounds = StateBoxCertificate(-math.inf, 0, 0, 0, False, low, high), 0, 0
        first = min(_FIRST, _OF_SECONDS * (budget_s or math.inf), _OF_BOXES * (max_boxes or math.inf), self._most)
        scale = _OF_MANY if (low < high).any() else None
        at_once: int | None = max(int(first), 1) if scale is None else self._most
        with one_thread():
            while at_once is not None:
                before, room = deadline.left, None if left is None else left - boxes
                found = SearchRound(self, at_once, low, high, deadline, room, scale)
                found.run()
                boxes, rounds = boxes + found.stepped, rounds + 1
                if found.lower > best.lower:
                    best = StateBoxCertificate(found.lower, found.steps, 0, 0, found.finished, low, high)
                if found.crowded and rounds == 1:  # even the largest cells are too many
                    scale, at_once = None, max(int(first), 1)
                    continue
                if found.stopped or best.lower >= self.dynamics.most:
                    break
                if scale is not None:
                    scale /= 2
                    if scale < _FINEST_OF_MANY:
                        break
                    continue
                if not found.coarsened:
                    break
                spent = before - deadline.left if budget_s is not None else 0.0
                affordable = _FASTER * deadline.left * found.stepped / max(spent, 1e-9)
                affordable = min(affordable, math.inf if left is None else left - boxes)
                at_once = _next_at_once(at_once, found.stepped, affordable, self._most)
        return StateBoxCertificate(best.lower, best.steps, boxes, rounds, best.finished, low, high)


def _next_at_once(at_once: int, stepped: int, affordable: float, most: int) -> int | None:
    """How many boxes the next round follows at once, so that it steps about those that may still be; None for none.

    Args:
        at_once: how many the last round followed.
        stepped: how many it stepped.
        affordable: how many may still be stepped.
        most: at once.
    """
    factor = min((max(affordable, 0) / stepped) ** (1 / _POWER), _MOST_MORE, most / at_once)
    return None if factor < _LEAST_MORE else int(at_once * factor)


class SearchRound:
    """The search with so many boxes at once, or with cells of one size.

    From one state cells begin small and become larger when there are too many boxes. Sets of states are followed for
    longer with cells of one size: to join boxes again and again costs them more than it does a single path's.

    Args:
        search: what is searched.
        at_once: above how many boxes larger cells are taken; with cells of one size, above which it stops.
        start_low, start_high: the box of start states.
        deadline: when it stops.
        max_boxes: how many boxes are stepped at most; None for any number.
        scale: of the cells, where they keep their size; else None.

    Attributes:
        lower: the certified return so far.
        steps: for how many steps all episodes were followed.
        stepped: how many boxes were stepped.
        finished: whether episodes were followed to their ends.
        stopped: whether a limit stopped it.
        crowded: whether that was the limit on boxes at once.
        low, high: the boxes around all states after ``steps`` steps, ``[N, D]``; axes are those of the dynamics.
        values: the least reward so far in each; ``[N]``.
    """

    def __init__(
        self,
        search: StateBoxSearch,
        at_once: int,
        start_low: Floats,
        start_high: Floats,
        deadline: Deadline,
        max_boxes: int | None,
        scale: float | None = None,
    ) -> None:
        self.search, self.dynamics, self._deadline, self._max, self._most = (
            search,
            search.dynamics,
            deadline,
            max_boxes,
            at_once,
        )
        self._fixed = scale is not None
        low, high = _start_boxes(self.dynamics, start_low, start_high)
        self._middle = (low.min(0) + high.max(0)) / 2
        self.steps, self.stepped, self.finished, self.stopped, self.crowded = 0, 0, False, False, False
        self._ended, self._dropped = math.inf, False
        self._take_cells(_FINEST if scale is None else scale)
        self._keep(low, high, np.zeros(len(low)))

    @property
    def lower(self) -> float:
        """The certified return so far."""
        rest = self.dynamics.least_rest(self.dynamics.limit - self.steps)
        return min(self._ended, float(self.values.min(initial=math.inf)) + rest)

    @property
    def coarsened(self) -> bool:
        """Whether it took larger cells than the first."""
        return self._scale > _FINEST

    def run(self) -> None:
        """Follow the boxes to the end of the episode, or to a limit."""
        most = self._max or math.inf
        while self.steps < self.dynamics.limit and len(self.values):
            crowded = self._fixed and len(self.values) > self._most
            if self.steps and (self._deadline.passed or self.stepped >= most or crowded):
                self.stopped, self.crowded = True, crowded
                return
            try:
                self.step()
            except OutOfTimeError:
                self.stopped = True
                return
            if self.search.shown.batches.deadline is not self._deadline:
                self.search.shown.batches = TimedBatches(self._deadline, ROWS)
        self.finished = self.steps == self.dynamics.limit or not self._dropped

    def step(self) -> None:
        """Follow all boxes for one step, or none where the time is over before: :class:`OutOfTimeError`."""
        low, high, values, ended = list[Floats](), list[Floats](), list[Floats](), self._ended
        for rows, first, last, action in self.actions.of(self.cells, self.low, self.high):
            after = self.dynamics.step(first, last, action)
            on, over = ~after.surely_ends, after.may_end
            before = self.values[rows]
            ended = min(ended, float((before + after.last_reward)[over].min(initial=math.inf)))
            low.append(after.low[on])
            high.append(after.high[on])
            values.append((before + after.reward)[on])
        self.steps, self.stepped, self._ended = self.steps + 1, self.stepped + len(self.values), ended
        self._keep(np.concatenate(low), np.concatenate(high), np.concatenate(values))

    def _keep(self, low: Floats, high: Floats, values: Floats) -> None:
        """Hold these boxes as hulls within cells, but for those that cannot lower what is certified."""
        kept = values + self.dynamics.least_rest(self.dynamics.limit - self.steps) < self._ended
        self._dropped |= not kept.all()
        low, high, values = low[kept], high[kept], values[kept]
        coarsest = self._scale if self._fixed else _COARSEST
        while self._scale < coarsest and self.grid.pieces(low, high) > _CUTS * self._most:
            self._take_cells(self._scale * _COARSER)
        self.cells, self.low, self.high, self.values = self.grid.hulls(low, high, values)
        while len(self.values) > self._most and self._scale < coarsest:
            self._take_cells(self._scale * _COARSER)
            self.cells, self.low, self.high, self.values = self.grid.hulls(self.low, self.high, self.values)

    def _take_cells(self, scale: float) -> None:
        """Go on with the cells of this scale."""
        sides = self.dynamics.cells(scale, None if self._fixed else self.search.slopes)
        periods = self.dynamics.periods
        self._scale = scale
        self.grid = CellGrid(np.where(np.isinf(periods), self._middle - sides / 2, -np.pi), sides, periods)
        self.actions = CellActions(self.search.shown, self.grid)


def _start_boxes(dynamics: IntervalDynamics, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """A box of states in pieces, in the axes of the dynamics, ``[N, D]``."""
    pieces = [
        np.linspace(first, last, _PIECES + 1 if last > first else 2) for first, last in zip(low, high, strict=True)
    ]
    first = np.stack(np.meshgrid(*(ends[:-1] for ends in pieces), indexing="ij"), -1).reshape(-1, len(low))
    last = np.stack(np.meshgrid(*(ends[1:] for ends in pieces), indexing="ij"), -1).reshape(-1, len(low))
    turned = dynamics.coordinates
    middle, radius = (first + last) / 2 @ turned.T, (last - first) / 2 @ np.abs(turned).T
    room = 1e-12 * (1 + np.abs(middle) + radius)
    return middle - radius - room, middle + radius + room
