"""The seat of an adversary: who plays, what it sees and earns, and which threats its steers stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers.adversaries.actor import Actor, Steered, Steers, Unmoved
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import VIEWS, beside
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.core.values import Value, construct, decode
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from adv_wrappers.parsing import parse_when
from adv_wrappers.timing import Never
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.runner import PolicyRunner

Reward = Callable[..., Any]


def minus_reward(reward: Any, **more: Any) -> Any:
    """What the victim earned, negated: the adversary's reward in the papers."""
    return -reward


def actor_of(actor: Actor | Hybrid | str | Mapping[str, Any], victim: Victim) -> Actor | Hybrid:
    """An actor, its name or its dictionary, with an open victim filled in.

    Raises:
        ThreatError: for anything else.
    """
    if isinstance(actor, str):
        kind = Value.kinds.get(actor)
        if kind is None or not issubclass(kind, Actor):
            known = sorted(name for name, k in Value.kinds.items() if issubclass(k, Actor))
            raise ThreatError(f"unknown actor {actor!r}; known: {', '.join(known)}")
        return construct(kind, victim=victim)
    found = decode(actor) if isinstance(actor, Mapping) else actor
    if not isinstance(found, (Actor, Hybrid)):
        raise ThreatError(
            f"expected an actor such as SARL() or PAAD(victim), its name or dictionary, got {actor!r:.80}"
        )
    return found.against(victim)


@dataclass
class Seat:
    """Who plays, and what the adversary may do.

    Attributes:
        victim, actor: filled in.
        threat: to the observations, with the present budget; of an adversary that acts on actions alone one that never
            strikes.
        hand: the threat to the actions, with the present budget, or None.
        steers: space of one steer.
        space: what the adversary sees, one row.
    """

    victim: Victim
    actor: Actor | Hybrid
    threat: ThreatModel
    hand: ThreatModel | None
    steers: Steers
    space: spaces.Space[Any]
    observe: str
    reward: Reward

    @property
    def alone(self) -> bool:
        """Whether the adversary acts on actions alone."""
        return getattr(self.actor, "on", None) == "action"

    def earned(self, reward: Any, **more: Any) -> Any:
        """The adversary's reward, of the shape of the victim's: a scalar, or ``[B]``.

        Raises:
            ValueRangeError: for a reward that is no number, not finite, or of another shape.
        """
        own = self.reward(reward, **more)
        expected, got = tuple(np.shape(reward)), None
        try:
            got = tuple(np.shape(own))
            sound = got == expected and bool(np.isfinite(own).all())
        except (TypeError, ValueError):  # no numbers, or rows of several lengths
            sound = False
        if not sound:
            raise ValueRangeError(
                f"the adversary's reward must be finite, one number a row: expected shape {expected}, got "
                f"{'no array' if got is None else f'shape {got}'}: {own!r:.80}"
            )
        return own

    def pilot(self, rows: int) -> PolicyRunner:
        """Who acts for the victim."""
        return PolicyRunner(self.victim, rows)

    def seen(self, pilot: PolicyRunner, true: Any) -> Any:
        """What the adversary sees at true observations ``[B, *S]``."""
        if self.observe == "state":
            return true
        # an adversary of actions alone sees the very one that it will perturb
        action = torch.from_numpy(np.asarray(pilot.peek(true) if self.alone else pilot.mode(true)))
        return beside(torch.from_numpy(np.array(true)), action, self.victim.action_space).numpy()


def seat(
    space: spaces.Space[Any], acts: spaces.Space[Any], victim: Victim | str, actor: Any, within: Any, when: Any,
    reward: Reward, observe: str,
) -> Seat:  # fmt: skip
    """The seat of an adversary in an environment with these spaces of one row.

    Raises:
        AdvWrappersError: one of its kinds, for parts that do not fit.
    """
    victim = load_victim(victim)
    fits(victim, space, acts)
    actor = actor_of(actor, victim)
    if observe not in VIEWS:
        raise ThreatError(f"observe must be {' or '.join(map(repr, VIEWS))}, got {observe!r}")
    if not callable(reward):
        raise ThreatError(f"reward must be a function, got {reward!r:.80}")
    field = Field(space, None, "observation")
    steers = actor.steer_space(field.shape)
    within, when = (decode(part) if isinstance(part, Mapping) else part for part in (within, when))
    when = parse_when(when) if isinstance(when, str) else when
    hybrid = isinstance(actor, Hybrid)
    hand = None
    if hybrid or actor.on == "action":
        own, reach = (actor.action, actor.reach) if hybrid else (actor, within)
        if reach is None and isinstance(acts, spaces.Discrete):
            reach = Valid()
        hand = ThreatModel("action", Steered(own, field.shape), reach, when).against(victim)
    if hybrid or actor.on == "observation":
        state = actor.state if hybrid else actor
        threat = ThreatModel("observation", Steered(state, field.shape), within, when).against(victim)
    else:
        threat = ThreatModel("observation", Unmoved(), Valid(), Never())
    sees = space if observe == "state" else _beside(space, victim)
    return Seat(victim, actor, threat, hand, steers, sees, observe, reward)


def _beside(space: Any, victim: Victim) -> spaces.Box:
    """The space of observations with the victim's action beside them."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or space.dtype.kind != "f":
        raise SpaceError(f"observe='state+action' is for flat observations of floats, got {space}")
    acts = victim.action_space
    if isinstance(acts, spaces.Discrete):
        low, high = np.zeros(int(acts.n)), np.ones(int(acts.n))
    elif isinstance(acts, spaces.Box):  # unclipped: a victim's own action may lie outside its space
        low, high = np.full(acts.shape, -np.inf).ravel(), np.full(acts.shape, np.inf).ravel()
    else:
        raise SpaceError(f"observe='state+action' takes one discrete action or continuous ones, got {acts}")
    low, high = np.concatenate([space.low, low]), np.concatenate([space.high, high])
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype.type)
