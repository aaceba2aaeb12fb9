"""The adversary environment: the same game with the adversary as the agent, for single environments and vectors.

Between the adversary and the victim are the actor, the budget and the engine of every other layer, and the victim acts
through the policy runner that evaluations use. So an adversary does as a deployed perturbation exactly what it did
here, for the same seed. :mod:`adv_wrappers.wrappers.sb3_layers` has the class for Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.clock import row_seeds
from adv_wrappers.core.perturbation import On, When
from adv_wrappers.core.types import Array, Info
from adv_wrappers.environments.checked import checked_reset
from adv_wrappers.errors import SpaceError, VictimError
from adv_wrappers.utils import trees
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.adversary_config import (
    AdversaryConfig,
    AdversaryLayer,
    recorded_arguments,
)
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward
from adv_wrappers.wrappers.env_layer import EnvLayer
from adv_wrappers.wrappers.layer import ForAnyEnv
from adv_wrappers.wrappers.vector_layer import VectorLayer
from adv_wrappers.wrappers.wrap import wrap


class VectorAdversaryEnv(AdversaryLayer, VectorLayer):
    """:class:`AdversaryEnv` for a :class:`gymnasium.vector.VectorEnv` on the host, in its own autoreset mode."""

    on: ClassVar[On] = "observation"

    def __init__(
        self,
        env: VectorEnv[Any, Any, Array],
        victim: Victim | str,
        actor: Actor | Hybrid | str | Mapping[str, object],
        within: Budget | Info | None = None,
        when: When | str | None = None,
        *,
        reward: Reward = minus_reward,
        observe: str = "state",
        quantize: bool = True,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise SpaceError(f"expected a gymnasium VectorEnv, got {type(env).__name__}")
        self.config = config = AdversaryConfig.create(
            env.single_observation_space, env.single_action_space, victim, actor, within, when, reward, observe, env
        )
        rows = env.num_envs
        inner = env if config.beneath_threat is None else wrap(env, config.beneath_threat, victim=config.victim)
        super().__init__(inner, config.observation_threat, quantize=quantize)
        self._set_up(self.env, rows)
        self.single_observation_space, self.single_action_space = config.observation_space, config.action_space
        self.observation_space, self.action_space = (
            batch_space(space, rows) for space in (self.single_observation_space, self.single_action_space)
        )
        self._victim_returns, self._finished = np.zeros(rows), np.zeros(rows, bool)

    def reset(self, *, seed: int | list[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset all rows, or those of ``options["reset_mask"]``; returns what the adversary observes ``[B, *S]``."""
        mask, seeds, obs, info = self._reset(seed, options)
        self._victim_returns[... if mask is None else mask] = 0.0
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
        obs, rewards, terminated, truncated, info = self._answer(engine.act(self.runner.act(shown)))
        attacked = self._rows(self._attacked())
        self._victim_returns += rewards
        reward = self.config.adversary_reward(
            rewards,
            attacked=attacked,
            terminated=terminated,
            truncated=truncated,
            return_=self._victim_returns.copy(),
            spent=engine.spent,
            induced_action=self._induced_action,
        )
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
            self._victim_returns[mask] = 0.0
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
        observe: what the adversary observes. That is the true observation (``"state"``); that with the victim's action
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

    on: ClassVar[On] = "observation"

    of_vector = VectorAdversaryEnv
    of_vec_env = "VecAdversaryEnv"

    def __init__(
        self,
        env: Any,
        victim: Victim | str,
        actor: Actor | Hybrid | str | Mapping[str, object],
        within: Budget | Info | None = None,
        when: When | str | None = None,
        *,
        reward: Reward = minus_reward,
        observe: str = "state",
        quantize: bool = True,
    ) -> None:
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env or VectorEnv, or an SB3 VecEnv, got {type(env).__name__}")
        self.config = config = AdversaryConfig.create(
            env.observation_space, env.action_space, victim, actor, within, when, reward, observe, env
        )
        self._wrapped = env
        inner = env if config.beneath_threat is None else wrap(env, config.beneath_threat, victim=config.victim)
        super().__init__(inner, config.observation_threat, quantize=quantize)
        self._set_up(self.env, 1)
        self.observation_space, self.action_space = config.observation_space, config.action_space
        self._victim_returns = 0.0

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
        attacked = bool(self._attacked())
        self._victim_returns += float(reward)
        own = self.config.adversary_reward(
            reward,
            attacked=attacked,
            terminated=terminated,
            truncated=truncated,
            return_=self._victim_returns,
            spent=engine.spent,
            induced_action=self._induced_action,
        )
        info = self._note(info, bool(engine.attacked), None)
        engine.end_step(bool(terminated or truncated))
        self._true = obs
        return self._own_observation(obs), own, terminated, truncated, info
