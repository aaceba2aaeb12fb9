"""What ``train_agent(robust=...)`` knows of every method, whatever algorithm learns by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.value import Value
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.victims.victim import Victim

_KEPT = 0.1  # of what can be lost, from which an agent is said to have kept something


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


@dataclass(frozen=True)
class Tried:
    """A training that an agent has behind it, or that began with it.

    Attributes:
        by: the name of a robust loss, of an actor or of an attack, as ``train-agent`` calls it.
        most: the largest eps that another should have, where all was lost under this one's at every checkpoint.
    """

    by: str
    most: float | None = None


def hardened_before(card: Mapping[str, Any] | None) -> list[Tried]:
    """What the card of an agent, of whatever hand, says of the trainings behind it, the first one first."""
    training = (card or {}).get("training")
    if not isinstance(training, Mapping):
        return []
    earlier = training.get("tried")
    found = [Tried(str(by)) for by in earlier] if isinstance(earlier, list) else []
    return [*found, *tried_in(training, training.get("checkpoints"))]


def tried_in(about: Mapping[str, Any], record: object) -> list[Tried]:
    """What a training's description says that it hardened an agent by; nothing for a plain one."""
    found = hardening_of(about)
    if found is None:
        return []
    eps, rows = finite_float(found[1]), record if isinstance(record, list) else []
    late = [row for row in rows if isinstance(row, Mapping) and row.get("late")]
    kept = [row["max_diff"] for row in late if isinstance(row.get("max_diff"), Mapping)]
    if eps is None or not kept or len(kept) < len(late):
        return [Tried(found[0])]
    # the largest share of the budget in which some checkpoint kept something, else the smallest that was played
    numbers = [(_number(share), finite_float(mean)) for one in kept for share, mean in one.items()]
    means = [(share, mean) for share, mean in numbers if share is not None and mean is not None]
    clean = [number for row in late if (number := finite_float(row.get("clean"))) is not None]
    if not means or not clean:
        return [Tried(found[0])]
    low = min(mean for _, mean in means)
    told = [share for share, mean in means if mean - low > _KEPT * (max(clean) - low)]
    return [Tried(found[0], eps * max(told, default=min(share for share, _ in means)))]


def _number(text: str) -> float | None:
    try:
        return finite_float(float(text))
    except ValueError:
        return None
