"""The same game from the other chair: an environment whose agent is the adversary."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv

from adv_wrappers.core.errors import SpaceError, VictimError
from adv_wrappers.core.perturbation import On, When
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.action import PerturbAction
from adv_wrappers.wrappers.adversary_vector import VectorAdversaryEnv as VectorAdversaryEnv
from adv_wrappers.wrappers.chair import Chaired
from adv_wrappers.wrappers.env import EnvLayer
from adv_wrappers.wrappers.layer import is_vec_env
from adv_wrappers.wrappers.seat import Reward, minus_reward, seat


class AdversaryEnv(Chaired, EnvLayer):
    """The game from the adversary's chair, for any library to train in.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; the shell that fits is returned.
        victim: who plays, a victim or its reference.
        actor: what turns a steer into a perturbation: ``SARL()``, ``PAAD()``, ``ActionPAAD()``, a ``Hybrid`` of two,
            one of the names ``"sa-rl"``, ``"pa-ad"`` and ``"pa-ad-action"``, or a dictionary.
        within: the budget, of the observations or, for an actor on actions, of these (discrete ones need none).
        when: the timing, as a value or a text; None strikes at every step. The layers of a hybrid draw apart.
        reward: ``(reward, *, struck, terminated, truncated, return_, spent)`` to the adversary's reward; by default
            minus the victim's. ``return_`` is what the victim earned in this episode, ``spent`` the strikes (of a
            hybrid those on observations).
        observe: what the adversary sees: the true observation (``"state"``), or beside it the victim's action there
            (``"state+action"``; discrete actions as one of n).
        quantize: False lets the victim see integer observations as float32, for budgets below one grey level.

    Actions are steers in the actor's space. One beyond [-1, 1] is drawn back as a whole where the actor reads a
    direction, and clipped number by number where it reads values (``SARL``, targets).

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

    def __new__(cls, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return VectorAdversaryEnv(env, *args, **kwargs)
        if is_vec_env(env):
            from adv_wrappers.wrappers.sb3_adversary import VecAdversaryEnv

            return VecAdversaryEnv(env, *args, **kwargs)
        return super().__new__(cls)

    def __init__(
        self, env: Any, victim: Victim | str, actor: Any, within: Any = None, when: Any = None, *,
        reward: Reward = minus_reward, observe: str = "state", quantize: bool = True,
    ) -> None:  # fmt: skip
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env or VectorEnv, or an SB3 VecEnv, got {type(env).__name__}")
        self.seat = seat(env.observation_space, env.action_space, victim, actor, within, when, reward, observe)
        self.under = env
        hand = self.seat.hand
        super().__init__(env if hand is None else PerturbAction(env, hand), self.seat.threat, quantize=quantize)
        self._sit(self.env, 1)
        self.observation_space, self.action_space = self.seat.space, self.seat.steers
        self._earned = 0.0

    def _record(self) -> None:
        here = self.seat
        main: Any = here.hand if here.alone else here.threat
        within, when = main.budget, main.when
        arguments: dict[str, Any] = {
            "victim": here.victim.ref or here.victim, "actor": here.actor, "within": within, "when": when,
        }  # fmt: skip
        if here.victim.ref and here.actor.victim in (None, here.victim):
            arguments |= {"actor": here.actor.to_dict(), "within": within.to_dict()}
            arguments["when"] = when.to_dict() if isinstance(when, When) else when
        if here.reward is not minus_reward:
            arguments["reward"] = here.reward
        if here.observe != "state":
            arguments["observe"] = here.observe
        if not self.quantize:
            arguments["quantize"] = False
        self.__dict__.pop("_saved_kwargs", None)
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this layer added: the layer of actions beneath is a part of it."""
        inner, self.env = self.env, self.under
        try:
            return super().spec
        finally:
            self.env = inner

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; what the adversary sees."""
        engine = self.engine
        engine.clock.check(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        engine.clock.reset(seed)
        engine.forget()
        engine.session.reset()
        engine.session.due = False
        self.pilot.reset(seeds=None if seed is None else [seed])
        self._true, self._earned = obs, 0.0
        return self._seen(obs), info

    def _seen(self, obs: Any) -> Any:
        return obs if self.seat.observe == "state" else self.seat.seen(self.pilot, obs[None])[0]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A steer strikes, the victim answers, and the game goes on."""
        engine = self.engine
        if self._true is None:
            raise VictimError("the victim has nothing to look at: call reset first")
        shown, struck = self._strike(np.asarray(action)[None], 1)
        acted = self.pilot.act({k: v[None] for k, v in shown.items()} if isinstance(shown, dict) else shown[None])[0]
        obs, reward, terminated, truncated, info = self.env.step(acted)
        engine.session.answered()
        hit = bool(self._hit(struck))
        engine.clock.tick()
        self._earned += float(reward)
        own = self.seat.earned(
            reward, struck=hit, terminated=terminated, truncated=truncated, return_=self._earned,
            spent=engine.clock.spent,
        )  # fmt: skip
        self._true = obs
        return self._seen(obs), own, terminated, truncated, self._note(info, bool(struck), None)


AdversaryEnv.__signature__ = inspect.signature(AdversaryEnv.__init__)  # type: ignore[attr-defined]
