"""What a measurement of resilience trains: an actor that learns when to attack, and is told how, or induces actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TypeAlias

from adv_wrappers.actions.worst import WorstAction
from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.timed import Induce, Timed
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import Argument, Message, ThreatError, ValueRangeError, VictimError, Words
from adv_wrappers.evaluation.environments import EnvFactory
from adv_wrappers.presets import as_threat, preset_in_errors
from adv_wrappers.snapshots import check_repeats, record_for_replay
from adv_wrappers.victims import Victim

INDUCE = ("worst", "any")
How: TypeAlias = ThreatModel | Perturbation | Mapping[str, object] | str | None


def worst_action_of(victim: Victim, make_env: EnvFactory, by: str | None = None) -> WorstAction:
    """The action that a victim values least, found in the best way that there is for it (equations 2 and 3).

    Of discrete actions it is another than the one that is played, of which a value may think the least.

    Args:
        victim: the victim.
        make_env: makes its environment.
        by: as for :class:`adv_wrappers.WorstAction`; None takes ``"q"``, else ``"successor"``.

    Raises:
        VictimError: for a victim with neither Q-values nor a state value.
        SnapshotError: where the successors are needed and the environment can neither be saved nor replayed.
    """
    if by is None and victim.has_q:
        by = "q"
    if by is None and victim.has_value and victim.discrete:
        by = "successor"
    if by is None:
        raise VictimError(
            Message(
                "the worst action needs Q-values, or the state value of a victim with discrete actions, and this "
                "victim has neither: approximate them with ",
                Words("imitate(victim, env)", "adv-wrappers imitate"),
                ", take the least likely action with ",
                Argument("by", "policy"),
                ", or give ",
                Argument("how", ...),
            )
        )
    if by == "successor":
        with closing(record_for_replay(make_env())) as env:
            env.reset(seed=0)
            check_repeats(env)
    return WorstAction(victim, by, other=victim.discrete)


def actors_of(
    victim: Victim, make_env: EnvFactory, how: How, induce: str, by: str | None, within: Budget | None
) -> tuple[Callable[[Victim], Actor], ThreatModel | None]:
    """What makes the actor for a victim, and the threat that ``how`` stands for.

    Args:
        victim: the victim.
        make_env: makes its environment.
        how, induce, by, within: as for :func:`adv_wrappers.resilience`.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that do not go together.
    """
    if induce not in INDUCE:
        raise ValueRangeError(f"induce must be {' or '.join(map(repr, INDUCE))}, got {induce!r:.80}")
    for name, value in (("by", by), *((("induce", induce),) if induce != "worst" else ())):
        if how is not None and value is not None:
            given = Words("induce=", "--any-action") if name == "induce" else Argument(name, ...)
            also = " chooses what is induced, and so does "
            raise ThreatError(Message(given, also, Argument("how", ...), ": give one of them"))
    if induce == "any":
        if by is not None:
            any_action = Words("induce='any'", "--any-action")
            finds, leaves = " finds the worst action, ", " leaves it to the adversary: give one of them"
            raise ThreatError(Message(Argument("by", ...), finds, any_action, leaves))
        return Induce, None
    if how is None:
        return lambda each: Timed(worst_action_of(each, make_env, by), each), None
    threat = as_threat(how, within=within)
    if threat.at is not None:
        raise ThreatError(f"an adversary perturbs whole observations, got a threat at {threat.at!r}")

    def timed(victim: Victim) -> Actor:
        with preset_in_errors(how):
            return Timed(threat.how, victim)

    return timed, threat
