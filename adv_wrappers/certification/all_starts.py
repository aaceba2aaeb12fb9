"""Searches over boxes of states: certified returns of CartPole, MountainCar and Pendulum, for all starts at once.

What an adversary can make of an episode after some steps is a set of states. The search follows a set of boxes that
holds it: at every step the possible actions in each box are computed, by bounds on the victim's network over the box of
everything it may be shown there, and the box is stepped with each of them by interval arithmetic
(:mod:`adv_wrappers.certification.interval_dynamics`). The boxes that come out are cut along a grid of cells, and of
those within a cell the hull is kept. Cells are small at first, and larger ones are taken whenever there are more boxes
than are followed at once, so that the few sets of states of the first steps are held closely. Hulls hold every state;
to keep one of several neighbouring states for all would not.

A cell's possible actions are computed once, and not of its parts: to split cells in which several are possible
certifies no more in the same time, and cells of one shape do as well as those that are narrower along axes to which the
victim's choice is steeper (:doc:`/results/certificates`).

The smallest reward so far is kept for every box. The search stops at any time: what the boxes have earned then, and
what every rest of an episode earns at least, is certified. It starts with few boxes at once, and goes on with more, as
many as what is left of the time, or of the number of boxes, seems to allow.

Bounds on the network that are tighter than CROWN's take longer, so that fewer boxes are followed in the same time. They
pay where more boxes certify no more, since CROWN's allow actions that nothing brings about however small the boxes are.
So searches for agents with discrete actions begin with CROWN's bounds for ``"full-crown"`` and ``"bisect"`` too,
and a round that certifies no more than those before is followed by one with the next tighter bounds,
and as many boxes as the best round so far had.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from adv_wrappers.certification.certificate import Certificate, CertifiedEpisode
from adv_wrappers.certification.interval_dynamics import LARGEST_STATE, IntervalDynamics, dynamics_of
from adv_wrappers.certification.possible_actions import ObservationBoxes
from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.threat import needed_budget
from adv_wrappers.core.types import Floats, Integers
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.graph import GraphNetwork, Node
from adv_wrappers.utils.deadline import NEVER, Deadline, OutOfTime, TimedBatches
from adv_wrappers.utils.precision import full_precision
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import NotNegative, Positive, checked
from adv_wrappers.victims import Victim, from_module, load_victim
from adv_wrappers.victims.certified_actions import Method, action_bounds, params_network, possible_actions
from adv_wrappers.wrappers.layer import AnyEnv

_BOXES = 300_000  # that a search without seconds steps by default
# boxes that the first round follows at once: so many, or these shares of the limits where they are less
_FIRST = 1000
_OF_SECONDS = 200
_OF_BOXES = 0.01
_POWER = 1.15  # the number of boxes that a round steps grows by about this power of how many it follows at once
_FASTER = 2.0  # more boxes are stepped a second where there are more of them
_LEAST_MORE, _MOST_MORE = 2.0, 32.0  # by how much their number grows from one round to the next
# where tighter bounds may follow and there is time to grow by more than the first, by the second, which leaves time for
# another round
_FOR_TWO_ROUNDS, _OF_TWO_ROUNDS = 12.0, 4.0
_FROM_CROWN: tuple[Method, ...] = ("crown", "full-crown", "bisect")
# the scale of cells
_FINEST = 1 / 512  # of the first
_COARSER = 1.5  # by how much that of the next ones is larger
_COARSEST = 16.0  # of the last
_CUTS = 32  # into how many pieces boxes are cut at most, for each that is followed at once
# of a search from a set of states: the scale of the cells of its first round, and that below which it has no more
_OF_MANY, _FINEST_OF_MANY = 2.0, 1 / 16
_PIECES = 8  # of the box of starts along every axis
_CUT_AT_ONCE = 2**18  # pieces of boxes
_ROWS = 1024  # boxes whose bounds are computed at once
_ROUNDING = 2.0**-20  # relatively, more than float32 is off when it changes coordinates


def certify_all_starts(
    victim: Victim | str,
    env: AnyEnv,
    eps: float | None = None,
    *,
    scale: Scale = None,
    within: Budget | None = None,
    method: Method = "crown",
    budget_s: float | None = None,
    max_boxes: int | None = None,
) -> Certificate:
    """Bound from below the return of every episode, whatever its start and whatever is done to observations.

    Args:
        victim: the agent, or its reference: feed-forward, playing its mode.
        env: CartPole, MountainCar or Pendulum as ``gymnasium.make`` makes them, with a limit of steps. Its constants
            (``g=``, ``sutton_barto_reward=``, ...) are read from it. It is not stepped.
        eps, scale, within: the budget, as for :func:`adv_wrappers.certify`.
        method: how the outputs of the network are bounded, as for :func:`adv_wrappers.certify`.
        budget_s: seconds, of the monotonic clock; None for no limit: then results are those of every machine, up to
            rounding. At least one step is followed.
        max_boxes: how many boxes are stepped at most, in all rounds; None is 300 000, or any number within
            ``budget_s``.

    Returns:
        A certificate whose one entry is of all episodes. Its search is finished where it is the largest return there
        is, which none can be above.

    Raises:
        ValueRangeError: for other environments, and limits that are none.
        VictimError: for a victim that samples, has a hidden state or no bounds.
        ThreatError: for no budget, and for ``within`` beside ``eps`` or ``scale``.
        BudgetError: for a budget that is no box.

    >>> import gymnasium as gym
    >>> from adv_wrappers.certification.all_starts import certify_all_starts
    >>> found = certify_all_starts("zoo:cartpole-dqn", gym.make("CartPole-v1"), 0.001, budget_s=None, max_boxes=5000)
    >>> 5 < found.lower < 500, found.finished
    (True, 0.0)
    """
    search = StateBoxSearch(victim, env, eps, scale=scale, within=within, method=method)
    dynamics = search.dynamics
    lower = search.run(dynamics.start_low, dynamics.start_high, budget_s, max_boxes).lower
    found = CertifiedEpisode(lower, lower if lower >= dynamics.most else math.nan, lower, search.boxes)
    name = str(env) if env.spec is None else env.spec.id
    return Certificate.of(search.victim.ref or repr(search.victim), name, search.budget, method, (), [found])


class StateBoxSearch:
    """Certifies the return from any box of start states.

    Args:
        victim, env, eps, scale, within, method: as for :func:`certify_all_starts`.
        most_at_once: how many boxes are followed at once at most, some hundred bytes each.

    Attributes:
        victim, budget, dynamics: what is searched.
        boxes: how many boxes the last :meth:`run` stepped, in all its rounds.
        rounds: how many rounds there were, each with more boxes at once.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`certify_all_starts`.
    """

    @checked
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
        most_at_once: Positive = 100_000,
    ) -> None:
        budget = needed_budget("a certificate", eps, scale, within, zero=True)
        victim = load_victim(victim)
        if victim.select != "mode" or victim.recurrent:
            raise VictimError(
                f"a search over boxes of states needs a victim that plays its mode, without a hidden state, got "
                f"{victim!r}"
            )
        self.victim = victim
        self.budget = budget.resolve(victim)
        self.dynamics = dynamics_of(env)
        self.box_actions = BoxActions(victim, env, self.budget, self.dynamics, method)
        # with discrete actions bounds become tighter from round to round, up to those of the method
        stepwise = method in _FROM_CROWN and self.box_actions.count > 0
        self._methods = _FROM_CROWN[: _FROM_CROWN.index(method) + 1] if stepwise else (method,)
        self.box_actions.method = self._methods[0]
        self._most = most_at_once
        self.boxes = 0
        self.rounds = 0

    @checked
    @full_precision()
    def run(
        self,
        start_low: Floats,
        start_high: Floats,
        budget_s: NotNegative | None = None,
        max_boxes: Positive | None = None,
    ) -> SearchRound:
        """The round that certified the most of all episodes from the states between ``start_low`` and ``start_high``.

        Args:
            start_low, start_high: states of the environment ``[D]`` (its ``unwrapped.state``), not observations.
            budget_s, max_boxes: as for :func:`certify_all_starts`.

        Raises:
            ValueRangeError: for boxes that are none.
        """
        # the starts, which have to be states
        low, high = (np.asarray(end, np.float64) for end in (start_low, start_high))
        shape = (len(self.dynamics.coordinates),)
        if (
            low.shape != shape
            or high.shape != shape
            or not (np.abs([low, high]) <= LARGEST_STATE).all()
            or (low > high).any()
        ):
            raise ValueRangeError(f"expected two states {shape} with low <= high, got {start_low!r} and {start_high!r}")
        if budget_s is None and max_boxes is None:
            max_boxes = _BOXES
        deadline = Deadline(budget_s)
        # without a limit: the first step of the first round is always followed
        methods, self.box_actions.batches = self._methods, TimedBatches(NEVER, _ROWS)
        self.box_actions.method = methods[0]
        # a first round with few boxes has an answer soon; a set of states is followed in cells of one size
        first = min(_FIRST, _OF_SECONDS * (budget_s or math.inf), _OF_BOXES * (max_boxes or math.inf), self._most)
        few, left = max(int(first), 1), math.inf if max_boxes is None else max_boxes
        gained = RoundSettings(self._most, _OF_MANY) if (low < high).any() else RoundSettings(few, None)
        settings: RoundSettings | None = gained
        best: SearchRound | None = None
        self.boxes, self.rounds = 0, 0
        with one_thread():
            while settings is not None:
                before = deadline.left
                found = SearchRound(self, settings, low, high, deadline, left - self.boxes)
                found.run()
                self.boxes, self.rounds = self.boxes + found.stepped, self.rounds + 1
                raised = best is None or found.lower > best.lower
                if raised:
                    best, gained = found, settings
                if found.crowded and self.rounds == 1:  # even the largest cells are too many
                    settings = gained = RoundSettings(few, None)
                    continue
                # over: the limit is reached, or nothing more can be certified
                used_up = (found.stopped and not found.crowded) or self.boxes >= left
                if used_up or found.lower >= self.dynamics.most:
                    break
                # the next round follows as many boxes at once as the rest allows, at the speed of this round
                spent = before - deadline.left if budget_s is not None else 0.0
                affordable = min(_FASTER * deadline.left * found.stepped / max(spent, 1e-9), left - self.boxes)
                settings = self._more(found, settings, affordable, len(methods) == 1)
                if len(methods) > 1 and not (settings and raised):
                    methods, settings = methods[1:], gained
                    # with which a box takes another time
                    self.box_actions.method, self.box_actions.batches = methods[0], TimedBatches(deadline, _ROWS)
        assert best is not None
        return best

    def _more(self, found: SearchRound, last: RoundSettings, affordable: float, tightest: bool) -> RoundSettings | None:
        """A round with the same bounds and more boxes, or smaller cells, than the last; None where there is none."""
        if last.scale is not None:
            half = last.scale / 2
            return None if found.crowded or half < _FINEST_OF_MANY else last._replace(scale=half)
        if not found.coarsened:
            return None
        more = _next_at_once(last.at_once, found.stepped, affordable, self._most, tightest)
        return None if more is None else last._replace(at_once=more)


def _next_at_once(at_once: int, stepped: int, affordable: float, most: int, tightest: bool = True) -> int | None:
    """How many boxes the next round follows at once, so that it steps about those that may still be; None for none.

    Args:
        at_once: how many the last round followed.
        stepped: how many it stepped.
        affordable: how many may still be stepped.
        most: at once.
        tightest: whether no tighter bounds may follow, for which boxes are left otherwise where there are enough.
    """
    factor = min((max(affordable, 0) / stepped) ** (1 / _POWER), _MOST_MORE, most / at_once)
    if not tightest and factor > _FOR_TWO_ROUNDS:
        factor = _OF_TWO_ROUNDS
    return None if factor < _LEAST_MORE else int(at_once * factor)


class RoundSettings(NamedTuple):
    """What a round of a search is made with.

    Attributes:
        at_once: above how many boxes larger cells are taken; with cells of one size, above which the round stops.
        scale: of the cells, where they keep their size; else None.
    """

    at_once: int
    scale: float | None


class SearchRound:
    """The search with so many boxes at once, or with cells of one size.

    From one state cells begin small and become larger when there are too many boxes. Sets of states are followed for
    longer with cells of one size: to join boxes again and again costs them more than it does a single path's.

    Args:
        search: what is searched.
        settings: how many boxes at once, and which cells.
        start_low, start_high: the box of start states.
        deadline: when it stops.
        max_boxes: how many boxes are stepped at most.

    Attributes:
        lower: the certified return so far.
        steps: for how many steps all episodes were followed.
        stepped: how many boxes were stepped.
        finished: whether episodes were followed to their ends. CartPole's search stops where an episode may end early,
            so that a finished one certifies the largest return.
        stopped: whether a limit stopped it.
        crowded: whether that was the limit on boxes at once.
        low, high: the boxes around all states after ``steps`` steps, ``[N, D]``; axes are those of the dynamics.
        values: the least reward so far in each; ``[N]``.
    """

    def __init__(
        self,
        search: StateBoxSearch,
        settings: RoundSettings,
        start_low: Floats,
        start_high: Floats,
        deadline: Deadline,
        max_boxes: float = math.inf,
    ) -> None:
        self.search, self.dynamics = search, search.dynamics
        self._deadline = deadline
        self._max = max_boxes
        self._most = settings.at_once
        self._fixed = settings.scale is not None
        # cells are counted from the middle of the starts
        low, high = _start_boxes(self.dynamics, start_low, start_high)
        self._middle = (low.min(0) + high.max(0)) / 2
        self.steps = 0
        self.stepped = 0
        self.finished = False
        self.stopped = False
        self.crowded = False
        self._ended, self._dropped = math.inf, False
        self._take_cells(_FINEST if settings.scale is None else settings.scale)
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
        while self.steps < self.dynamics.limit and len(self.values):
            crowded = self._fixed and len(self.values) > self._most
            if self.steps and (self._deadline.passed or self.stepped >= self._max or crowded):
                self.stopped, self.crowded = True, crowded
                return
            try:
                self.step()
            except OutOfTime:
                self.stopped = True
                return
            # from the second step on bounds are computed within the time
            if self.search.box_actions.batches.deadline is not self._deadline:
                self.search.box_actions.batches = TimedBatches(self._deadline, _ROWS)
        self.finished = self.steps == self.dynamics.limit or not self._dropped

    def step(self) -> None:
        """Follow all boxes for one step, or none where the time is over before: :class:`OutOfTime`."""
        low, high = list[Floats](), list[Floats]()
        values = list[Floats]()
        ended = self._ended
        for rows, first, last, action in self.actions.of(self.cells, self.low, self.high):
            after = self.dynamics.step(first, last, action)
            # some states of a box may go on, and of some the episode may end here: the least that these have earned is
            # kept
            on, over = ~after.surely_ends, after.may_end
            before = self.values[rows]
            ended = min(ended, float((before + after.last_reward)[over].min(initial=math.inf)))
            low.append(after.low[on])
            high.append(after.high[on])
            values.append((before + after.reward)[on])
        self.steps += 1
        self.stepped += len(self.values)
        self._ended = ended
        self._keep(np.concatenate(low), np.concatenate(high), np.concatenate(values))

    def _keep(self, low: Floats, high: Floats, values: Floats) -> None:
        """Hold these boxes as hulls within cells, but for those that cannot lower what is certified."""
        # boxes that earn at least as much as an episode that may have ended certify nothing less
        kept = values + self.dynamics.least_rest(self.dynamics.limit - self.steps) < self._ended
        self._dropped |= not kept.all()
        low, high = low[kept], high[kept]
        values = values[kept]
        # larger cells as long as there are too many pieces to cut, or too many hulls to follow
        coarsest = self._scale if self._fixed else _COARSEST
        while self._scale < coarsest and self.grid.pieces(low, high) > _CUTS * self._most:
            self._take_cells(self._scale * _COARSER)
        self.cells, self.low, self.high, self.values = self.grid.hulls(low, high, values)
        while len(self.values) > self._most and self._scale < coarsest:
            self._take_cells(self._scale * _COARSER)
            self.cells, self.low, self.high, self.values = self.grid.hulls(self.low, self.high, self.values)

    def _take_cells(self, scale: float) -> None:
        """Go on with the cells of this scale."""
        sides = self.dynamics.cells(scale, many=self._fixed)
        periods = self.dynamics.periods
        self._scale = scale
        self.grid = CellGrid(np.where(np.isinf(periods), self._middle - sides / 2, -np.pi), sides, periods)
        self.actions = CellActions(self.search.box_actions, self.grid)


def _start_boxes(dynamics: IntervalDynamics, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """A box of states in pieces, in the axes of the dynamics, ``[N, D]``."""
    pieces = [
        np.linspace(first, last, _PIECES + 1 if last > first else 2) for first, last in zip(low, high, strict=True)
    ]
    # every combination of pieces, as boxes in the axes of the states
    first = np.stack(np.meshgrid(*(ends[:-1] for ends in pieces), indexing="ij"), -1).reshape(-1, len(low))
    last = np.stack(np.meshgrid(*(ends[1:] for ends in pieces), indexing="ij"), -1).reshape(-1, len(low))
    # and in those of the dynamics, wider by the rounding of turning them
    turned = dynamics.coordinates
    middle, radius = (first + last) / 2 @ turned.T, (last - first) / 2 @ np.abs(turned).T
    room = 1e-12 * (1 + np.abs(middle) + radius)
    return middle - radius - room, middle + radius + room


class CellGrid:
    """A grid of cells, by which boxes are cut and _hulls_of.

    Args:
        origin: a corner of the grid, ``[D]``.
        sides: the sides of a cell, ``[D]``.
        periods: after how much an axis repeats, a whole number of cells; infinity for those that do not. ``[D]``.
    """

    def __init__(self, origin: Floats, sides: Floats, periods: Floats) -> None:
        self.origin = origin
        self.sides = sides
        self.periods = periods
        self._bits = 62 // len(sides)

    def hulls(self, low: Floats, high: Floats, values: Floats) -> tuple[Integers, Floats, Floats, Floats]:
        """Boxes ``[N, D]`` cut along the grid, and the hull of what falls within each cell.

        Returns:
            Numbers of cells ``[M]``, hulls ``[M, D]`` twice, and the least of the ``values`` in each, ``[M]``.
        """
        first, last = self._places(low, high)
        found = np.empty(0, np.int64), low[:0], high[:0], values[:0]
        # part by part, since boxes are cut into many more pieces than there are cells
        ends = np.cumsum((last - first + 1).prod(1))
        row = 0
        while row < len(low):
            before = ends[row - 1] if row else 0
            until = max(int(np.searchsorted(ends, before + _CUT_AT_ONCE)), row + 1)
            part = slice(row, until)
            cut = self._cut(first[part], last[part], low[part], high[part], values[part])
            found = _hulls_of(*(np.concatenate(pair) for pair in zip(found, cut, strict=True)))
            row = until
        return found

    def pieces(self, low: Floats, high: Floats) -> float:
        """Into how many pieces :meth:`hulls` cuts boxes ``[N, D]``, all together; infinity where it would raise."""
        first, last = self._places(low, high)
        once = np.isinf(self.periods)
        if not (self._numbered(first) & self._numbered(last))[:, once].all():
            return math.inf
        return float((last - first + 1.0).prod(1).sum())

    def _places(self, low: Floats, high: Floats) -> tuple[Integers, Integers]:
        """The indices of the first and the last cell of boxes along every axis, ``[N, D]`` twice."""
        first = np.floor((low - self.origin) / self.sides).astype(np.int64)
        return first, np.maximum(np.ceil((high - self.origin) / self.sides).astype(np.int64) - 1, first)

    def _cut(
        self, first: Integers, last: Integers, low: Floats, high: Floats, values: Floats
    ) -> tuple[Integers, Floats, Floats, Floats]:
        """The pieces of boxes that lie in the cells from ``first`` to ``last``."""
        for axis, (origin, side) in enumerate(zip(self.origin, self.sides, strict=True)):
            counts = last[:, axis] - first[:, axis] + 1
            if counts.max() == 1:
                continue
            # a box once for every cell that it reaches into along this axis
            rows = np.repeat(np.arange(len(counts)), counts)
            place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
            first = first[rows]
            last = last[rows]
            low, high = low[rows], high[rows]
            values = values[rows]
            index = first[:, axis] + place
            # the outermost pieces keep the ends of their boxes, whatever dividing has rounded
            low[:, axis] = np.where(place == 0, low[:, axis], origin + index * side)
            high[:, axis] = np.where(index == last[:, axis], high[:, axis], origin + (index + 1) * side)
            first[:, axis] = index
            last[:, axis] = index
        # whole turns are taken off angles, and what comes out is wider by their rounding
        for axis, period in enumerate(self.periods):
            if np.isfinite(period):
                count = round(period / self.sides[axis])
                turns = first[:, axis] // count
                first[:, axis] -= turns * count
                room = np.where(turns == 0, 0.0, 1e-12 * (1 + np.abs(turns)))
                low[:, axis] -= turns * period + room
                high[:, axis] -= turns * period - room
        return self._number(first), low, high, values

    def _numbered(self, index: Integers) -> NDArray[np.bool_]:
        """Where indices are within those that a cell's number has room for."""
        half = 1 << (self._bits - 1)
        return (index >= -half) & (index < half)

    def _number(self, index: Integers) -> Integers:
        half = 1 << (self._bits - 1)
        if not self._numbered(index).all():
            raise ValueRangeError(f"expected states within {half} cells of sides {self.sides} around {self.origin}")
        # the places along all axes side by side in the bits of one number
        number = np.zeros(len(index), np.int64)
        for axis in range(index.shape[1]):
            number = (number << self._bits) | (index[:, axis] + half)
        return number

    def cells(self, numbers: Integers) -> tuple[Floats, Floats]:
        """The cells of these numbers, as boxes ``[N, D]`` that hold whatever is cut to lie in them."""
        size, half = len(self.sides), 1 << (self._bits - 1)
        shifts = self._bits * np.arange(size - 1, -1, -1)
        index = (numbers[:, None] >> shifts & (1 << self._bits) - 1) - half
        room = 1e-9 * (self.sides + np.abs(self.origin) + np.abs(index * self.sides))
        return self.origin + index * self.sides - room, self.origin + (index + 1) * self.sides + room


