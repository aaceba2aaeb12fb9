"""The adversary environment: the same game with the adversary as the agent, for single environments and vectors.

Between the adversary and the victim are the actor, the budget and the engine of every other layer, and the victim acts
through the policy runner that evaluations use. So an adversary does as a deployed perturbation exactly what it did
here, for the same seed. :mod:`adv_wrappers.wrappers.sb3_vec_env` has the class for Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers.adversaries.actor import ActionsFromOutside, Actor, ActorSpace, Unperturbed, check_actions
from adv_wrappers.adversaries.learned import append_actions, append_spent
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.engine.clock import Seeds
from adv_wrappers.core.perturbation import On, When
from adv_wrappers.core.serialization import decode
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.core.timing import Never
from adv_wrappers.core.types import Counter, Flags, Info, Leaves, Space
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.registry import OBSERVE
from adv_wrappers.threats.presets import as_actor, parse_when
from adv_wrappers.utils import trees
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.references import load_referenced
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward, takes_induced_action
from adv_wrappers.wrappers.layer import EnvLayer, ForAnyEnv, Layer, floated
from adv_wrappers.wrappers.perturb_dynamics import dynamics_beneath
from adv_wrappers.wrappers.wrap import wrap


class AdversaryLayer(Layer):
    """Mixin of the adversary environments: the adversary's action attacks the victim, which then acts.

    Attributes:
        victim: the victim that acts.
        actor: turns the adversary's action into a perturbation; its victim is filled in.
        runner: acts for the victim.
        observe: ``"state"``, ``"state+action"`` or ``"state+action+spent"``.
        reward: the adversary's reward function.
    """

    on: ClassVar[On] = "observation"
    observation_space: Any
    action_space: Any
    _spec_around: Any

    def __init__(
        self,
        env: Any,
        victim: Victim | str,
        actor: Actor | str | Mapping[str, object],
        within: Budget | Info | None = None,
        when: When | Callable[..., Any] | str | None = None,
        *,
        reward: Reward = minus_reward,
        observe: str = "state",
        quantize: bool = True,
    ) -> None:
        wrapped = self._wrap(env)
        observed: Space = wrapped.observation_space
        acted: Space = wrapped.action_space

        # both sides, checked before anything is wrapped
        self.victim: Victim = load_victim(victim)
        fits(self.victim, observed, acted)
        self.actor = as_actor(actor, self.victim)
        check_choice("observe", observe, OBSERVE, error=ThreatError)
        if not callable(reward):
            raise ThreatError(f"reward must be a function, got {reward!r:.80}")
        # what the adversary sees and does, and what its own layers are made of
        self.observe = observe
        self.reward = reward
        self._takes_induced_action = takes_induced_action(reward)
        field = Field(observed, None, "observation")
        if field.discrete:
            raise SpaceError(
                f"an adversary sees what the victim sees, and needs Box observations, got {observed}: "
                f"gymnasium.wrappers.FlattenObservation makes one-hot vectors, for a victim that was trained on those"
            )
        shape = field.shape if self.actor.on != "dynamics" else dynamics_beneath(env).places(self.actor.at).shape
        actions = self.actor.action_space(shape)
        if isinstance(within, Mapping):
            within = decode(within, load_referenced)
        if isinstance(when, Mapping):
            when = decode(when, load_referenced)
        within = self.actor.within if within is None else within
        when = parse_when(when) if isinstance(when, str) else when

        # an actor on actions or the dynamics attacks in a layer of its own, beneath
        threat, beneath = self._threats(within, when, shape, acted)
        self._spec_around = env
        self._layer_beneath: Layer | None = None if beneath is None else wrap(env, beneath, victim=self.victim)
        super().__init__(env if beneath is None else self._layer_beneath, threat, quantize=quantize)
        # the adversary's action is handed to the engines through their memory, and the victim acts by the runner of
        # evaluations
        engines = [self.engine] if self._layer_beneath is None else [self.engine, self._layer_beneath.engine]
        self._acting_engines = [engine for engine in engines if engine.memory is not None]
        self.runner = PolicyRunner(self.victim, wrapped.rows or 1)
        self._adversary_actions = actions
        self._show(observed if observe == "state" else _extended(observed, self.victim, observe), actions)
        self._true: Any = None  # the newest true observation, which the adversary's next action perturbs
        self._moved: Any = True  # rows that are not reset instead of moved by it
        # the victim is not told of action masks
        self._mask_path = None
        self._masks = None
        self._choices = ()
        self._victim_returns: Any = 0.0 if wrapped.rows is None else np.zeros(wrapped.rows)

    def _threats(
        self, within: Any, when: Any, shape: tuple[int, ...], action_space: Space
    ) -> tuple[ThreatModel, ThreatModel | None]:
        """The threat to the observations, and that to the actions or the dynamics, of which a layer beneath is made."""
        threats: dict[On, ThreatModel] = {"observation": ThreatModel("observation", Unperturbed(), Valid(), Never())}
        for on, (actor, own) in self.actor.parts.items():
            reach = own or within
            if reach is None and on == "action" and isinstance(action_space, spaces.Discrete):
                reach = Valid()
            threats[on] = ThreatModel(on, ActionsFromOutside(actor, shape), reach, when).against(self.victim)
        observed = threats.pop("observation")
        # a layer beneath, on the actions or the dynamics
        return observed, next(iter(threats.values()), None)

    @property
    def _acting_layer(self) -> Layer:
        """The layer whose budget ``within`` is: the one beneath for an adversary that perturbs no observations."""
        return self if self.actor.on == "observation" or self._layer_beneath is None else self._layer_beneath

    def set_budget(self, within: Budget) -> None:
        """Replace the budget, for curricula: that of what the actor perturbs; of a hybrid, that of the observations.

        It is the budget that ``within`` gave: a hybrid's actions keep their ``reach``. It holds from the adversary's
        next action on, and the recorded spec follows.

        Raises:
            BudgetError: for a budget that makes no sense on this space; the old one then stays.
        """
        Layer.set_budget(self._acting_layer, within)

    def set_budget_share(self, share: float) -> None:
        """Use a share of the budget that :meth:`set_budget` replaces, from the adversary's next action on.

        Raises:
            ValueRangeError: for a share that is none.
            BudgetError: for a budget without a radius.
        """
        Layer.set_budget_share(self._acting_layer, share)

    # a reset and a step

    def _begin(self, obs: Any, info: Any, seeds: Seeds = None, mask: Any = None) -> tuple[Any, Any]:
        """What a reset returned, as the adversary gets it.

        Raises:
            SpaceError: for observations that are tensors.
        """
        engine = self.engine
        if engine.batched and trees.device(obs) is not None:
            raise SpaceError("an adversary's environment is played on the host: this one hands out tensors")
        engine.begin_episode(seeds, mask)
        self._begin_episodes(mask, seeds if engine.batched or seeds is None else [seeds])
        if engine.autoreset == "next step":
            self._moved = np.ones(self.runner.rows, bool) if mask is None else self._moved | mask
        return self._see(obs), info

    def _send(self, action: Any) -> Any:
        """Attack with the adversary's action, or actions ``[B, *A]``: what the victim then does, as it is sent."""
        if self._true is None:
            raise VictimError("the victim has nothing to look at: call reset first")
        engine, runner = self.engine, self.runner
        actions = action if engine.batched else np.asarray(action)[None]
        leaves = _as_memory(actions, self._adversary_actions, runner.rows, self.actor.direction)
        # the actor finds the adversary's action in the engine's memory
        for acting in self._acting_engines:
            acting.set_memory(leaves)
        shown = engine.observe(self._true if self.quantize else floated(self._true), self._moved)
        return engine.act(runner.act(shown) if engine.batched else runner.act_one(shown))

    def _pay(self, rewards: Any, *ends: Any) -> Any:
        """The adversary's reward for a step of which the victim has this one: a scalar, or ``[B]``.

        Raises:
            ValueRangeError: for a reward that is no number, not finite, or of another shape.
        """
        self._victim_returns = self._victim_returns + np.asarray(rewards, np.float64)
        attacked, (terminated, truncated) = self._rows(self._attacked()), ends
        more = {"induced_action": self._induced_action} if self._takes_induced_action else {}
        # what the reward function is told, and then whether it has answered with one finite number a row
        own = self.reward(
            rewards,
            attacked=attacked,
            terminated=terminated,
            truncated=truncated,
            return_=self._victim_returns,
            spent=self.engine.spent,
            **more,
        )
        expected, got = tuple(np.shape(rewards)), None
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

    def _end_step(self, obs: Any, over: Any, info: Any) -> Any:
        """End the engine's step, and begin the next episodes; last observations are as the adversary sees them."""
        engine = self.engine
        spent: Any = engine.spent
        engine.end_step(over)
        if engine.autoreset == "disabled":
            return info
        turned = over
        # rows that were reset instead of stepped begin their episode now
        if engine.autoreset == "next step":
            turned = ~self._moved
            self._moved = ~over
        elif self.observe != "state" and (last := self._last_observations(obs, over, info)) is not None:
            info = self._with_last(info, over, self._seen(last, spent))
        if turned.any():
            self._begin_episodes(turned)
        return info

    def _receive(self, obs: Any, info: Any, mask: Any = None) -> tuple[Any, Any]:
        """What the environment returned, as the adversary gets it."""
        return self._see(obs), self._note(info, self._rows(self.engine.attacked), None)

    def _begin_episodes(self, mask: Any = None, seeds: Any = None) -> None:
        """The victim's returns, and its state and draws, begin anew in the rows of a mask; None for all."""
        self._victim_returns = np.where(True if mask is None else mask, 0.0, self._victim_returns)
        self.runner.reset(mask, seeds)

    def _see(self, obs: Any) -> Any:
        """What the adversary observes of the newest true observations, which its next action perturbs."""
        self._true = obs
        if self.observe == "state" or self.engine.batched:
            return self._seen(obs, self.engine.spent)
        return self._seen(obs[None], self.engine.spent)[0]

    def _seen(self, true: Any, spent: Counter) -> Any:
        """What the adversary observes at true observations ``[B, *S]``, after ``spent`` attacks in their episodes."""
        if self.observe == "state":
            return true
        # an adversary of actions alone observes the very action that it will perturb
        action = self.runner.peek(true) if self.actor.on == "action" else self.runner.mode(true)
        seen = append_actions(
            torch.from_numpy(np.array(true)), torch.from_numpy(np.asarray(action)), self.victim.action_space
        )
        return (append_spent(seen, spent) if self.observe == OBSERVE[2] else seen).numpy()

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


