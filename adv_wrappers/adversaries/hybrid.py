"""Hybrid attacks (Sun et al. 2022 name them in appendix A): one director, two actors.

Within a step the director's one steer tells a state actor how the policy should change, and an action actor changes the
action that the victim then takes in the same sense. The two have a budget each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from adv_wrappers.adversaries.actor import Actor, Steers
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.values import Value
from adv_wrappers.errors import BudgetError, ThreatError


@dataclass(frozen=True)
class Hybrid(Value):
    """A state actor and an action actor that share every steer.

    Args:
        state: such as ``PAAD(victim)``.
        action: such as ``ActionPAAD(victim)``.
        reach: the budget of the actions; that of the observations is the threat's own.

    Raises:
        BudgetError: for a reach that is no budget.
        ThreatError: for actors that act elsewhere, or whose steers are not of one kind.
    """

    name: ClassVar[str] = "hybrid"
    state: Any
    action: Any
    reach: Any

    def __post_init__(self) -> None:
        for part, on in ((self.state, "observation"), (self.action, "action")):
            if not isinstance(part, Actor) or part.on != on:
                raise ThreatError(f"a hybrid takes an actor on the {on}, got {part!r:.80}")
        if not isinstance(self.reach, Budget):
            raise BudgetError(f"reach must be a budget of actions such as Linf(0.1), got {self.reach!r:.80}")

    @property
    def victim(self) -> Any:
        """Of the state actor."""
        return self.state.victim

    @property
    def needs_victim(self) -> bool:
        """Whether an actor looks at one."""
        return bool(self.state.needs_victim or self.action.needs_victim)

    @property
    def direction(self) -> bool:
        """Whether a steer counts as a direction alone: to both, or to neither."""
        return bool(self.state.direction and self.action.direction)

    def open(self) -> Hybrid:
        """The same without its victims."""
        return replace(self, state=self.state.open(), action=self.action.open())

    def against(self, victim: Any) -> Hybrid:
        """The same with ``victim`` where none was filled in, and one form where none was given.

        That is the form of the other actor, else ``target`` for discrete actions and ``direction`` for continuous ones.
        """
        state, action = self.state.against(victim), self.action.against(victim)
        forms = [getattr(part, "form", "none") for part in (state, action)]
        if None in forms:
            given = next((form for form in forms if form not in (None, "none")), None)
            common = given or ("target" if victim.discrete else "direction")
            state = replace(state, form=common) if forms[0] is None else state
            action = replace(action, form=common) if forms[1] is None else action
        return replace(self, state=state, action=action)

    def steer_space(self, shape: tuple[int, ...]) -> Steers:
        """The steers of both.

        Raises:
            ThreatError: if they differ: ``form`` of both actors then has to be given.
        """
        mine, other = self.state.steer_space(shape), self.action.steer_space(shape)
        manners = [getattr(part, "manner", None) for part in (self.state, self.action)]
        if mine != other or (None not in manners and manners[0] != manners[1]):
            raise ThreatError(
                f"the actors of a hybrid share their steers, but {self.state.name} takes {mine} ({manners[0]}) and "
                f"{self.action.name} {other} ({manners[1]}): give both the same form="
            )
        return mine  # type: ignore[no-any-return]
