"""What an agent may be trained against: an adversary that learns beside it, a threat that is computed, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.core.balls import Linf
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.errors import ThreatError
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import Value
from adv_wrappers.presets import as_threat, presets
from adv_wrappers.texts import parse_when


@dataclass(frozen=True)
class Against:
    """What an agent is trained against: an actor that learns to be steered, a threat that is computed, or nothing.

    ``threat`` is what the agent is judged under, open; with an ``actor`` its perturbation is not there yet.
    """

    actor: Any = None
    within: Budget | None = None
    when: Any = None
    threat: ThreatModel | None = None

    @property
    def learns(self) -> bool:
        """Whether the adversary does."""
        return self.actor is not None

    @staticmethod
    def of(adversary: Any, eps: float | None, scale: Any, within: Budget | None, when: Any) -> Against:
        """What a user means by it.

        Raises:
            AdvWrappersError: one of its kinds, for what nobody can be.
        """
        if eps is not None and within is not None:
            raise ThreatError("give eps= or within=, not both")
        budget = within if eps is None else Linf(eps, scale)
        when = parse_when(when) if isinstance(when, str) else when
        if adversary is None:
            return Against()
        named = Value.kinds.get(adversary) if isinstance(adversary, str) else None
        if isinstance(adversary, Mapping):
            named = Value.kinds.get(str(adversary.get("type")))
        if isinstance(adversary, Actor) or (named is not None and issubclass(named, Actor)):
            on = getattr(adversary if named is None else named, "on", "observation")
            if on != "observation":
                raise ThreatError(f"agents are trained against actors on observations, got one on {on}s: {adversary!r}")
            if budget is None:
                raise ThreatError(f"{adversary!r:.40} needs a budget: eps=, or within=")
            return Against(adversary, budget, when)
        if isinstance(adversary, str) and adversary.partition(":")[0].strip() not in presets:
            known = ", ".join(presets)
            raise ThreatError(
                f"unknown adversary {adversary!r:.80}: expected 'pa-ad', 'sa-rl', an actor, a threat ({known}) or None"
            )
        threat = as_threat(adversary, within=budget, when=when)
        return Against(within=threat.budget, when=threat.when, threat=threat)

    def about(self) -> Any:
        """Itself in JSON, as far as it goes: what tells one training from another."""
        if self.threat is not None:
            try:
                return self.threat.to_dict()
            except ThreatError:
                return {"how": self.threat.label, "within": self.threat.budget.to_dict()}
        if self.actor is None:
            return None
        assert self.within is not None
        who = self.actor.to_dict() if isinstance(self.actor, Actor) else self.actor
        when = self.when.to_dict() if isinstance(self.when, Value) else self.when and repr(self.when)
        return {"actor": who, "within": self.within.to_dict(), "when": when}
