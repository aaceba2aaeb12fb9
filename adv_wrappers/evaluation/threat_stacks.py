"""What a caller names as a threat, as the layers of one run and the text that a report calls them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gymnasium.vector import SyncVectorEnv

from adv_wrappers.actions.worst import WorstAction
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import ThreatError
from adv_wrappers.formatting import text_of, unique, without_number
from adv_wrappers.parsing import stack_of
from adv_wrappers.presets import as_threat, called, parts_of
from adv_wrappers.timing import Always
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.base import layers

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
        item = stack_of(without_number(item))
    parts = item if isinstance(item, (list, tuple)) else [item]
    if not parts:
        raise ThreatError("a stack needs at least one threat")
    made = [as_threat(part) for part in parts]
    transfer = any(not _same(other, victim) for threat in made for other in threat.victims)
    trained = {getattr(threat.how, "trained_on", None) for threat in made} - {None}  # by their hashes
    transfer = transfer or any(other != victim.fingerprint() for other in trained)
    pairs = zip(parts, made, strict=True)  # a text stays as it was written
    texts = [part.strip() if isinstance(part, str) else text_of(threat, victim) for part, threat in pairs]
    made_of: list[ThreatModel] = []
    for part, threat in zip(parts, made, strict=True):
        with called(part):
            made_of += parts_of(threat.against(victim))
    return Stack(" + ".join(texts), tuple(made_of), transfer)


def texts_under(venv: SyncVectorEnv, victim: Victim) -> list[str]:
    """The threats that an environment has itself, innermost first, as texts that are aimed at ``victim``."""
    return [text_of(layer.threat, victim) for layer in layers(venv.envs[0])]


def distinct(stacks: Sequence[Stack]) -> list[Stack]:
    """The stacks, with names that tell them apart where two have one text: what no text can say is not in it."""
    names = unique(aimed.name for aimed in stacks)
    return [replace(aimed, name=name) for aimed, name in zip(stacks, names, strict=True)]


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


def form(threat: ThreatModel) -> dict[str, Any] | None:
    """The dictionary of a threat, or None where a part of it has no JSON form."""
    try:
        return threat.to_dict()
    except ThreatError:
        return None