def _extended(space: Space, victim: Victim, observe: str) -> spaces.Box:
    """The space of observations with the victim's action appended, and the number of attacks."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or space.dtype.kind != "f":
        raise SpaceError(f"observe={observe!r} is for flat observations of floats, got {space}")
    # an action as the director sees it: one-hot, or the numbers of a continuous one
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


class AdversaryEnv(ForAnyEnv, AdversaryLayer, EnvLayer):
    """The game from the adversary's side, for any library to train an adversary in.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; the class that fits is returned.
        victim: the victim that acts, or its reference.
        actor: turns the adversary's action into a perturbation: ``SARL()``, ``PAAD()``, ``ActionPAAD()``, a ``Hybrid``
            of two, ``Forces()`` on the dynamics, ``Timed(how)`` or ``Induce()``, which may decline a step; one of the
            names ``"sa-rl"``, ``"pa-ad"``, ``"pa-ad-action"``, ``"induce"``, ``"forces"``, or a text such as
            ``"timed:max-diff"``; or a dictionary.
        within: the budget, of the observations or, for an actor on actions or the dynamics, of these (discrete actions
            need none).
        when: the timing, as a value or a text; None attacks at every step. The layers of a hybrid draw separately.
        reward: ``(reward, *, attacked, terminated, truncated, return_, spent)`` to the adversary's reward; by default
            minus the victim's. ``return_`` is the victim's return so far, ``spent`` the number of attacks in this
            episode (of a hybrid those on observations). A function that takes ``induced_action`` too gets the action
            that the environment received. :class:`adv_wrappers.wrappers.adversary_rewards.PerturbationCost` makes
            attacks cost something.
        observe: what the adversary observes: the true observation (``"state"``); that with the victim's action
            appended (``"state+action"``; discrete actions one-hot); or also the number of attacks of the episode so far
            (``"state+action+spent"``), on which the game depends where a budget limits it.
        quantize: as for :func:`adv_wrappers.evaluate`.

    The adversary's actions are in the actor's action space. One beyond [-1, 1] is scaled back as a whole where the
    actor takes a direction, and clipped number by number where it takes values (``SARL``, targets).

    Raises:
        AdvWrappersError: one of its kinds, before anything is played.

    >>> import gymnasium as gym
    >>> from adv_wrappers import Linf
    >>> env = AdversaryEnv(gym.make("CartPole-v1"), "zoo:cartpole-a2c", "pa-ad", Linf(0.05))
    >>> obs, info = env.reset(seed=0)
    >>> env.action_space, env.step(env.action_space.sample())[1]
    (Box(-1.0, 1.0, (1,), float32), -1.0)
    """

    @property
    def _saved_kwargs(self) -> dict[str, Any]:  # type: ignore[override]
        """The arguments that Gymnasium writes into the spec, made when it asks: budgets change."""
        threat = self._acting_layer.whole_threat
        victim = self.victim
        actor = self.actor
        within, when = threat.budget, threat.when
        arguments: dict[str, Any] = {"victim": victim.ref or victim, "actor": actor, "within": within, "when": when}
        if victim.ref and actor.victim in (None, victim):  # as JSON, where they have such a form
            arguments |= {"actor": actor.to_dict(), "within": within.to_dict()}
            arguments["when"] = when.to_dict() if isinstance(when, When) else when
        # arguments at their defaults are left out
        if self.reward is not minus_reward:
            arguments["reward"] = self.reward
        if self.observe != "state":
            arguments["observe"] = self.observe
        return arguments if self.quantize else {**arguments, "quantize": False}


VectorAdversaryEnv = AdversaryEnv.of_vector
