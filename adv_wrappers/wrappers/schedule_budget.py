"""A curriculum: the layers beneath use a share of their budgets that follows a schedule over the training's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from adv_wrappers.core.serialization import decode
from adv_wrappers.core.training_schedules import LinearSchedule, Number, ScheduledShare, at
from adv_wrappers.core.types import Info
from adv_wrappers.utils.validation import Expected, Positive, checked
from adv_wrappers.wrappers.layer import EnvWrapper, ForAnyEnv, Layer, layers_within_reach

LEVELS = 100  # a budget changes in hundredths of the training: a change takes as long as a few attacks


class UsesShare(Protocol):
    """What uses a share of a budget: a layer."""

    def set_budget_share(self, share: float) -> None:
        """Use a share in [0, 1] from now on."""


def as_share_schedule(schedule: object) -> Number:
    """A schedule of shares, as a value or its dictionary, or a number for one that stays.

    Raises:
        ThreatError: for a dictionary of something else.
        ValueRangeError: for anything else, and for shares outside of [0, 1].
    """
    found = decode(schedule) if isinstance(schedule, Mapping) else schedule
    shares: Number = Expected(ScheduledShare).check("schedule", found)
    return shares


class BudgetShares:
    """Sets the shares that layers use by a schedule.

    Args:
        schedule: what :func:`as_share_schedule` takes.
        targets: the layers.

    Attributes:
        share: the present share.
    """

    def __init__(self, schedule: object, targets: Sequence[UsesShare]) -> None:
        self.schedule = as_share_schedule(schedule)
        self.targets = targets
        self._level = -1
        self.share = 1.0
        self.set_at(0.0)

    def set_at(self, done: float) -> None:
        """Set the share of when ``done`` of the training is done, at least 0, in whole hundredths of it."""
        level = min(int(done * LEVELS), LEVELS)
        if level != self._level:
            self._level, self.share = level, at(self.schedule, level / LEVELS)
            for target in self.targets:
                target.set_budget_share(self.share)


def scheduled_layers(env: Any, who: str) -> list[Layer]:
    """The layers beneath, and those inside the rows of a vector environment of this process.

    Raises:
        OrderError: where there are none, or where some are inside the workers of a vector environment.
    """
    found, rows = layers_within_reach(env, who, "changes the budgets of")
    return [*found, *(layer for row in rows for layer in row)]


class BudgetScheduler:
    """Mixin of the schedules of one environment and of a vector, whose step is one of every row."""

    env: Any
    rows: int

    @checked
    def __init__(self, env: Any, schedule: Number | Info, steps: Positive) -> None:
        shares = as_share_schedule(schedule)
        recorded = shares.to_dict() if isinstance(shares, LinearSchedule) else shares
        hint = ": an SB3 VecEnv takes adv_wrappers.training.sb3.callbacks.ScheduleBudgetCallback"
        self._wrap_one(env, hint, schedule=recorded, steps=steps)  # type: ignore[attr-defined]
        self.steps, self.taken = steps, 0
        self._shares = BudgetShares(shares, scheduled_layers(env, "ScheduleBudget"))

    def step(self, action: Any) -> Any:
        """One step, after which the share is that of the steps taken."""
        found = self.env.step(action)
        self.taken += self.rows
        self._shares.set_at(self.taken / self.steps)
        return found


class ScheduleBudget(ForAnyEnv, BudgetScheduler, EnvWrapper):
    """All layers beneath use a share of their budgets that follows a schedule: a curriculum over eps.

    The share changes in hundredths of the training, within an episode too, and holds from the next observation (or
    action) on. At a share of 1 the threat is what it is without this wrapper, to the bit; at 0 nothing changes. On
    integer observations a radius below one grey level counts as 0. Specs record the whole budget. With
    Stable-Baselines3, :class:`.ScheduleBudgetCallback` follows the training's own progress.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, already wrapped in layers.
        schedule: the share of the budget, in [0, 1], as a :class:`LinearSchedule`, a :class:`SmoothSchedule` or one of
            their dictionaries; or a number for a share that stays.
        steps: the steps of the training, those of all rows of a vector counted, after which the schedule is at its end.

    Raises:
        ThreatError: for what is no schedule.
        ValueRangeError: for shares outside of [0, 1], and for less than one step.
        BudgetError: for a layer whose budget has no radius, such as :class:`Valid`.
        OrderError: where no layer is beneath, or layers are inside ``AsyncVectorEnv`` workers.

    >>> import gymnasium as gym
    >>> from adv_wrappers import Linf, LinearSchedule, Noise, PerturbObservation
    >>> env = PerturbObservation(gym.make("CartPole-v1"), Noise(), within=Linf(0.1))
    >>> env = ScheduleBudget(env, LinearSchedule(0.0, 1.0, end=0.5), steps=40)
    >>> _ = env.reset(seed=0)
    >>> for _ in range(10):
    ...     _ = env.step(env.action_space.sample())
    >>> env.get_wrapper_attr("threat").budget, env.get_wrapper_attr("budget_share")
    (Linf(eps=0.05, scale=None), 0.5)
    """


VectorScheduleBudget = ScheduleBudget.of_vector
