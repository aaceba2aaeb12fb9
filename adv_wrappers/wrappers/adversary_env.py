"""The adversary environment: the same game with the adversary as the agent, for single environments and vectors.

Between the adversary and the victim are the actor, the budget and the engine of every other layer, and the victim acts
through the policy runner that evaluations use. So an adversary does as a deployed perturbation exactly what it did
here, for the same seed. :mod:`adv_wrappers.wrappers.sb3_layers` has the class for Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, SupportsFloat

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from adv_wrappers.adversaries.actor import Actor, ActorSpace, check_actions
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.clock import row_seeds
from adv_wrappers.core.perturbation import On, When
from adv_wrappers.core.types import Array, Counter, Flags, Info, Leaves, Space
from adv_wrappers.environments.checked import checked_reset
from adv_wrappers.errors import SpaceError, ValueRangeError, VictimError
from adv_wrappers.utils import trees
from adv_wrappers.victims import Victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.adversary_config import (
    AdversaryConfig,
    recorded_arguments,
)
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward
from adv_wrappers.wrappers.layer import EnvLayer, ForAnyEnv, Layer, VectorLayer, floated
from adv_wrappers.wrappers.wrap import wrap


class AdversaryLayer(Layer):
    """Mixin of the adversary environments: the adversary's action attacks the victim, which then acts.

    Attributes:
        config: the configuration.
        victim: the victim that acts.
        runner: acts for the victim.
    """

    on: ClassVar[On] = "observation"
    observation_space: Any
    action_space: Any

    def __init__(
        self,
        env: Any,
        victim: Victim | str,
        actor: Actor | Hybrid | str | Mapping[str, object],
        within: Budget | Info | None = None,
        when: When | Callable[..., Any] | str | None = None,
        *,
        reward: Reward = minus_reward,
        observe: str = "state",
        quantize: bool = True,
    ) -> None:
        wrapped = self._wrap(env)
        self.config = config = AdversaryConfig.create(
            wrapped.observation_space, wrapped.action_space, victim, actor, within, when, reward, observe, env
        )
        self._wrapped = env
        # an actor on actions or the dynamics attacks in a layer of its own, beneath
        beneath = None if config.beneath_threat is None else wrap(env, config.beneath_threat, victim=config.victim)
        super().__init__(env if beneath is None else beneath, config.observation_threat, quantize=quantize)
        self._layer_beneath: Layer | None = beneath
        engines = [self.engine] if beneath is None else [self.engine, beneath.engine]
        self._acting_engines = [engine for engine in engines if engine.memory is not None]
        self.victim: Victim = config.victim
        self.runner = PolicyRunner(config.victim, wrapped.rows or 1)
        self._show(config.observation_space, config.action_space)
        self._true: Any = None  # the newest true observation, which the adversary's next action perturbs
        self._victim_returns: Any = 0.0 if wrapped.rows is None else np.zeros(wrapped.rows)

    def _show(self, observation_space: Space, action_space: ActorSpace) -> None:
        """Take the adversary's spaces, of one row, in place of the environment's."""
        self.observation_space, self.action_space = observation_space, action_space

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

    def _rewarded(self, reward: Any, attacked: Flags, terminated: Flags, truncated: Flags) -> Any:
        """The adversary's reward for a step of which the victim has this one: a scalar, or ``[B]``."""
        self._victim_returns = self._victim_returns + np.asarray(reward, np.float64)
        return self.config.adversary_reward(
            reward,
            attacked=attacked,
            terminated=terminated,
            truncated=truncated,
            return_=self._victim_returns,
            spent=self.engine.spent,
            induced_action=self._induced_action,
        )

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


