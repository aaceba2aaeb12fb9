"""What ``train_agent(robust=...)`` knows of every method, whatever algorithm learns by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.json_values import Value
from adv_wrappers.victims.victim import Victim


class TrainingMethod(Value):
    """What a robust training has besides its loss.

    Attributes:
        bounded: whether the loss is one over the budget's box, under which checkpoints are then compared.
        images: whether it takes images, or observations ``[n]`` alone.
        policy_kwargs: of the policy of Stable-Baselines3, for a network of the method's own.
    """

    bounded: ClassVar[bool] = True
    images: ClassVar[bool] = True
    policy_kwargs: ClassVar[Mapping[str, Any]] = {}

    def deployed(self, victim: Victim, within: Budget) -> Victim:
        """The agent as it is used, and compared at checkpoints: as it is by default."""
        return victim


@dataclass(frozen=True)
class RobustTraining:
    """A method, and the budget that it is to make an agent robust in."""

    method: TrainingMethod
    within: Budget

    def describe(self) -> dict[str, Any]:
        """A JSON form, that distinguishes one training from another."""
        return {**self.method.to_dict(), "within": self.within.to_dict()}

    def deployed(self, victim: Victim) -> Victim:
        """The agent as it is used."""
        return self.method.deployed(victim, self.within)


def hardening_of(about: Mapping[str, Any]) -> tuple[str, object] | None:
    """What a training's description says that the agent was hardened by, as ``train-agent`` calls it, and the eps.

    Args:
        about: what a folder or a card of an agent's training says of it; of whatever hand.

    Returns:
        The name of a robust loss, of an actor or of an attack, and the radius of its budget; None for plain training.
    """
    robust, adversary = about.get("robust"), about.get("adversary")
    how: Any = robust if isinstance(robust, Mapping) else adversary
    if not isinstance(how, Mapping):
        return None
    kind = how if how is robust else how.get("actor", how.get("how"))
    name = kind.get("type") if isinstance(kind, Mapping) else kind
    within = how.get("within")
    return str(name).removesuffix("-dqn"), within.get("eps") if isinstance(within, Mapping) else None


def hardened_before(card: Mapping[str, Any] | None) -> list[str]:
    """By what the agent of a card was hardened, the first training first; empty without a card."""
    training = (card or {}).get("training")
    if not isinstance(training, Mapping):
        return []
    earlier, own = training.get("tried"), hardening_of(training)
    return [*map(str, earlier if isinstance(earlier, list) else []), *([] if own is None else [own[0]])]
