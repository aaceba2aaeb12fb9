"""The shell of a Stable-Baselines3 ``VecEnv``: its own class, which always resets in the same step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import How, On, When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils import trees
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.base import GATES, Layer, counts, floated
from adv_wrappers.wrappers.gate import gate


class VecLayer(Layer, VecEnvWrapper):
    """A layer around an SB3 ``VecEnv``. ``venv.seed(s)`` gives row i the seed s + i, at the next reset."""

    def __init__(
        self, venv: VecEnv, how: How | ThreatModel | str | dict[str, Any], within: Budget | None = None,
        when: When | str | None = None, at: str | tuple[str, ...] | None = None, *,
        victim: Victim | str | None = None, quantize: bool = True, keep_true: bool = False, eps: float | None = None,
        norm: str | None = None, scale: Any = None,
    ) -> None:  # fmt: skip
        if not isinstance(venv, VecEnv):
            raise SpaceError(f"expected an SB3 VecEnv, got {type(venv).__name__}")
        VecEnvWrapper.__init__(self, venv)
        self._install(
            venv,
            how,
            within,
            when,
            at,
            victim,
            venv.num_envs,
            quantize,
            keep_true,
            venv.observation_space,
            venv.action_space,
            ball={"eps": eps, "norm": norm, "scale": scale},
        )
        if not quantize:
            self.observation_space = self.perturbed_space
        self._struck: Any = False
        self._masks: Any = None

    def reset(self) -> Any:
        """Reset all rows."""
        obs, _ = self._restart()
        self._masks = _masks(self.reset_infos)
        obs, _ = self._observe(obs, True, False)
        self.engine.session.hand(self, obs)
        return obs

    def _restart(self) -> tuple[Any, list[int | None]]:
        """Reset the environments and the engine: what the former hand out, and the seeds that they were given."""
        seeds = list(getattr(self.venv.unwrapped, "_seeds", [None] * self.num_envs))
        obs = self.venv.reset()
        engine = self.engine
        engine.clock.reset(seeds)
        engine.forget()
        engine.session.reset()
        engine.session.due = False
        return obs, seeds

    def step_async(self, actions: Any) -> None:
        """Send the (perturbed) actions."""
        engine = self.engine
        if engine.session.listening:
            engine.session.begin(self)
        if self.on == "action":
            self._struck = engine.decide(actions)
            actions = engine.apply(actions, self._struck, mask=self._masks)
            engine.clock.pay(self._struck)
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """Receive the (perturbed) observations."""
        obs, rewards, dones, infos = self.venv.step_wait()
        dones = np.asarray(dones, dtype=bool)  # SuperSuit's are integers
        engine, struck = self.engine, self._struck
        if engine.session.listening:
            engine.session.answered()
        engine.clock.tick()
        infos = list(infos)
        if dones.any():
            # agents of one game may be done before it is over: those have no terminal observation
            over = [i for i in map(int, np.flatnonzero(dones)) if "terminal_observation" in infos[i]]
            if self.on == "observation" and over:
                final = trees.copy(obs)
                for i in over:
                    trees.put(final, i, infos[i]["terminal_observation"])
                final, _ = self._observe(final, dones, True)
                for i in over:
                    infos[i] = {**infos[i], "terminal_observation": trees.row(final, i)}
            engine.clock.turn(dones)
            engine.forget(dones)
            engine.session.reset(dones)
        self._masks = _masks(infos)
        if self.on == "observation":
            obs, struck = self._observe(obs, True, False)
        engine.session.hand(self, obs)
        each = np.broadcast_to(struck, (self.num_envs,))
        true = self._kept
        infos = [
            self._note(info, bool(each[i]), None if true is None else trees.row(true, i))
            for i, info in enumerate(infos)
        ]
        return obs, rewards, dones, infos

    def _observe(self, obs: Any, eligible: Any, final: bool) -> tuple[Any, Any]:
        if self.on == "action":
            return obs, False
        if not self.quantize:
            obs = floated(obs, self.threat.at)
        obs, struck = self.engine.observe(obs, eligible, final)
        if not final:
            self.engine.clock.pay(struck)
        return obs, struck


def _masks(infos: Any) -> torch.Tensor | None:
    if infos and all("action_mask" in info for info in infos):
        return torch.as_tensor(np.stack([info["action_mask"] for info in infos]))
    return None


class VecPerturbObservation(VecLayer):
    """:class:`adv_wrappers.PerturbObservation` for an SB3 ``VecEnv``."""

    on: ClassVar[On] = "observation"


class VecPerturbAction(VecLayer):
    """:class:`adv_wrappers.PerturbAction` for an SB3 ``VecEnv``."""

    on: ClassVar[On] = "action"


class VecProbabilisticTiming(VecEnvWrapper):
    """:class:`adv_wrappers.ProbabilisticTiming` for an SB3 ``VecEnv``."""

    def __init__(self, venv: VecEnv, p: float) -> None:
        VecEnvWrapper.__init__(self, venv)
        gate(venv, p)
        below = counts(venv)
        self.beneath = {**below, GATES: below[GATES] + 1}

    def reset(self) -> Any:
        """Reset all rows."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Receive the observations."""
        return self.venv.step_wait()