class VectorAdversaryEnv(AdversaryLayer, VectorLayer):
    """:class:`AdversaryEnv` for a :class:`gymnasium.vector.VectorEnv` on the host, in its own autoreset mode."""

    def _show(self, observation_space: Any, action_space: Any) -> None:
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, self.num_envs)
        self.action_space = batch_space(action_space, self.num_envs)
        self._finished = np.zeros(self.num_envs, bool)

    def reset(self, *, seed: int | list[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset all rows, or those of ``options["reset_mask"]``; returns what the adversary observes ``[B, *S]``."""
        mask, seeds, obs, info = self._reset(seed, options)
        self._victim_returns = np.where(True if mask is None else mask, 0.0, self._victim_returns)
        self.runner.reset(mask, seeds)
        self._finished = np.zeros(self.num_envs, bool) if mask is None else self._finished & ~mask
        self._true = obs
        return self.config.adversary_observation(self.runner, obs, self.engine.spent), info

    def _find_device(self, obs: Any) -> None:
        if trees.device(obs) is not None:
            raise SpaceError("an adversary's environment is played on the host: this one hands out tensors")

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        """Attack with the adversary's actions ``[B, *A]``, let the victim act, and step every row."""
        engine, mode = self.engine, self.mode
        dummy: Any = self._finished if mode == AutoresetMode.NEXT_STEP else False
        shown = self._attack(actions, self.num_envs, True if dummy is False else ~dummy)
        obs, rewards, terminated, truncated, info = self.env.step(engine.act(self.runner.act(shown)))
        reward = self._rewarded(rewards, self._rows(self._attacked()), terminated, truncated)
        spent: Any = engine.spent
        info, done = self._note(info, self._rows(engine.attacked), None), terminated | truncated
        engine.end_step(done)
        if mode == AutoresetMode.NEXT_STEP:
            self._begin_episodes(dummy)
            self._finished = done
        elif mode == AutoresetMode.SAME_STEP:
            if self.config.observe != "state" and info.get("final_obs") is not None:
                info = {**info, "final_obs": self._final_obs(info["final_obs"], obs, done, spent)}
            self._begin_episodes(done)
        self._true = obs
        seen = self.config.adversary_observation(self.runner, obs, engine.spent)
        return seen, reward, terminated, truncated, info

    def _final_obs(self, final: Array, obs: Any, done: Array, spent: Array) -> Array:
        """SAME_STEP's final observations, as the adversary observes them."""
        out = np.full(len(final), None, dtype=object)
        for row, seen in self._final_observations(obs, done, final.__getitem__, spent).items():
            out[row] = seen
        return out

    def _begin_episodes(self, mask: Array) -> None:
        if mask.any():
            self._victim_returns = np.where(mask, 0.0, self._victim_returns)
            self.runner.reset(mask)


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

    of_vector = VectorAdversaryEnv
    of_vec_env = "VecAdversaryEnv"

    @property
    def _saved_kwargs(self) -> dict[str, Any]:  # type: ignore[override]
        """The arguments that Gymnasium writes into the spec, made when it asks: budgets change."""
        return recorded_arguments(self.config, self.quantize)

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this layer added: the layer of actions beneath is a part of it."""
        inner, self.env = self.env, self._wrapped
        try:
            return super().spec
        finally:
            self.env = inner

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset; returns what the adversary observes."""
        row_seeds(seed)
        obs, info = checked_reset(self.env, seed, options)
        self.engine.begin_episode(seed)
        self.runner.reset(seeds=None if seed is None else [seed])
        self._true, self._victim_returns = obs, 0.0
        return self._own_observation(obs), info

    def _own_observation(self, obs: Any) -> Any:
        if self.config.observe == "state":
            return obs
        return self.config.adversary_observation(self.runner, obs[None], self.engine.spent)[0]

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, Info]:
        """Attack with the adversary's action, let the victim act, and step the environment."""
        engine = self.engine
        if self._true is None:
            raise VictimError("the victim has nothing to look at: call reset first")
        shown = self._attack(np.asarray(action)[None], 1)
        acted = self.runner.act({k: v[None] for k, v in shown.items()} if isinstance(shown, dict) else shown[None])[0]
        obs, reward, terminated, truncated, info = self._answer(engine.act(acted))
        own = self._rewarded(reward, bool(self._attacked()), terminated, truncated)
        info = self._note(info, bool(engine.attacked), None)
        engine.end_step(bool(terminated or truncated))
        self._true = obs
        return self._own_observation(obs), own, terminated, truncated, info
