"""The adversary environment for a Stable-Baselines3 ``VecEnv``, whose rows reset in the same step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from adv_wrappers.core.perturbation import On
from adv_wrappers.errors import OrderError, SpaceError
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.adversary_config import AdversaryConfig, AdversaryLayer
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward
from adv_wrappers.wrappers.layer import wrappers_of
from adv_wrappers.wrappers.sb3_layers import VecLayer
from adv_wrappers.wrappers.wrap import wrap


class VecAdversaryEnv(AdversaryLayer, VecLayer):
    """:class:`adv_wrappers.AdversaryEnv` for an SB3 ``VecEnv``: all rows are attacked as one batch.

    Put it around the bare environments (``DummyVecEnv``, ``SubprocVecEnv``), and ``VecNormalize`` around it: the victim
    sees raw observations. Where a Monitor writes ``info["episode"]``, its ``r`` becomes the adversary's return. At the
    end of an episode ``info["adversary_episode"]`` holds ``victim_return``, the number of ``attacks``, and ``length``.
    """

    on: ClassVar[On] = "observation"

    def __init__(
        self,
        venv: VecEnv,
        victim: Victim | str,
        actor: Any,
        within: Any = None,
        when: Any = None,
        *,
        reward: Reward = minus_reward,
        observe: str = "state",
        quantize: bool = True,
    ) -> None:
        if not isinstance(venv, VecEnv):
            raise SpaceError(f"expected an SB3 VecEnv, got {type(venv).__name__}")
        if any(type(each).__name__ == "VecNormalize" and each.norm_obs for each in wrappers_of(venv)):
            raise OrderError("VecNormalize goes around AdversaryEnv: the victim looks at raw observations")
        self.config = config = AdversaryConfig.create(
            venv.observation_space, venv.action_space, victim, actor, within, when, reward, observe, venv
        )
        inner = venv if config.beneath_threat is None else wrap(venv, config.beneath_threat, victim=config.victim)
        super().__init__(inner, config.observation_threat, quantize=quantize)
        self._set_up(self.venv, venv.num_envs)
        self.observation_space, self.action_space = config.observation_space, config.action_space
        self._victim_returns = np.zeros(venv.num_envs)
        self._returns = np.zeros(venv.num_envs)  # of the adversary
        self._lengths = np.zeros(venv.num_envs, np.int64)

    def reset(self) -> Any:
        """Reset all rows; returns what the adversary observes, ``[B, *S]``."""
        obs, seeds = self._restart()
        self.runner.reset(seeds=seeds if any(seed is not None for seed in seeds) else None)
        self._true = obs
        self._victim_returns[:] = self._returns[:] = 0.0
        self._lengths[:] = 0
        return self.config.adversary_observation(self.runner, obs, self.engine.spent)

    def step_async(self, actions: Any) -> None:
        """Attack with the adversary's actions ``[B, *A]``, and let the victim act."""
        shown = self._attack(actions, self.num_envs)
        self.venv.step_async(self.engine.act(self.runner.act(shown)))

    def step_wait(self) -> Any:
        """What the adversary observes, its rewards, ``done`` and one dictionary a row."""
        engine = self.engine
        obs, rewards, dones, infos = self.venv.step_wait()
        attacked = np.array(np.broadcast_to(self._attacked(), (self.num_envs,)))
        self._victim_returns += rewards
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos]) & dones
        own = self.config.adversary_reward(
            rewards,
            attacked=attacked,
            terminated=dones & ~cut,
            truncated=cut,
            return_=self._victim_returns.copy(),
            spent=engine.spent,
            induced_action=self._induced_action,
        )
        self._returns += own
        self._lengths += 1
        spent: Any = engine.spent
        each = np.broadcast_to(engine.attacked, (self.num_envs,))
        infos = [self._note(info, bool(each[i]), None) for i, info in enumerate(infos)]
        engine.end_step(dones)
        if dones.any():
            for row in np.flatnonzero(dones).tolist():
                infos[row]["adversary_episode"] = {
                    "victim_return": float(self._victim_returns[row]),
                    "attacks": int(spent[row]),
                    "length": int(self._lengths[row]),
                }
                if "episode" in infos[row]:  # a Monitor beneath counts what the victim earns
                    infos[row]["episode"] = {**infos[row]["episode"], "r": float(self._returns[row])}
            if self.config.observe != "state":
                for row, seen in self._final_observations(
                    obs, dones, lambda i: infos[i]["terminal_observation"], spent
                ).items():
                    infos[row]["terminal_observation"] = seen
            self.runner.reset(dones)
            self._victim_returns[dones] = self._returns[dones] = 0.0
            self._lengths[dones] = 0
        self._true = obs
        seen = self.config.adversary_observation(self.runner, obs, engine.spent)
        return seen, np.asarray(own, np.float32), dones, infos