def _hulls_of(numbers: Integers, low: Floats, high: Floats, values: Floats) -> tuple[Integers, Floats, Floats, Floats]:
    """Hulls of the boxes of one number, and the least of their values."""
    found, place = np.unique(numbers, return_inverse=True)
    return (
        found,
        _least_of(place, len(found), low),
        -_least_of(place, len(found), -high),
        _least_of(place, len(found), values),
    )


def _least_of(place: Integers, count: int, rows: Floats) -> Floats:
    """The least of the rows ``[N, ...]`` of every place, elementwise; infinity where there are none."""
    index = torch.from_numpy(place).view(-1, *[1] * (rows.ndim - 1)).expand(rows.shape)
    out = torch.full((count, *rows.shape[1:]), math.inf, dtype=torch.float64)
    return out.scatter_reduce_(0, index, torch.from_numpy(np.ascontiguousarray(rows)), "amin").numpy()


class CellActions:
    """What a victim may do in the cells of a grid; computed once for each cell, when it is first asked for.

    Args:
        victim: what it may do in boxes, under its budget.
        grid: the grid.
    """

    def __init__(self, victim: BoxActions, grid: CellGrid) -> None:
        self._victim, self._grid = victim, grid
        self._numbers = np.empty(0, np.int64)  # of the cells that are known, ascending
        # which discrete actions are possible, or the bounds on continuous ones
        self._known: NDArray[Any] = np.empty((0, victim.count), bool) if victim.count else np.empty((0, 2, 1))

    def of(self, numbers: Integers, low: Floats, high: Floats) -> Iterator[tuple[Integers, Floats, Floats, Floats]]:
        """For every action the rows in which it is possible, their boxes, and the action.

        Args:
            numbers: cells, ``[N]``.
            low, high: boxes in these cells, ``[N, D]``.

        Yields:
            Rows ``[M]``, boxes ``[M, D]`` twice, and what :meth:`IntervalDynamics.step` takes as actions.
        """
        # bounds of the cells that are met for the first time, kept by their number
        new = np.setdiff1d(numbers, self._numbers)
        if len(new):
            known = np.concatenate([self._numbers, new])
            order = np.argsort(known)
            bound = self._victim.possible if self._victim.count else self._victim.bounds
            self._known = np.concatenate([self._known, bound(*self._grid.cells(new))])[order]
            self._numbers = known[order]
        found = self._known[np.searchsorted(self._numbers, numbers)]
        # continuous actions are an interval for each box, discrete ones are followed one by one
        if not self._victim.count:
            yield np.arange(len(numbers)), low, high, found
            return
        for action in range(self._victim.count):
            rows = np.flatnonzero(found[:, action])
            yield rows, low[rows], high[rows], np.full(len(rows), self._victim.start + action, np.float64)


