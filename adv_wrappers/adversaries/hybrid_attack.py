"""Hybrid attacks (Sun et al. 2022 name them in appendix A): one director, two actors.

Within a step the director's one action says how the policy should change: a state actor perturbs the observation, and
an action actor the action that the victim then takes. Each has a budget of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from adv_wrappers.adversaries.actor import Actor, ActorSpace
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.perturbation import On
from adv_wrappers.errors import BudgetError, ThreatError


@dataclass(frozen=True)
class Hybrid(Actor):
    """A state actor and an action actor that share every action of the adversary.

    Args:
        state: the actor on observations, such as ``PAAD(victim)``.
        action: the actor on actions, such as ``ActionPAAD(victim)``.
        reach: the budget of the actions; that of the observations is the threat's own.

    Raises:
        BudgetError: for a reach that is no budget.
        ThreatError: for actors on something else.
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
    def parts(self) -> Mapping[On, tuple[Actor, Budget | None]]:
        return {"observation": (self.state, None), "action": (self.action, self.reach)}

    @property
    def victim(self) -> Any:
        """The victim of the state actor."""
        return self.state.victim

    @property
    def needs_victim(self) -> bool:
        return bool(self.state.needs_victim or self.action.needs_victim)

    @property
    def direction(self) -> bool:
        return bool(self.state.direction and self.action.direction)

    def open(self) -> Hybrid:
        return replace(self, state=self.state.open(), action=self.action.open())

    def against(self, victim: Any) -> Hybrid:
        """The same with ``victim`` where none was filled in, and one form where none was given.

        That is the form of the other actor, else ``target`` for discrete actions and ``direction`` for continuous ones.
        """
        state, action = self.state.against(victim), self.action.against(victim)
        forms = [getattr(part, "form", "none") for part in (state, action)]
        if None in forms:
            # both parts learn in one space of actions, so what is left open follows the part that was said
            given = next((form for form in forms if form not in (None, "none")), None)
            common = given or ("target" if victim.discrete else "direction")
            state = replace(state, form=common) if forms[0] is None else state
            action = replace(action, form=common) if forms[1] is None else action
        return replace(self, state=state, action=action)

    def action_space(self, shape: tuple[int, ...]) -> ActorSpace:
        """The action space of both actors.

        Raises:
            ThreatError: if the two differ: give both actors the same ``form`` then.
        """
        mine, other = self.state.action_space(shape), self.action.action_space(shape)
        forms = [getattr(part, "resolved_form", None) for part in (self.state, self.action)]
        if mine != other or (None not in forms and forms[0] != forms[1]):
            raise ThreatError(
                f"the actors of a hybrid share one action, but {self.state.name} takes {mine} ({forms[0]}) and "
                f"{self.action.name} {other} ({forms[1]}): give both the same form="
            )
        return mine  # type: ignore[no-any-return]
