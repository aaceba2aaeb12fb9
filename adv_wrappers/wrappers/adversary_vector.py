"""The adversary's chair in many games at once: all rows are attacked as one batch."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adv_wrappers.core.errors import SpaceError
from adv_wrappers.core.perturbation import On
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers import trees
from adv_wrappers.wrappers.action import VectorPerturbAction
from adv_wrappers.wrappers.chair import Chaired
from adv_wrappers.wrappers.seat import Reward, minus_reward, seat
from adv_wrappers.wrappers.vector import VectorLayer


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
        self._earned = np.zeros(rows)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all rows, or those of ``options["reset_mask"]``; what the adversary sees ``[B, *S]``."""
        engine, mask = self.engine, None
        if options and options.get("reset_mask") is not None:
            mask = np.array(options["reset_mask"], dtype=bool)
            options = {**options, "reset_mask": mask.copy()}
        seeds = engine.clock.check(seed, mask)
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if trees.device(obs) is not None:
            raise SpaceError("an adversary's environment is played on the host: this one hands out tensors")
        engine.clock.reset(None if seed is None else seeds, mask)
        self._begin(mask)
        self.pilot.reset(mask, None if seed is None else seeds)
        if mask is None:
            engine.session.due, self._finished = False, np.zeros(self.num_envs, bool)
        else:
            self._finished = self._finished & ~mask
        self._true = obs
        return self.seat.seen(self.pilot, obs), info

    def _begin(self, mask: Any) -> None:
        self.engine.forget(mask)
        self.engine.session.reset(mask)
        self._earned[... if mask is None else mask] = 0.0

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steers ``[B, *A]`` strike, the victim answers, and every row moves."""
        engine, mode = self.engine, self.mode
        dummy: Any = self._finished if mode == AutoresetMode.NEXT_STEP else False
        moved: Any = True if dummy is False else ~dummy
        shown, struck = self._strike(actions, self.num_envs, moved)
        obs, rewards, terminated, truncated, info = self.env.step(self.pilot.act(shown))
        engine.session.answered(None if dummy is False else moved)
        hit = self._rows(self._hit(struck))
        engine.clock.tick(moved)
        self._earned += rewards
        reward = self.seat.earned(
            rewards, struck=hit, terminated=terminated, truncated=truncated, return_=self._earned.copy(),
            spent=engine.clock.spent,
        )  # fmt: skip
        info = self._note(info, self._rows(struck), None)
        done = terminated | truncated
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
            self.engine.clock.turn(mask)
            self._begin(mask)
            self.pilot.reset(mask)
