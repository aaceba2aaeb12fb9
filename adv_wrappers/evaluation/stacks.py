"""What a caller names as a threat, as the layers of one run and the text that a report calls them by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adv_wrappers.actions.worst import WorstAction
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.errors import ThreatError
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.presets import as_threat, parts_of
from adv_wrappers.timing import Always
from adv_wrappers.victims.victim import Victim

WORST = WorstAction.name


@dataclass(frozen=True)
class Stack:
    """One run's layers, aimed at the victim, and how the report calls them."""

    name: str
    layers: tuple[ThreatModel, ...]
    transfer: bool


def stack(item: Any, victim: Victim) -> Stack:
    """A threat, or a stack (a list, innermost first, or a text with `` + `` between threats), aimed at ``victim``.

    Raises:
        AdvWrappersError: one of its kinds, for what cannot be understood as a threat.
    """
    if isinstance(item, str):  # as reports write a stack
        item = item.split(" + ")
    parts = item if isinstance(item, (list, tuple)) else [item]
    if not parts:
        raise ThreatError("a stack needs at least one threat")
    made = [as_threat(part) for part in parts]
    transfer = any(not _same(other, victim) for threat in made for other in threat.victims)
    trained = {getattr(threat.how, "trained_on", None) for threat in made} - {None}  # by their hashes
    transfer = transfer or any(other != victim.fingerprint() for other in trained)
    texts = [part if isinstance(part, str) else _text(threat) for part, threat in zip(parts, made, strict=True)]
    layers = (layer for threat in made for layer in parts_of(threat.against(victim)))
    return Stack(" + ".join(texts), tuple(layers), transfer)


def worst(victim: Victim) -> Stack:
    """The agent that takes the action it values least in every state (Daylight, section 2.5)."""
    return Stack(WORST, (as_threat(WORST).against(victim),), False)


def is_worst(aimed: Stack, victim: Victim) -> bool:
    """Whether a stack is :func:`worst` under whatever name."""
    mine = worst(victim).layers[0]
    one = aimed.layers[0] if len(aimed.layers) == 1 else None
    return (
        one is not None and isinstance(one.how, WorstAction) and one.how == mine.how
        and isinstance(one.budget, Valid) and one.at is None and (one.when is None or isinstance(one.when, Always))
    )  # fmt: skip


def _same(other: Any, victim: Victim) -> bool:
    return other is victim or bool(victim.modules() and other.fingerprint() == victim.fingerprint())


def _text(threat: ThreatModel) -> str:
    """A threat's text: its name and what tells it from its neighbours in a table."""
    budget, parts = threat.budget, []
    for key in ("eps", "k"):
        if hasattr(budget, key):
            parts.append(f"{key}={getattr(budget, key):g}")
    if budget.name not in ("linf", "valid"):
        parts.append(f"norm={budget.name}")
    scale = getattr(budget, "scale", None)
    if scale is not None:
        parts.append(f"scale={scale}" if isinstance(scale, (str, float)) else "scale=...")
    if threat.when is not None:
        parts.append(f"when={threat.when}" if isinstance(threat.when, When) else "when=...")
    return threat.label + (":" + ",".join(parts) if parts else "")


def form(threat: ThreatModel) -> dict[str, Any] | None:
    """The dictionary of a threat, or None where a part of it has no JSON form."""
    try:
        return threat.to_dict()
    except ThreatError:
        return None