class BoxActions:
    """What a victim may do where states are anywhere in boxes, and observations are perturbed within a budget.

    Where the boxes' axes are not those of observations, the victim's network is asked for them as they are: a linear
    layer in front of it adds perturbations to states. Their hull would be larger.

    Args:
        victim: the agent, which plays its mode.
        env: the environment.
        budget: ``Linf`` or ``Valid``.
        dynamics: of the environment.
        method: as for :func:`adv_wrappers.victims.certified_actions.possible_actions`.

    Attributes:
        method: the same, which may be changed.
        batches: of how many boxes :meth:`possible` computes at once, and when it stops.
        count: the number of actions; 0 for continuous ones.
        start: the first action.
    """

    def __init__(self, victim: Victim, env: AnyEnv, budget: Budget, dynamics: IntervalDynamics, method: Method) -> None:
        space, actions = env.observation_space, env.action_space
        if victim.observation_space.shape != space.shape or type(victim.action_space) is not type(actions):
            raise VictimError(f"expected a victim for {space} -> {actions}, got {victim!r}")
        self.count = int(actions.n) if isinstance(actions, spaces.Discrete) else 0
        self.start = int(actions.start) if isinstance(actions, spaces.Discrete) else 0
        self.method: Method = method
        self._boxes = ObservationBoxes(space, budget)
        self._dynamics = dynamics
        self._victim = victim
        self.batches = TimedBatches(NEVER, _ROWS)
        self._eps: Floats | None = None
        net = params_network(victim)  # before anything is computed
        # where boxes have other axes than observations, the network takes the point in these and the perturbation
        # beside it
        if isinstance(budget, Linf) and not (dynamics.coordinates == np.eye(len(dynamics.coordinates))).all():
            scale = np.asarray(1.0 if budget.scale is None else budget.scale, np.float64)
            self._eps = budget.eps * scale * np.ones(len(dynamics.coordinates))
            self._victim = _with_axes(victim, net, np.linalg.inv(dynamics.coordinates).astype(np.float64))

    def possible(self, low: Floats, high: Floats) -> NDArray[np.bool_]:
        """Which actions are possible in boxes ``[N, D]``, ``[N, A]``; raises :class:`OutOfTime`."""
        parts, start = list[Tensor](), 0
        while start < len(low):
            rows = self.batches.next(len(low) - start)
            if not rows:
                raise OutOfTime
            first, last = self._inputs(low[start : start + rows], high[start : start + rows])
            hull = first.amin(0, keepdim=True), last.amax(0, keepdim=True)
            found = possible_actions(self._victim, first, last, "interval", hull)
            unsure = found.sum(1) > 1  # the rest is decided by the cheapest bounds
            if self.method != "interval" and unsure.any():
                found[unsure] &= possible_actions(self._victim, first[unsure], last[unsure], self.method, hull)
            parts.append(found)
            self.batches.done(rows)
            start += rows
        return torch.cat(parts).cpu().numpy()

    def bounds(self, low: Floats, high: Floats) -> Floats:
        """Boxes of continuous actions in boxes ``[N, D]``, ``[N, 2, 1]``."""
        ends = action_bounds(self._victim, *self._inputs(low, high), self.method)
        return torch.stack(ends, 1).double().cpu().numpy()

    def _inputs(self, low: Floats, high: Floats) -> tuple[Tensor, Tensor]:
        """The boxes of what the victim takes."""
        states = self._dynamics.observe(low, high)
        if self._eps is None:
            seen = [end.astype(np.float32) for end in states]  # as the environment
            least, most = self._boxes(seen[0])[0], self._boxes(seen[1])[1]
        else:
            room = self._eps + _ROUNDING * (1 + np.maximum(*np.abs(states)) + self._eps)
            least = torch.from_numpy(np.concatenate([low, -room], 1))
            most = torch.from_numpy(np.concatenate([high, room], 1))
        device, dtype = self._victim.device, self._victim.dtype
        return least.to(device, dtype), most.to(device, dtype)


