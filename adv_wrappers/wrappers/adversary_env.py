"""What the three shells of the adversary's chair share: what a steer sets off.

Between the adversary and the victim sit the actor, the budget and the engine of every other layer, and the victim acts
through the pilot that evaluations use. So an adversary that was trained here does as a deployed perturbation exactly
what it did here, for the same seed.

The adversary's chair in many games at once: all rows are attacked as one batch.

The same game from the other chair: an environment whose agent is the adversary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adv_wrappers.adversaries.actor import Steers, check_steers
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.clock import row_seeds
from adv_wrappers.core.perturbation import On, When
from adv_wrappers.errors import SpaceError, ValueRangeError, VictimError
from adv_wrappers.utils import trees
from adv_wrappers.victims import Victim
from adv_wrappers.victims.runner import PolicyRunner
from adv_wrappers.wrappers.action import PerturbAction, VectorPerturbAction
from adv_wrappers.wrappers.adversary_config import Reward, Seat, minus_reward, seat
from adv_wrappers.wrappers.base import Layer, floated, is_vec_env
from adv_wrappers.wrappers.env import EnvLayer
from adv_wrappers.wrappers.vector import VectorLayer


class Chaired(Layer):
    """Mixin of the three shells: a steer strikes, and is accounted for."""

    seat: Seat
    pilot: PolicyRunner
    quantize: bool
    _true: Any = None

    def _sit(self, inner: Any, rows: int) -> None:
        """Take the seat; ``inner`` is the layer of actions beneath, where there is one."""
        self.victim, self.pilot = self.seat.victim, self.seat.pilot(rows)
        self._inner: Layer | None = None if self.seat.hand is None else inner
        engines = [layer.engine for layer in (self, self._inner) if layer is not None]
        self._steered = [engine for engine in engines if engine.memory is not None]

    def set_budget(self, within: Budget) -> None:
        """Replace the budget, for curricula: that of the actions for an actor on actions, else of the observations.

        It is the one that ``within`` gave: a hybrid's actions keep their ``reach``. It holds from the next steer on,
        and the recorded spec follows.

        Raises:
            BudgetError: for a budget that makes no sense on this space; the old one then stays.
        """
        if not self.seat.alone:
            super().set_budget(within)
            self.seat.threat = self.threat
            return
        assert self._inner is not None
        self._inner.set_budget(within)
        self.seat.hand = self._inner.threat

    def _attack(self, steers: Any, rows: int, moved: Any = True) -> Any:
        """What the victim is shown, attacked in the rows of ``moved``."""
        seat = self.seat
        engine, leaves = self.engine, steers_of(steers, seat.steers, rows, seat.actor.direction)
        for steered in self._steered:
            steered.set_memory(leaves)
        return engine.observe(self._true if self.quantize else floated(self._true, None), moved)

    def _attacked(self) -> Any:
        """Which rows were attacked at all, once the action has been: on observations or on actions."""
        attacked = self.engine.attacked
        if self._inner is None:
            return attacked
        hand = self._inner.engine.attacked
        if self.engine not in self._steered:  # what an adversary of actions spends
            self.engine.count_attacks(hand)
        return attacked | hand

    def _last_seen(self, obs: Any, done: Any, final: Callable[[int], Any]) -> dict[int, Any]:
        """Last observations by row, as the adversary sees them before the rows turn to their next episode."""
        whole, rows = np.array(obs), np.flatnonzero(done).tolist()
        for row in rows:
            whole[row] = final(row)
        seen = self.seat.seen(self.pilot, whole)
        return {row: seen[row] for row in rows}


def steers_of(steer: Any, space: Steers, rows: int, direction: bool = False) -> dict[str, torch.Tensor]:
    """Steers ``[rows, *A]`` from outside as an actor's memory, int64 or float32.

    Raises:
        ValueRangeError: for what is no array of numbers, and what ``check_steers`` refuses.
    """
    try:
        array = np.asarray(steer)
        given = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # a copy: the memory is ours
    except (TypeError, ValueError) as error:
        shape = (rows, *(space.shape or ()))
        raise ValueRangeError(f"expected steers of shape {shape}, numbers, got {steer!r:.80}") from error
    checked = check_steers(given, space, rows, direction)
    return {"steer": checked.float() if checked.is_floating_point() else checked}


class VectorAdversaryEnv(Chaired, VectorLayer):
    """:class:`AdversaryEnv` for a :class:`gymnasium.vector.VectorEnv` on the host, in its own autoreset mode."""

    on: ClassVar[On] = "observation"

    def __init__(
        self, env: VectorEnv[Any, Any, Any], victim: Victim | str, actor: Any, within: Any = None, when: Any = None, *,
        reward: Reward = minus_reward, observe: str = "state", quantize: bool = True,
    ) -> None:  # fmt: skip
        if not isinstance(env, VectorEnv):
            raise SpaceError(f"expected a gymnasium VectorEnv, got {type(env).__name__}")
        self.seat = seat(
            env.single_observation_space, env.single_action_space, victim, actor, within, when, reward, observe
        )
        rows, hand = env.num_envs, self.seat.hand
        super().__init__(env if hand is None else VectorPerturbAction(env, hand), self.seat.threat, quantize=quantize)
        self._sit(self.env, rows)
        self.single_observation_space, self.single_action_space = self.seat.space, self.seat.steers
        self.observation_space, self.action_space = (
            batch_space(space, rows) for space in (self.single_observation_space, self.single_action_space)
        )
        self._earned, self._finished = np.zeros(rows), np.zeros(rows, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all rows, or those of ``options["reset_mask"]``; what the adversary sees ``[B, *S]``."""
        mask, seeds, obs, info = self._reset(seed, options)
        self._earned[... if mask is None else mask] = 0.0
        self.pilot.reset(mask, seeds)
        self._finished = np.zeros(self.num_envs, bool) if mask is None else self._finished & ~mask
        self._true = obs
        return self.seat.seen(self.pilot, obs), info

    def _find_device(self, obs: Any) -> None:
        if trees.device(obs) is not None:
            raise SpaceError("an adversary's environment is played on the host: this one hands out tensors")

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steers ``[B, *A]`` attack, the victim answers, and every row moves."""
        engine, mode = self.engine, self.mode
        dummy: Any = self._finished if mode == AutoresetMode.NEXT_STEP else False
        shown = self._attack(actions, self.num_envs, True if dummy is False else ~dummy)
        obs, rewards, terminated, truncated, info = self.env.step(engine.act(self.pilot.act(shown)))
        attacked = self._rows(self._attacked())
        self._earned += rewards
        reward = self.seat.earned(
            rewards, attacked=attacked, terminated=terminated, truncated=truncated, return_=self._earned.copy(),
            spent=engine.spent,
        )  # fmt: skip
        info, done = self._note(info, self._rows(engine.attacked), None), terminated | truncated
        engine.end_step(done)
        if mode == AutoresetMode.NEXT_STEP:
            self._turned(dummy)
            self._finished = done
        elif mode == AutoresetMode.SAME_STEP:
            if self.seat.observe != "state" and info.get("final_obs") is not None:
                info = {**info, "final_obs": self._final(info["final_obs"], obs, done)}
            self._turned(done)
        self._true = obs
        return self.seat.seen(self.pilot, obs), reward, terminated, truncated, info

    def _final(self, final: Any, obs: Any, done: Any) -> Any:
        """SAME_STEP's last observations as the adversary sees them, before the rows turn to their next episode."""
        out = np.full(len(final), None, dtype=object)
        for row, seen in self._last_seen(obs, done, final.__getitem__).items():
            out[row] = seen
        return out

    def _turned(self, mask: Any) -> None:
        if mask.any():
            self._earned[mask] = 0.0
            self.pilot.reset(mask)


