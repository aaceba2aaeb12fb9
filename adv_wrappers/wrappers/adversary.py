"""The same game from the other chair: an environment whose agent is the adversary.

Its observation is the true one, its action a steer, its reward by default what the victim loses. Between them sit the
actor, the budget and the engine of every other layer, and the victim acts through the pilot that evaluations use; so an
adversary that was trained here does as a deployed perturbation exactly what it did here, for the same seed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adv_wrappers.adversaries.actor import Actor, Steered
from adv_wrappers.core.arrays import Field, fits
from adv_wrappers.core.errors import SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.core.perturbation import On, When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import Value, construct, decode
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.env import EnvLayer
from adv_wrappers.wrappers.pilot import Pilot
from adv_wrappers.wrappers.vector import VectorLayer

Reward = Callable[..., Any]


def minus_reward(reward: Any, **more: Any) -> Any:
    """What the victim earned, negated: the adversary's reward in the papers."""
    return -reward


def actor_of(actor: Actor | str | Mapping[str, Any], victim: Victim) -> Actor:
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
    if not isinstance(found, Actor):
        raise ThreatError(
            f"expected an actor such as SARL() or PAAD(victim), its name or dictionary, got {actor!r:.80}"
        )
    return found if found.victim is not None else replace(found, victim=victim)  # type: ignore[type-var]


def _threat(space: spaces.Space[Any], victim: Victim, actor: Any, within: Any, when: Any) -> tuple[ThreatModel, Any]:
    """The threat of an adversary's environment, and the space of its steers."""
    actor = actor_of(actor, victim)
    shape = Field(space, None, "observation").shape
    steers = actor.steer_space(shape)
    within, when = (decode(part) if isinstance(part, Mapping) else part for part in (within, when))
    return ThreatModel("observation", Steered(actor, shape), within, when).against(victim), steers


def _checked(steer: Any, space: spaces.Space[Any], rows: int) -> torch.Tensor:
    """Steers as a tensor ``[rows, *A]``, clipped to their box."""
    array = np.asarray(steer)
    if array.shape != (rows, *(space.shape or ())):
        raise ValueRangeError(f"expected steers of shape {(rows, *(space.shape or ()))}, got {array.shape}")
    if isinstance(space, spaces.Discrete):
        if array.dtype.kind not in "iu" or (array < 0).any() or (array >= space.n).any():
            raise ValueRangeError(f"expected whole numbers below {space.n} as steers, got {array!r:.80}")
        return torch.from_numpy(array.astype(np.int64))
    if not np.isfinite(array).all():
        raise ValueRangeError(f"expected finite steers, got {array!r:.80}")
    return torch.from_numpy(array.astype(np.float32).clip(-1.0, 1.0))


