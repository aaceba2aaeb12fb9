"""What ``train_agent(robust=...)`` knows of every method, whatever algorithm learns by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.serialization import Value
from adv_wrappers.victims.victim import Victim


class TrainingMethod(Value):
    """What a robust training has besides its loss.

    Attributes:
        loss: what ``robust=`` calls it; methods of several algorithms have one such name. One of your own has none.
        bounded: whether the loss is one over the budget's box, under which checkpoints are then compared.
        images: whether it takes images, or observations ``[n]`` alone.
        policy_kwargs: of the policy of Stable-Baselines3, for a network of the method's own.
    """

    loss: ClassVar[str] = ""
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