class AdversaryEnv(Chaired, EnvLayer):
    """The game from the adversary's chair, for any library to train in.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; the shell that fits is returned.
        victim: who plays, a victim or its reference.
        actor: what turns a steer into a perturbation: ``SARL()``, ``PAAD()``, ``ActionPAAD()``, a ``Hybrid`` of two,
            one of the names ``"sa-rl"``, ``"pa-ad"`` and ``"pa-ad-action"``, or a dictionary.
        within: the budget, of the observations or, for an actor on actions, of these (discrete ones need none).
        when: the timing, as a value or a text; None strikes at every step. The layers of a hybrid draw apart.
        reward: ``(reward, *, attacked, terminated, truncated, return_, spent)`` to the adversary's reward; by default
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
            from adv_wrappers.wrappers.sb3_adversary_env import VecAdversaryEnv

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

    @property
    def _saved_kwargs(self) -> dict[str, Any]:  # type: ignore[override]
        """The arguments that Gymnasium writes into the spec, made when it asks: budgets change."""
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
        return arguments

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
        row_seeds(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        self.engine.begin_episode(seed)
        self.pilot.reset(seeds=None if seed is None else [seed])
        self._true, self._earned = obs, 0.0
        return self._seen(obs), info

    def _seen(self, obs: Any) -> Any:
        return obs if self.seat.observe == "state" else self.seat.seen(self.pilot, obs[None])[0]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A steer attacks, the victim answers, and the game goes on."""
        engine = self.engine
        if self._true is None:
            raise VictimError("the victim has nothing to look at: call reset first")
        shown = self._attack(np.asarray(action)[None], 1)
        acted = self.pilot.act({k: v[None] for k, v in shown.items()} if isinstance(shown, dict) else shown[None])[0]
        obs, reward, terminated, truncated, info = self.env.step(engine.act(acted))
        attacked = bool(self._attacked())
        self._earned += float(reward)
        own = self.seat.earned(
            reward, attacked=attacked, terminated=terminated, truncated=truncated, return_=self._earned,
            spent=engine.spent,
        )  # fmt: skip
        info = self._note(info, bool(engine.attacked), None)
        engine.end_step(bool(terminated or truncated))
        self._true = obs
        return self._seen(obs), own, terminated, truncated, info


AdversaryEnv.__signature__ = inspect.signature(AdversaryEnv.__init__)  # type: ignore[attr-defined]