class VectorAdversaryEnv(VectorLayer):
    """:class:`AdversaryEnv` for a :class:`gymnasium.vector.VectorEnv` on the host, in its own autoreset mode."""

    on: ClassVar[On] = "observation"

    def __init__(
        self, env: VectorEnv[Any, Any, Any], victim: Victim | str, actor: Any, within: Any = None, when: Any = None, *,
        reward: Reward = minus_reward,
    ) -> None:  # fmt: skip
        victim = load_victim(victim)
        if not isinstance(env, VectorEnv):
            raise SpaceError(f"expected a gymnasium VectorEnv, got {type(env).__name__}")
        fits(victim, env.single_observation_space, env.single_action_space)
        threat, steers = _threat(env.single_observation_space, victim, actor, within, when)
        super().__init__(env, threat)
        self.victim, self.reward_of, self.steers = victim, reward, steers
        self.single_action_space, self.action_space = steers, batch_space(steers, env.num_envs)
        self.pilot = Pilot(victim, env.num_envs)
        self._true: Any = None
        self._earned = np.zeros(env.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all rows, or those of ``options["reset_mask"]``; true observations ``[B, *S]``."""
        engine, mask = self.engine, None
        if options and options.get("reset_mask") is not None:
            mask = np.array(options["reset_mask"], dtype=bool)
            options = {**options, "reset_mask": mask.copy()}
        seeds = engine.clock.check(seed, mask)
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if isinstance(obs, torch.Tensor):
            raise SpaceError("an adversary's environment is played on the host: this one hands out tensors")
        engine.clock.reset(None if seed is None else seeds, mask)
        self._begin(mask)
        self.pilot.reset(mask, None if seed is None else seeds)
        if mask is None:
            engine.session.due, self._finished = False, np.zeros(self.num_envs, bool)
        else:
            self._finished = self._finished & ~mask
        self._true = obs
        return obs, info

    def _begin(self, mask: Any) -> None:
        self.engine.forget(mask)
        self.engine.session.reset(mask)
        self._earned[... if mask is None else mask] = 0.0

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steers ``[B, *A]`` strike, the victim answers, and every row moves."""
        engine, mode = self.engine, self.mode
        assert engine.memory.leaves is not None
        dummy: Any = self._finished if mode == AutoresetMode.NEXT_STEP else False
        moved: Any = True if dummy is False else ~dummy
        engine.memory.leaves = {"steer": _checked(actions, self.steers, self.num_envs)}
        shown, struck = engine.observe(self._true, moved)
        engine.clock.pay(struck)
        engine.session.hand(self, shown)
        if engine.session.listening:
            engine.session.begin(self)
        obs, rewards, terminated, truncated, info = self.env.step(self.pilot.act(shown))
        engine.session.answered(None if dummy is False else moved)
        engine.clock.tick(moved)
        self._earned += rewards
        reward = self.reward_of(
            rewards, struck=self._rows(struck), terminated=terminated, truncated=truncated, return_=self._earned.copy(),
            spent=engine.clock.spent,
        )  # fmt: skip
        info = self._note(info, self._rows(struck), None)
        done = terminated | truncated
        if mode == AutoresetMode.NEXT_STEP:
            self._turned(dummy)
            self._finished = done
        elif mode == AutoresetMode.SAME_STEP:
            self._turned(done)
        self._true = obs
        return obs, reward, terminated, truncated, info

    def _turned(self, mask: Any) -> None:
        if mask.any():
            self.engine.clock.turn(mask)
            self._begin(mask)
            self.pilot.reset(mask)


class AdversaryEnv(EnvLayer):
    """The game from the adversary's chair, for any library to train in.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``; the shell that fits is returned.
        victim: who plays, a victim or its reference.
        actor: what turns a steer into a perturbation: ``SARL()``, ``PAAD()``, their names ``"sa-rl"`` and ``"pa-ad"``,
            or a dictionary.
        within: the budget.
        when: the timing; None strikes at every step.
        reward: ``(reward, *, struck, terminated, truncated, return_, spent)`` to the adversary's reward; by default
            minus the victim's. ``return_`` is what the victim earned in this episode, ``spent`` the strikes.

    Observations are the true ones, actions steers in the actor's space, out-of-range ones clipped.

    Raises:
        AdvWrappersError: one of its kinds, before anything is played.

    >>> import gymnasium as gym
    >>> env = AdversaryEnv(gym.make("CartPole-v1"), "zoo:cartpole-a2c", "pa-ad", Linf(0.05))
    >>> obs, info = env.reset(seed=0)
    >>> env.action_space, env.step(env.action_space.sample())[1]
    (Box(-1.0, 1.0, (1,), float32), -1.0)
    """

    on: ClassVar[On] = "observation"

    def __new__(cls, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return VectorAdversaryEnv(env, *args, **kwargs)
        return super().__new__(cls)

    def __init__(
        self, env: gym.Env[Any, Any], victim: Victim | str, actor: Any, within: Any = None, when: Any = None, *,
        reward: Reward = minus_reward,
    ) -> None:  # fmt: skip
        victim = load_victim(victim)
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env or VectorEnv, got {type(env).__name__}")
        fits(victim, env.observation_space, env.action_space)
        threat, steers = _threat(env.observation_space, victim, actor, within, when)
        self.victim, self.reward_of, self.steers = victim, reward, steers
        super().__init__(env, threat)
        self.action_space = steers
        self.pilot = Pilot(victim, 1)
        self._true: Any = None
        self._earned = 0.0

    def _record(self) -> None:
        how: Any = self.threat.how
        when = self.threat.when
        arguments: dict[str, Any] = {
            "victim": self.victim.ref or self.victim, "actor": how.actor, "within": self.threat.budget, "when": when,
        }  # fmt: skip
        if self.victim.ref and how.actor.victim in (None, self.victim):
            arguments |= {"actor": how.actor.to_dict(), "within": self.threat.budget.to_dict()}
            arguments["when"] = when.to_dict() if isinstance(when, When) else when
        if self.reward_of is not minus_reward:
            arguments["reward"] = self.reward_of
        self.__dict__.pop("_saved_kwargs", None)
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; the true observation."""
        engine = self.engine
        engine.clock.check(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        engine.clock.reset(seed)
        engine.forget()
        engine.session.reset()
        engine.session.due = False
        self.pilot.reset(seeds=None if seed is None else [seed])
        self._true, self._earned = obs, 0.0
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A steer strikes, the victim answers, and the game goes on."""
        engine = self.engine
        if self._true is None:
            raise VictimError("the victim has nothing to look at: call reset first")
        engine.memory.leaves = {"steer": _checked(np.asarray(action)[None], self.steers, 1)}
        shown, struck = engine.observe(self._true)
        if struck:
            engine.clock.pay(True)
        engine.session.hand(self, shown)
        if engine.session.listening:
            engine.session.begin(self)
        acted = self.pilot.act({k: v[None] for k, v in shown.items()} if isinstance(shown, dict) else shown[None])[0]
        obs, reward, terminated, truncated, info = self.env.step(acted)
        engine.session.answered()
        engine.clock.tick()
        self._earned += float(reward)
        own = self.reward_of(
            reward, struck=bool(struck), terminated=terminated, truncated=truncated, return_=self._earned,
            spent=engine.clock.spent,
        )  # fmt: skip
        self._true = obs
        return obs, own, terminated, truncated, self._note(info, bool(struck), None)


AdversaryEnv.__signature__ = inspect.signature(AdversaryEnv.__init__)  # type: ignore[attr-defined]
