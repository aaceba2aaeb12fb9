"""What an adversary earns in its environment: minus the victim's reward, and that less what its attacks cost."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from adv_wrappers.core.serialization import Value
from adv_wrappers.core.types import Amount, Array, Counter, Flags
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.utils.validation import AttackCount, Cost, Return


class Reward(Protocol):
    """A function from what the victim earned to what the adversary earns, ``[B]`` or a number each.

    It may also take ``induced_action``, the action that the environment received, ``[B, *A]`` or one: for costs that
    depend on it.
    """

    def __call__(
        self, reward: Amount, *, attacked: Flags, terminated: Flags, truncated: Flags, return_: Amount, spent: Counter
    ) -> Amount: ...


def minus_reward(reward: Amount, **_: object) -> Amount:
    """The victim's reward, negated: the adversary's reward in the papers."""
    return -reward


@dataclass(frozen=True)
class PerturbationCost(Value):
    """Minus the victim's reward, less what attacks cost (Behzadan and Hsu 2019, algorithms 1 and 2).

    The papers pay the regret ``r_max - return`` at the end of an episode. By default it is paid as it arises, as minus
    the victim's reward: without a discount the sums of an episode differ by the constant ``r_max``, and a training
    knows at every step what it was good for.

    Args:
        cost: what an attack costs, in units of the victim's reward.
        budget: the number of attacks of an episode beyond which each costs ``cost * budget`` (algorithm 2); None for
            no such number (algorithm 1).
        terminal: whether the regret is paid at the end, as in the paper.
        r_max: with ``terminal``, the highest return of the victim.
        beyond: what an attack beyond the budget costs; None for ``cost * budget``.

    Raises:
        ThreatError: for ``terminal`` without ``r_max``, and the other way round; for ``beyond`` without a budget.
    """

    name: ClassVar[str] = "perturbation-cost"
    cost: Cost = 1.0
    budget: AttackCount | None = None
    terminal: bool = False
    r_max: Return | None = None
    beyond: Cost | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beyond is not None and self.budget is None:
            raise ThreatError(f"beyond is the cost of attacks beyond a budget: give budget= too, got {self!r}")
        if self.terminal != (self.r_max is not None):
            raise ThreatError(f"terminal= and r_max= go together, got {self.terminal} and {self.r_max}")

    def __call__(
        self,
        reward: Amount,
        *,
        attacked: Flags,
        terminated: Flags,
        truncated: Flags,
        return_: Amount,
        spent: Counter,
        **_: object,
    ) -> Amount:
        price = self.cost if self.budget is None else np.where(spent > self.budget, self._late, self.cost)
        paid = -reward
        if self.r_max is not None:
            paid = np.where(np.logical_or(terminated, truncated), self.r_max - return_, 0.0)
        earned: Any = paid - price * attacked
        return earned if np.ndim(reward) else float(earned)

    def total(self, returns: Array, attacks: Array) -> Array:
        """What the victim keeps and what the attacks cost, by episode ``[n]``: the adversary makes it small.

        Args:
            returns: the victim's return of every episode.
            attacks: the number of attacks of every episode.
        """
        within = attacks if self.budget is None else np.minimum(attacks, self.budget)
        whole: Array = returns + self.cost * within + self._late * (attacks - within)
        return whole

    @property
    def _late(self) -> float:
        """What an attack beyond the budget costs."""
        return self.cost * (self.budget or 0) if self.beyond is None else self.beyond


def takes_induced_action(reward: Reward) -> bool:
    """Whether a reward function takes ``induced_action``: functions written without it go on working.

    Raises:
        ValueRangeError: for a function that cannot be called with what every reward function gets.
    """
    names = ("attacked", "terminated", "truncated", "return_", "spent")
    try:
        signature = inspect.signature(reward)
    except ValueError:  # a builtin that does not say
        return False
    # called with it, or else as every reward function is
    given = dict.fromkeys(names)
    try:
        signature.bind(None, **given, induced_action=None)
        return True
    except TypeError:
        pass
    try:
        signature.bind(None, **given)
    except TypeError as error:
        raise ValueRangeError(f"reward must take (reward, *, {', '.join(names)}), or **kwargs: {error}") from error
    return False
