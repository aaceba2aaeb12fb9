"""What ``train_agent(robust=...)`` knows of every method, whatever algorithm learns by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.value import Value
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.victims.victim import Victim

_GIVEN_UP = 0.2  # of the clean return, from which a training is said to have given it up


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


def has_given_up(clean: float, before: float) -> bool:
    """Whether an agent earns much less without an attack than before."""
    return before - clean > _GIVEN_UP * abs(before)


def learned_as(card: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the card of an agent, of whatever hand, says of how it learned, as arguments of ``train_agent``.

    Returns:
        ``algorithm``, ``rewards`` and ``gamma``, as far as they are there.
    """
    training = _mapping((card or {}).get("training"))
    said = {name: word for name in ("algorithm", "rewards") if isinstance(word := training.get(name), str)}
    gamma = finite_float(_mapping(training.get("settings")).get("gamma"))
    return said if gamma is None else {**said, "gamma": gamma}


def hardened_before(card: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What the card of an agent, of whatever hand, says hardened it, as ``train-agent`` calls it."""
    training = _mapping((card or {}).get("training"))
    earlier = training.get("tried")
    names = [str(by) for by in earlier] if isinstance(earlier, list) else []
    # the last training: a robust loss, an actor or an attack
    how: Any = _mapping(training.get("robust"))
    if not how:
        given = _mapping(training.get("adversary"))
        how = given.get("actor", given.get("how"))
    by = how.get("type") if isinstance(how, Mapping) else how
    if not isinstance(by, str):
        return tuple(names)
    method = Value.kinds.get(by)
    if method is not None and issubclass(method, TrainingMethod):
        by = method.loss or by
    return (*names, by)


def _mapping(value: object) -> Mapping[str, Any]:
    """A dictionary; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}
