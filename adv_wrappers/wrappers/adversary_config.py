"""The configuration of an adversary environment: both sides, the adversary's spaces and reward, its threats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers.adversaries.actor import Actor, ActorPerturbation, ActorSpace, Unperturbed
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import append_actions, append_spent
from adv_wrappers.adversaries.timed import Timed
from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.core.timing import Never
from adv_wrappers.core.types import Counter, Space
from adv_wrappers.core.value import Value, construct, decode
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from adv_wrappers.registry import OBSERVE
from adv_wrappers.threats.presets import parse_perturbation, parse_when
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.references import load_referenced
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward, takes_induced_action
from adv_wrappers.wrappers.perturb_dynamics import dynamics_beneath


def as_actor(actor: object, victim: Victim) -> Actor | Hybrid:
    """An actor, its text or its dictionary, as an actor whose victim is filled in.

    A text is an actor's name, or ``timed:`` and that of a perturbation: ``timed:max-diff:steps=5``.

    Raises:
        ThreatError: for anything else.
    """
    if isinstance(actor, str):
        name, colon, rest = actor.partition(":")
        if name.strip() == Timed.name:
            if not rest.strip():
                raise ThreatError(f"timed needs the perturbation that it times, as in 'timed:max-diff', got {actor!r}")
            return Timed(parse_perturbation(rest), victim)
        kind = None if colon else Value.kinds.get(actor)
        if kind is None or not issubclass(kind, Actor):
            known = sorted(name for name, k in Value.kinds.items() if issubclass(k, Actor))
            raise ThreatError(f"unknown actor {actor!r}; known: {', '.join(known)}")
        return construct(kind, victim=victim)
    found = decode(actor, load_referenced) if isinstance(actor, Mapping) else actor
    if not isinstance(found, (Actor, Hybrid)):
        raise ThreatError(
            f"expected an actor such as SARL() or PAAD(victim), its name or dictionary, got {actor!r:.80}"
        )
    return found.against(victim)


@dataclass
class AdversaryConfig:
    """The configuration of an adversary environment: both sides, the adversary's spaces and reward, its threats.

    Attributes:
        victim: the victim that acts.
        actor: turns the adversary's action into a perturbation; its victim is filled in.
        observation_threat: the threat to the observations; one that never attacks where the actor perturbs actions
            alone.
        beneath_threat: the threat to the actions, or to the dynamics, of which a layer beneath is made; or None.
        observation_space, action_space: the adversary's own spaces, of one row.
        observe: ``"state"``, ``"state+action"`` or ``"state+action+spent"``.
        reward: the adversary's reward function.
    """

    victim: Victim
    actor: Actor | Hybrid
    observation_threat: ThreatModel
    beneath_threat: ThreatModel | None
    observation_space: Space
    action_space: ActorSpace
    observe: str
    reward: Reward

    @staticmethod
    def create(
        observation_space: Space,
        action_space: Space,
        victim: Victim | str,
        actor: object,
        within: Budget | Mapping[str, Any] | None,
        when: Any,
        reward: Reward,
        observe: str,
        env: Any = None,
    ) -> AdversaryConfig:
        """The configuration from the arguments of :class:`adv_wrappers.AdversaryEnv`.

        Args:
            observation_space, action_space: the environment's spaces, of one row.
            victim, actor, within, when, reward, observe: as for :class:`adv_wrappers.AdversaryEnv`.
            env: the environment, single or a vector, whose dynamics an actor may change.

        Raises:
            AdvWrappersError: one of its kinds, for parts that do not fit together.
        """
        victim = load_victim(victim)
        fits(victim, observation_space, action_space)
        actor = as_actor(actor, victim)
        check_choice("observe", observe, OBSERVE, error=ThreatError)
        if not callable(reward):
            raise ThreatError(f"reward must be a function, got {reward!r:.80}")
        takes_induced_action(reward)
        field = Field(observation_space, None, "observation")
        if field.discrete:
            raise SpaceError(
                f"an adversary sees what the victim sees, and needs Box observations, got {observation_space}: "
                f"gymnasium.wrappers.FlattenObservation makes one-hot vectors, for a victim that was trained on those"
            )
        shape = field.shape if actor.on != "dynamics" else dynamics_beneath(env).places(actor.at).shape
        own_space = actor.action_space(shape)
        within, when = (decode(part, load_referenced) if isinstance(part, Mapping) else part for part in (within, when))
        when = parse_when(when) if isinstance(when, str) else when
        within = getattr(actor, "within", None) if within is None else within
        beneath_threat = None
        if not isinstance(actor, Hybrid) and actor.on == "dynamics":
            how = ActorPerturbation(actor, shape)
            beneath_threat = ThreatModel("dynamics", how, within, when, actor.at).against(victim)
        elif isinstance(actor, Hybrid) or actor.on == "action":
            part, reach = (actor.action, actor.reach) if isinstance(actor, Hybrid) else (actor, within)
            if reach is None and isinstance(action_space, spaces.Discrete):
                reach = Valid()
            beneath_threat = ThreatModel("action", ActorPerturbation(part, field.shape), reach, when).against(victim)
        if isinstance(actor, Hybrid) or actor.on == "observation":
            state = actor.state if isinstance(actor, Hybrid) else actor
            threat = ThreatModel("observation", ActorPerturbation(state, field.shape), within, when).against(victim)
        else:
            threat = ThreatModel("observation", Unperturbed(), Valid(), Never())
        seen = observation_space if observe == "state" else _extended(observation_space, victim, observe)
        return AdversaryConfig(victim, actor, threat, beneath_threat, seen, own_space, observe, reward)

    @property
    def on_actions(self) -> bool:
        """Whether the adversary perturbs actions alone."""
        return self.actor.on == "action"

    @property
    def beneath_alone(self) -> bool:
        """Whether the adversary perturbs actions, or the dynamics, and no observations."""
        return self.actor.on in ("action", "dynamics")

    @cached_property
    def _takes_induced_action(self) -> bool:
        return takes_induced_action(self.reward)

    def adversary_reward(self, reward: Any, induced_action: Any, **outcome: Any) -> Any:
        """The adversary's reward, of the shape of the victim's: a scalar, or ``[B]``.

        Args:
            reward: the victim's.
            induced_action: the action that the environment received.
            **outcome: what every reward function gets.

        Raises:
            ValueRangeError: for a reward that is no number, not finite, or of another shape.
        """
        own = self.reward(reward, **outcome, **self._induced(induced_action))
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

    def _induced(self, action: Any) -> dict[str, Any]:
        return {"induced_action": action} if self._takes_induced_action else {}

    def adversary_observation(self, runner: PolicyRunner, true: Any, spent: Counter) -> Any:
        """What the adversary observes at true observations ``[B, *S]``, after ``spent`` attacks in their episodes."""
        if self.observe == "state":
            return true
        # an adversary of actions alone observes the very action that it will perturb
        action = torch.from_numpy(np.asarray(runner.peek(true) if self.on_actions else runner.mode(true)))
        seen = append_actions(torch.from_numpy(np.array(true)), action, self.victim.action_space)
        return (append_spent(seen, spent) if self.observe == OBSERVE[2] else seen).numpy()


def _extended(space: Space, victim: Victim, observe: str) -> spaces.Box:
    """The space of observations with the victim's action appended, and the number of attacks."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or space.dtype.kind != "f":
        raise SpaceError(f"observe={observe!r} is for flat observations of floats, got {space}")
    acts = victim.action_space
    if isinstance(acts, spaces.Discrete):
        low, high = np.zeros(int(acts.n)), np.ones(int(acts.n))
    elif isinstance(acts, spaces.Box):  # unclipped: a victim's own action may lie outside its space
        low, high = np.full(acts.shape, -np.inf).ravel(), np.full(acts.shape, np.inf).ravel()
    else:
        raise SpaceError(f"observe={observe!r} takes one discrete action or continuous ones, got {acts}")
    if observe == OBSERVE[2]:
        low, high = np.append(low, 0), np.append(high, np.inf)
    low, high = np.concatenate([space.low, low]), np.concatenate([space.high, high])
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype.type)


def recorded_arguments(config: AdversaryConfig, quantize: bool) -> dict[str, Any]:
    """The arguments of :class:`adv_wrappers.AdversaryEnv` for a spec: as JSON, where they have such a form."""
    main = config.beneath_threat if config.beneath_alone else config.observation_threat
    assert main is not None
    victim, within, when = config.victim, main.budget, main.when
    arguments: dict[str, Any] = {"victim": victim.ref or victim, "actor": config.actor, "within": within, "when": when}
    if victim.ref and config.actor.victim in (None, victim):
        arguments |= {"actor": config.actor.to_dict(), "within": within.to_dict()}
        arguments["when"] = when.to_dict() if isinstance(when, When) else when
    if config.reward is not minus_reward:
        arguments["reward"] = config.reward
    if config.observe != "state":
        arguments["observe"] = config.observe
    if not quantize:
        arguments["quantize"] = False
    return arguments
