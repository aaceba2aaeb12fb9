"""The threats of one run: what a caller gives, and the text that names it in a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gymnasium.vector import SyncVectorEnv

from adv_wrappers.attacks.action_attacks import WorstAction
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import Always
from adv_wrappers.errors import ThreatError, threat_in_errors
from adv_wrappers.threats.presets import as_threat, threat_layers
from adv_wrappers.threats.text import text_of, unique, without_number
from adv_wrappers.utils.parsing import split_stack
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import AnyVectorEnv, layers

WORST = WorstAction.name


@dataclass(frozen=True)
class ThreatStack:
    """The threats of one run, aimed at the victim.

    Attributes:
        name: the text that names them in the report.
        layers: the threats, innermost first; empty for the clean run.
        transfer: whether one of them is aimed at another victim.
        episodes: how many of the episodes are played, the first ones, as of a search that had no time for all; None
            for all of them.
    """

    name: str
    layers: tuple[ThreatModel, ...]
    transfer: bool
    episodes: int | None = None


CLEAN_RUN = ThreatStack("none", (), False)


def parts_of_stack(item: object) -> list[object]:
    """The threats of a stack as it is given: a list, innermost first, a text with `` + `` between threats, or one.

    Raises:
        ThreatError: for none.
    """
    if isinstance(item, str):  # as reports write a stack
        return [*split_stack(without_number(item))]
    parts = [*item] if isinstance(item, (list, tuple)) else [item]
    if not parts:
        raise ThreatError("a stack needs at least one threat")
    return parts


def as_threat_stack(item: object, victim: Victim) -> ThreatStack:
    """A threat, or a stack (a list, innermost first, or a text with `` + `` between threats), aimed at ``victim``.

    Raises:
        AdvWrappersError: one of its kinds, for what cannot be understood as a threat.
    """
    parts = parts_of_stack(item)
    made = [as_threat(part) for part in parts]
    for threat in made:
        if threat.on == "reward":
            raise ThreatError(
                f"{threat.label} changes rewards, which an agent that is evaluated never sees: train with it, by "
                f"PerturbReward or train_agent"
            )
    # a transfer attack looks at another agent, or was trained against one
    transfer = any(not _same(other, victim) for threat in made for other in threat.victims)
    trained = {getattr(threat.how, "trained_on", None) for threat in made} - {None}  # by their hashes
    transfer = transfer or any(other != victim.fingerprint() for other in trained)
    pairs = zip(parts, made, strict=True)  # a text stays as it was written
    texts = [part.strip() if isinstance(part, str) else text_of(threat, victim) for part, threat in pairs]
    # what was left open is filled in with the victim
    aimed: list[ThreatModel] = []
    for part, threat in zip(parts, made, strict=True):
        with threat_in_errors(part):
            aimed += threat_layers(threat.against(victim))
    return ThreatStack(" + ".join(texts), tuple(aimed), transfer)


def as_threat_stacks(threats: object, victim: Victim) -> list[ThreatStack]:
    """The run without a threat, and then those of one threat, or of every item of a list, aimed at ``victim``.

    Raises:
        AdvWrappersError: one of its kinds, for what cannot be understood as a threat.
    """
    items = threats if isinstance(threats, (list, tuple)) else [threats]
    return [CLEAN_RUN, *(as_threat_stack(item, victim) for item in items)]


def threats_of_environment(venv: AnyVectorEnv, victim: Victim, on_rewards: bool = False) -> list[str]:
    """The threats that an environment has itself, innermost first, as texts that are aimed at ``victim``.

    Args:
        venv: the environments.
        victim: the agent.
        on_rewards: those to rewards, of which what is counted is free, instead of all others.
    """
    envs = venv.envs if isinstance(venv, SyncVectorEnv) else ()
    found = [layer for env in envs[:1] for layer in layers(env)]
    return [text_of(layer.threat, victim) for layer in found if (layer.on == "reward") == on_rewards]


def with_unique_names(stacks: Sequence[ThreatStack]) -> list[ThreatStack]:
    """The stacks, numbered where two have one text, because what differs cannot be written as text."""
    names = unique(stack.name for stack in stacks)
    return [replace(stack, name=name) for stack, name in zip(stacks, names, strict=True)]


def worst_action(victim: Victim) -> ThreatStack:
    """The agent that takes the action it values least in every state (Daylight, section 2.5)."""
    return ThreatStack(WORST, (as_threat(WORST).against(victim),), False)


def is_worst_action(stack: ThreatStack, victim: Victim) -> bool:
    """Whether a stack is :func:`worst_action`, under whatever name."""
    [own], [one, *others] = worst_action(victim).layers, stack.layers or (None,)
    if one is None or others or not (one.when is None or isinstance(one.when, Always)):
        return False
    return one.how == own.how and one.budget == own.budget and one.at == own.at


def _same(other: Victim, victim: Victim) -> bool:
    return other is victim or bool(victim.modules() and other.fingerprint() == victim.fingerprint())


def json_form(threat: ThreatModel) -> dict[str, Any] | None:
    """The dictionary of a threat, or None where a part of it has no JSON form."""
    try:
        return threat.to_dict()
    except ThreatError:
        return None
