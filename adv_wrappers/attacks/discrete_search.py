"""Search over the entries of discrete observations: the change that moves the victim most, by its scores alone.

The values of Discrete, MultiDiscrete and MultiBinary observations have no distance between them, and a victim embeds or
one-hots them, so there is no gradient to follow: changes are tried. Where ``queries`` suffice for every change that the
budget allows, all are tried, and the answer is the best there is. Otherwise the search is greedy, as attacks on texts
are (Lei et al. 2019, "Discrete Adversarial Attacks and Submodular Optimization with Applications to Text
Classification"): the best change of one entry, from there the best change of one more, and so on, as many times as
entries may change. Where trying every value of every entry each time takes more than the queries, each time takes its
share of them, on changes that are drawn evenly.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from adv_wrappers.attacks.objectives import score_of
from adv_wrappers.attacks.restarts import BestPoints
from adv_wrappers.core.arrays import flat_rows
from adv_wrappers.core.budgets.budget import L0, Budget, Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import VictimAttack, need_discrete
from adv_wrappers.core.spaces import CHOICES, Field
from adv_wrappers.errors import BudgetError, SpaceError, VictimError
from adv_wrappers.utils.validation import Limits

SearchLoss = Literal["margin", "cross-entropy", "divergence", "q"]
_MOST_QUERIES = 10**6
_TOGETHER = 1 << 20  # numbers of observations that the victim is asked about at once


@dataclass(frozen=True)
class DiscreteSearch(VictimAttack):
    """Change the entries of a discrete observation that move the victim most: exhaustive or greedy, by its scores.

    For Discrete, MultiDiscrete and MultiBinary observations, under :class:`L0` (so many entries; a Discrete has one) or
    :class:`Valid` (all). Where no budget is given, one entry may change.

    Args:
        victim: of any kind.
        loss: ``"margin"`` or ``"cross-entropy"`` (MinBest's, for one discrete action), ``"divergence"`` (MaxDiff's, for
            any actions) or ``"q"`` (MinQ's, for a victim with Q-values: the least valued action that can be had);
            None takes the margin for one discrete action, and else the divergence.
        queries: how often the victim may be asked a step, beside the true observation; 1 to 1,000,000.

    Raises:
        ValueRangeError: for an unknown loss, and for queries out of their range.
        VictimError: for a loss that is not defined on the victim's actions, or needs Q-values that it has not.
        SpaceError, BudgetError: at wrapping, for other observations and budgets.
    """

    name: ClassVar[str] = "discrete-search"
    within: ClassVar[Budget | None] = L0(1)
    choices: ClassVar[bool] = True
    loss: SearchLoss | None = None
    queries: Annotated[int, Limits(1, _MOST_QUERIES)] = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss in ("margin", "cross-entropy"):
            need_discrete(self.name, self.victim, "use loss='divergence'")
        if self.loss == "q" and self.victim is not None and self.victim.kind != "q":
            raise VictimError("loss='q' needs the Q-values of discrete actions, and this victim has none: use 'margin'")

    @property
    def network_passes(self) -> int:
        return self.queries

    def check(self, field: Field, within: Budget) -> None:
        if not all(isinstance(leaf, CHOICES) for leaf in field.leaves):
            raise SpaceError(
                f"{self.name} tries the values of Discrete, MultiDiscrete and MultiBinary observations, got "
                f"{field.leaves[0]}: square searches a Box by scores alone"
            )
        if not isinstance(within, (L0, Valid)):
            raise BudgetError(f"{self.name} changes entries: use L0(k) or Valid(), not {within!r}")
        super().check(field, within)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        search = _Search(self, x, context)
        if search.everything is not None:
            search.try_changes(search.everything)
        else:
            for changes in search.greedy():
                search.try_changes(changes)
        return search.best.result().view(x.shape).to(x.dtype)


class _Search:
    """The best observation so far, and what to try next.

    A change is written as what it makes of every entry, an integer ``[S]``: -1 leaves it alone, and j takes the j-th of
    its other values.

    Attributes:
        best: the best so far, ``[B, S]``, the elements of a row side by side.
        everything: all changes of the budget, ``[C, S]``; None where they are more than the queries.
    """

    def __init__(self, attack: DiscreteSearch, x: Tensor, context: Context) -> None:
        self.attack, self.context = attack, context
        assert context.choices is not None
        self.params = self._asked(x)
        self.best = BestPoints(score_of(attack.loss, attack.victim, self.params), attack.victim, self._asked)
        self.best.offer(flat_rows(x), self.params)
        self.low = context.space[0].reshape(-1)
        self.others = tuple(count - 1 for count in context.choices)  # values of every entry but its own
        size = len(self.others)
        self.most = min(context.budget.k, size) if isinstance(context.budget, L0) else size
        too_many = more_than(attack.queries, self.others, self.most)
        self.everything = None if too_many else all_changes(self.others, self.most)

    def greedy(self) -> Iterator[Tensor]:
        """Changes of single entries, ``[1 or B, C, S]``, once for every entry that may change."""
        queries, device = self.attack.queries, self.params.device
        singles = single_changes(self.others).to(device)
        rounds = min(self.most, queries)
        for _ in range(rounds):
            # all changes of one entry, or where queries do not suffice some that are drawn evenly
            chosen = singles[None]
            if len(singles) * rounds > queries:
                drawn = (self.context.numbers(queries // rounds) * len(singles)).long()
                chosen = singles[drawn.clamp(max=len(singles) - 1)]
            changes = torch.full((*chosen.shape[:2], len(self.others)), -1, device=device)
            yield changes.scatter_(2, chosen[..., :1], chosen[..., 1:])

    def try_changes(self, changes: Tensor) -> None:
        """Take the best of some changes of the best so far, ``[C, S]`` or ``[1 or B, C, S]``, where it is better."""
        start = self.best.result()
        size = start.shape[1]
        changes = changes if changes.dim() == 3 else changes[None]
        if changes.shape[1] == 0:
            return
        # as many changes at once as fit into memory
        for some in changes.split(max(_TOGETHER // (len(start) * size), 1), 1):
            tried = self._changed(start, some.to(start.device))
            count = tried.shape[1]
            params = self._asked(tried.flatten(0, 1), count)
            # of the changes of a row those that succeed come first, and among equals the one of the largest loss
            success, loss = (part.view(len(start), count) for part in self._rank(params, count))
            loss = torch.where(loss.isnan(), -torch.inf, loss)
            first = torch.where(success == success.amax(1, keepdim=True), loss, -torch.inf).argmax(1)
            rows = torch.arange(len(start), device=start.device)
            self.best.offer(tried[rows, first], params.view(len(start), count, -1)[rows, first])

    def _asked(self, points: Tensor, copies: int = 1) -> Tensor:
        """The victim's parameters at points, ``copies`` of them for every row, side by side."""
        points = points.reshape(len(points), *self.context.shape)
        return self.context.bind(self.attack.victim, copies).params(points)

    def _changed(self, start: Tensor, changes: Tensor) -> Tensor:
        """Observations with changes applied, ``[B, C, S]``."""
        own = start[:, None]
        value = self.low + changes
        return torch.where(changes < 0, own, value + (value >= own))

    def _rank(self, params: Tensor, copies: int) -> tuple[Tensor, Tensor]:
        """How good parameters are, those of a row side by side: what is played first, and then the loss."""
        attack = self.attack
        objective = score_of(attack.loss, attack.victim, self.params.repeat_interleave(copies, 0))
        loss, success = objective(params), getattr(objective, "success", None)
        if success is None or attack.victim.select != "mode":
            return torch.zeros_like(loss), loss
        return success(params), loss


@functools.lru_cache(maxsize=16)
def more_than(limit: int, others: tuple[int, ...], most: int) -> bool:
    """Whether up to ``most`` entries can change in more ways, if entry i has ``others[i]`` values beside its own.

    >>> more_than(4, (1, 2), 2), more_than(5, (1, 2), 2)
    (True, False)
    """
    ways = [1] + [0] * most  # of changing exactly so many of the entries that were looked at
    for count in filter(None, others):
        for i in range(most, 0, -1):
            ways[i] += ways[i - 1] * count
        if sum(ways) - 1 > limit:  # soon, where many may change: the numbers double with every entry
            return True
    return False


@functools.lru_cache(maxsize=16)
def single_changes(others: tuple[int, ...]) -> Tensor:
    """All changes of one entry, int64 ``[C, 2]``: which, and the number of its new value among the others.

    >>> single_changes((1, 0, 2)).tolist()
    [[0, 0], [2, 0], [2, 1]]
    """
    counts = torch.tensor(others)
    entries = torch.arange(len(others)).repeat_interleave(counts)
    return torch.stack([entries, torch.arange(len(entries)) - (counts.cumsum(0) - counts)[entries]], 1)


@functools.lru_cache(maxsize=16)
def all_changes(others: tuple[int, ...], most: int) -> Tensor:
    """All these changes, int64 ``[C, S]``: what every entry becomes, the j-th of its other values, or -1 for its own.

    >>> all_changes((1, 2), 1).tolist()
    [[0, -1], [-1, 0], [-1, 1]]
    """
    rows = list[list[int]]()
    for size in range(1, most + 1):
        for entries in itertools.combinations(range(len(others)), size):
            for values in itertools.product(*(range(others[entry]) for entry in entries)):
                row = [-1] * len(others)
                for entry, value in zip(entries, values, strict=True):
                    row[entry] = value
                rows.append(row)
    return torch.tensor(rows, dtype=torch.int64).view(len(rows), len(others))
