"""What ``train_agent(robust=...)`` knows of every method, whatever algorithm learns by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.value import Value
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.victims.victim import Victim

_KEPT = 0.1  # of what can be lost, from which an agent is said to have kept something
_GIVEN_UP = 0.2  # of the clean return, from which a training is said to have given it up


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


@dataclass(frozen=True)
class Tried:
    """A training that an agent has behind it, or that began with it.

    Attributes:
        by: the name of a robust loss, of an actor or of an attack, as ``train-agent`` calls it.
        most: the largest eps that another should have: of the shares of this one's under which some checkpoint kept
            something, where all was lost under the whole at each; half of it, where the training ``gave_up``.
        scale: of its budget, where that has a number a feature.
        gave_up: whether its agent earns much less without an attack than the one that it began with.
        began_with: that one: the fingerprint, and the reference or None; None where that is not known.
    """

    by: str
    most: float | None = None
    scale: tuple[float, ...] | None = None
    gave_up: bool = False
    began_with: tuple[str, str | None] | None = None


def hardened_before(card: Mapping[str, Any] | None) -> list[Tried]:
    """What the card of an agent, of whatever hand, says of the trainings behind it, the first one first."""
    training = _mapping((card or {}).get("training"))
    earlier = training.get("tried")
    found = [Tried(str(by)) for by in earlier] if isinstance(earlier, list) else []
    return [*found, *tried_in(training, training.get("checkpoints"), training.get("began_with"))]


def tried_in(about: Mapping[str, Any], record: object, began_with: object, best: object = -1) -> list[Tried]:
    """What a training hardened an agent by; nothing for a plain one.

    Args:
        about: its description.
        record: its checkpoints.
        began_with: the ``ref`` and the ``clean`` return of the agent that it began with.
        best: which of the checkpoints is the agent's.
    """
    robust, adversary = about.get("robust"), about.get("adversary")
    how: Any = robust if isinstance(robust, Mapping) else adversary
    if not isinstance(how, Mapping):
        return []
    kind = how if how is robust else how.get("actor", how.get("how"))
    by = str(kind.get("type") if isinstance(kind, Mapping) else kind).removesuffix("-dqn")
    within, began = _mapping(how.get("within")), _mapping(began_with)
    rows = [row for row in record if isinstance(row, Mapping)] if isinstance(record, list) else []
    chosen = rows[best] if isinstance(best, int) and rows and -1 <= best < len(rows) else {}
    clean, before = finite_float(chosen.get("clean")), finite_float(began.get("clean"))
    gave_up = clean is not None and before is not None and has_given_up(clean, before)
    share, eps = _kept_share(rows), finite_float(within.get("eps"))
    if gave_up:
        share = min(0.5, 1.0 if share is None else share)
    scale = within.get("scale")
    units = [finite_float(unit) for unit in scale] if isinstance(scale, list) else []
    ref, known = began.get("ref"), about.get("victim")
    return [
        Tried(
            by,
            None if share is None or eps is None else share * eps,
            tuple(unit for unit in units if unit is not None) or None,
            gave_up,
            (known, ref if isinstance(ref, str) else None) if isinstance(known, str) else None,
        )
    ]


def _kept_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The largest share of a budget under which some checkpoint kept something, else the smallest that was played.

    None where not all was lost at every checkpoint, or no shares were played.
    """
    late = [row for row in rows if row.get("late")]
    kept = [row["max_diff"] for row in late if isinstance(row.get("max_diff"), Mapping)]
    if not kept or len(kept) < len(late):
        return None
    numbers = [(_number(share), finite_float(mean)) for one in kept for share, mean in one.items()]
    means = [(share, mean) for share, mean in numbers if share is not None and mean is not None]
    clean = [number for row in late if (number := finite_float(row.get("clean"))) is not None]
    if not means or not clean:
        return None
    low = min(mean for _, mean in means)
    told = [share for share, mean in means if mean - low > _KEPT * (max(clean) - low)]
    return max(told, default=min(share for share, _ in means))


def _mapping(value: object) -> Mapping[str, Any]:
    """A dictionary; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def _number(text: str) -> float | None:
    try:
        return finite_float(float(text))
    except ValueError:
        return None