def _with_axes(victim: Victim, net: GraphNetwork, back: Floats) -> Victim:
    """The victim on points in other axes and perturbations beside them: on ``back @ point + perturbation``."""
    # the matrix [back, 1], as a layer in front of the network
    size, nodes = len(back), net.nodes
    mix = torch.from_numpy(np.concatenate([back, np.eye(size)], 1))
    first = nn.Linear(2 * size, size, bias=False, dtype=torch.float64)
    takers = [node for node in nodes if 0 in node.inputs]
    inner = takers[0].layer if len(takers) == 1 else None
    if isinstance(inner, nn.Linear) and type(inner) is nn.Linear:  # one layer of both has tighter interval bounds
        first = nn.Linear(2 * size, inner.out_features, inner.bias is not None, dtype=torch.float64)
        mix = inner.weight.detach().cpu().double() @ mix
        if inner.bias is not None:
            first.bias.data = inner.bias.detach().cpu().double()
        nodes = [Node(first, (0,)) if node is takers[0] else node for node in nodes]
    else:
        nodes = [Node(first, (0,)), *(Node(node.layer, tuple(i + 1 for i in node.inputs)) for node in nodes)]
    first.weight.data = mix
    space = spaces.Box(-np.inf, np.inf, (2 * size,), np.float32)
    kind = victim.kind
    return from_module(GraphNetwork(nodes), space, victim.action_space, kind, dtype=victim.dtype, device=victim.device)
