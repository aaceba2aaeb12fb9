"""What the three adversary environments share: their configuration, and the part of a step before the victim acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers.adversaries.actor import Actor, ActorPerturbation, ActorSpace, Unperturbed, check_actions
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import append_actions, append_spent
from adv_wrappers.adversaries.timed import Timed
from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.core.timing import Never
from adv_wrappers.core.types import Array, Counter, Flags, Leaves, Space
from adv_wrappers.core.value import Value, construct, decode
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from adv_wrappers.registry import OBSERVE
from adv_wrappers.threats.presets import parse_perturbation, parse_when
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.references import load_referenced
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward, takes_induced_action
from adv_wrappers.wrappers.layer import Layer, floated
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


class AdversaryLayer(Layer):
    """Mixin of the adversary environments: the adversary's action attacks the victim, which then acts.

    Attributes:
        config: the configuration.
        victim: the victim that acts.
        runner: acts for the victim.
    """

    config: AdversaryConfig
    victim: Victim
    runner: PolicyRunner
    quantize: bool
    _true: Any = None  # the newest true observation, which the adversary's next action perturbs

    def _set_up(self, beneath: Any, rows: int) -> None:
        """Set what all classes have; ``beneath`` is the layer on actions or the dynamics, where there is one."""
        self.victim, self.runner = self.config.victim, PolicyRunner(self.config.victim, rows)
        self._layer_beneath: Layer | None = None if self.config.beneath_threat is None else beneath
        engines = [layer.engine for layer in (self, self._layer_beneath) if layer is not None]
        self._acting_engines = [engine for engine in engines if engine.memory is not None]

    def set_budget(self, within: Budget) -> None:
        """Replace the budget, for curricula: that of what the actor perturbs; of a hybrid, that of the observations.

        It is the budget that ``within`` gave: a hybrid's actions keep their ``reach``. It holds from the adversary's
        next action on, and the recorded spec follows.

        Raises:
            BudgetError: for a budget that makes no sense on this space; the old one then stays.
        """
        if not self.config.beneath_alone:
            super().set_budget(within)
            self.config.observation_threat = self.whole_threat
            return
        assert self._layer_beneath is not None
        self._layer_beneath.set_budget(within)
        self.config.beneath_threat = self._layer_beneath.whole_threat

    def set_budget_share(self, share: float) -> None:
        """Use a share of the budget that :meth:`set_budget` replaces, from the adversary's next action on.

        Raises:
            ValueRangeError: for a share that is none.
            BudgetError: for a budget without a radius.
        """
        if not self.config.beneath_alone:
            super().set_budget_share(share)
            return
        assert self._layer_beneath is not None
        self._layer_beneath.set_budget_share(share)

    def _attack(self, actions: Any, rows: int, moved: Flags = True) -> Any:
        """What the victim observes under the adversary's actions ``[rows, *A]``, in the rows of ``moved``."""
        config = self.config
        leaves = _as_memory(actions, config.action_space, rows, config.actor.direction)
        for engine in self._acting_engines:
            engine.set_memory(leaves)
        return self.engine.observe(self._true if self.quantize else floated(self._true), moved)

    def _attacked(self) -> Flags:
        """Which rows were attacked, on observations or on actions; called once the victim has acted."""
        attacked = self.engine.attacked
        if self._layer_beneath is None:
            return attacked
        there = self._layer_beneath.engine.attacked
        if self.engine not in self._acting_engines:  # one of actions or dynamics alone spends its attacks there
            self.engine.count_attacks(there)
        return attacked | there

    @property
    def _induced_action(self) -> Any:
        """The action that the environment received last."""
        beneath = self._layer_beneath
        on_actions = beneath is not None and beneath.on == "action"
        return beneath.engine.sent if beneath is not None and on_actions else self.engine.sent

    def _final_observations(
        self, obs: Any, done: Array, final: Callable[[int], Any], spent: Counter
    ) -> dict[int, Array]:
        """Final observations by row, as the adversary observes them, before the rows begin their next episodes."""
        whole, rows = np.array(obs), np.flatnonzero(done).tolist()
        for row in rows:
            whole[row] = final(row)
        seen = self.config.adversary_observation(self.runner, whole, spent)
        return {row: seen[row] for row in rows}


def _as_memory(actions: Any, space: ActorSpace, rows: int, direction: bool) -> Leaves:
    """The adversary's actions ``[rows, *A]`` from outside as the actor's memory, int64 or float32.

    Raises:
        ValueRangeError: for anything but an array of numbers, and for what :func:`check_actions` refuses.
    """
    try:
        array = np.asarray(actions)
        given = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # a copy: the memory is ours
    except (TypeError, ValueError) as error:
        shape = (rows, *(space.shape or ()))
        raise ValueRangeError(f"expected actions of shape {shape}, numbers, got {actions!r:.80}") from error
    checked = check_actions(given, space, rows, direction)
    return {"action": checked.float() if checked.is_floating_point() else checked}


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
