"""The adversary's chair around a Stable-Baselines3 ``VecEnv``, whose rows reset in the same step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from adv_wrappers.core.errors import OrderError, SpaceError
from adv_wrappers.core.perturbation import On
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.chair import Reward, minus_reward, seat, steers_of
from adv_wrappers.wrappers.layer import chain, floated
from adv_wrappers.wrappers.sb3 import VecLayer, VecPerturbAction


class VecAdversaryEnv(VecLayer):
    """:class:`adv_wrappers.AdversaryEnv` for an SB3 ``VecEnv``: all rows are attacked as one batch.

    Put it around the bare environments (``DummyVecEnv``, ``SubprocVecEnv``), and ``VecNormalize`` around it: the victim
    sees raw observations.
    """

    on: ClassVar[On] = "observation"

    def __init__(
        self, venv: VecEnv, victim: Victim | str, actor: Any, within: Any = None, when: Any = None, *,
        reward: Reward = minus_reward, observe: str = "state", quantize: bool = True,
    ) -> None:  # fmt: skip
        if not isinstance(venv, VecEnv):
            raise SpaceError(f"expected an SB3 VecEnv, got {type(venv).__name__}")
        if any(type(shell).__name__ == "VecNormalize" and shell.norm_obs for shell in chain(venv)):
            raise OrderError("VecNormalize goes around AdversaryEnv: the victim looks at raw observations")
        self.seat = seat(venv.observation_space, venv.action_space, victim, actor, within, when, reward, observe)
        hand, acts = self.seat.hand, self.seat.hand is not None
        super().__init__(venv if hand is None else VecPerturbAction(venv, hand), self.seat.threat, quantize=quantize)
        self.victim = self.seat.victim
        self.observation_space, self.action_space = self.seat.space, self.seat.steers
        self.pilot = self.seat.pilot(venv.num_envs)
        self._hand: Any = self.venv.engine if acts else None  # type: ignore[attr-defined]
        self._steered = [engine for engine in (self.engine, self._hand) if engine and engine.memory.leaves is not None]
        self._true: Any = None
        self._earned = np.zeros(venv.num_envs)

    def reset(self) -> Any:
        """Reset all rows; what the adversary sees, ``[B, *S]``."""
        seeds = list(getattr(self.venv.unwrapped, "_seeds", [None] * self.num_envs))
        obs = self.venv.reset()
        engine = self.engine
        engine.clock.reset(seeds)
        engine.forget()
        engine.session.reset()
        engine.session.due = False
        self.pilot.reset(seeds=seeds if any(seed is not None for seed in seeds) else None)
        self._true = obs
        self._earned[:] = 0.0
        return self.seat.seen(self.pilot, obs)

    def step_async(self, actions: Any) -> None:
        """Steers ``[B, *A]`` strike, and the victim answers."""
        engine = self.engine
        leaves = steers_of(actions, self.seat.steers, self.num_envs)
        for steered in self._steered:
            steered.memory.leaves = leaves
        shown, self._struck = engine.observe(self._true if self.quantize else floated(self._true, None))
        engine.clock.pay(self._struck)
        engine.session.hand(self, shown)
        if engine.session.listening:
            engine.session.begin(self)
        self.venv.step_async(self.pilot.act(shown))

    def step_wait(self) -> Any:
        """What the adversary sees, its rewards, ``done`` and a dictionary a row."""
        engine = self.engine
        obs, rewards, dones, infos = self.venv.step_wait()
        engine.session.answered()
        hit = np.array(np.broadcast_to(self._struck, (self.num_envs,)))
        if self._hand is not None:
            hit |= self._hand.struck
            if engine not in self._steered:  # what an adversary of actions spends
                engine.clock.pay(self._hand.struck)
        engine.clock.tick()
        self._earned += rewards
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos]) & dones
        own = self.seat.earned(
            rewards, struck=hit, terminated=dones & ~cut, truncated=cut, return_=self._earned.copy(),
            spent=engine.clock.spent,
        )  # fmt: skip
        each = np.broadcast_to(self._struck, (self.num_envs,))
        infos = [self._note(info, bool(each[i]), None) for i, info in enumerate(infos)]
        if dones.any():
            self._last(obs, dones, infos)
            engine.clock.turn(dones)
            engine.forget(dones)
            engine.session.reset(dones)
            self.pilot.reset(dones)
            self._earned[dones] = 0.0
        self._true = obs
        return self.seat.seen(self.pilot, obs), np.asarray(own, np.float32), dones, infos

    def _last(self, obs: Any, dones: Any, infos: list[dict[str, Any]]) -> None:
        """Last observations as the adversary sees them, before the rows turn to their next episode."""
        if self.seat.observe == "state":
            return
        whole = np.array(obs)
        for row in np.flatnonzero(dones).tolist():
            whole[row] = infos[row]["terminal_observation"]
        seen = self.seat.seen(self.pilot, whole)
        for row in np.flatnonzero(dones).tolist():
            infos[row]["terminal_observation"] = seen[row]
