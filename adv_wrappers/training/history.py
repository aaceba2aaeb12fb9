"""What the card or the record of an agent says of how it learned, and of the trainings behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from adv_wrappers.core.serialization import Value
from adv_wrappers.training.defences.method import TrainingMethod
from adv_wrappers.utils.checks import finite_float

_KEPT = 0.1  # of what can be lost, from which an agent is said to have kept something
_GIVEN_UP = 0.2  # of the clean return, from which a training is said to have given it up


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


def tried_in(about: Mapping[str, Any], record: Any, began_with: Any, best: int = -1) -> list[Tried]:
    """What a training hardened an agent by; nothing for a plain one, and where what is said makes no sense.

    Args:
        about: its description.
        record: its checkpoints.
        began_with: the ``ref`` and the ``clean`` return of the agent that it began with.
        best: which of the checkpoints is the agent's.
    """
    with suppress(KeyError, TypeError, ValueError, AttributeError, IndexError):
        how = about.get("robust") or about.get("adversary")
        if how:
            return [_tried(how, about, record or [], began_with or {}, best)]
    return []


def _tried(how: Any, about: Mapping[str, Any], record: Any, began_with: Any, best: int) -> Tried:
    kind = how if about.get("robust") else how.get("actor", how.get("how"))
    by = str(kind["type"] if isinstance(kind, Mapping) else kind)
    method = Value.kinds.get(by)
    if method is not None and issubclass(method, TrainingMethod):
        by = method.loss or by
    within, before = how.get("within") or {}, began_with.get("clean")
    # the share of the budget within which it keeps something, less where it has given up its clean return
    share, gave_up = _kept_share(record), False
    if record and before is not None:
        gave_up = has_given_up(_number(record[best]["clean"]), _number(before))
    if gave_up:
        share = min(0.5, 1.0 if share is None else share)
    most = None if share is None or "eps" not in within else share * _number(within["eps"])
    scale = tuple(map(_number, within["scale"])) if isinstance(within.get("scale"), list) else None
    known, ref = about.get("victim"), began_with.get("ref")
    first = (known, ref if isinstance(ref, str) else None) if isinstance(known, str) else None
    return Tried(by, most, scale, gave_up, first)


def _kept_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The largest share of a budget under which some checkpoint kept something, else the smallest that was played.

    None where not all was lost at every checkpoint, or no shares were played.
    """
    late = [row for row in rows if row.get("late")]
    if not late or not all(row.get("max_diff") for row in late):
        return None
    means = [(_number(share), _number(mean)) for row in late for share, mean in row["max_diff"].items()]
    low, clean = min(mean for _, mean in means), max(_number(row["clean"]) for row in late)
    told = [share for share, mean in means if mean - low > _KEPT * (clean - low)]
    return max(told, default=min(share for share, _ in means))


def _mapping(value: object) -> Mapping[str, Any]:
    """A dictionary; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float:
    """A finite number, also of a text; raises :class:`ValueError` for anything else."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number
