"""A layer around a Stable-Baselines3 ``VecEnv``: a class of its own, which always resets in the same step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from adv_wrappers.core.perturbation import On
from adv_wrappers.core.spaces import MASK, as_mask, leaf_at, mask_name, side_by_side_mask
from adv_wrappers.core.types import Flags, Info
from adv_wrappers.errors import OrderError, SpaceError
from adv_wrappers.utils import trees
from adv_wrappers.wrappers.adversary_env import AdversaryLayer
from adv_wrappers.wrappers.layer import Layer, Wrapped, gate, layers, wrappers_of
from adv_wrappers.wrappers.perturb_dynamics import DynamicsLayer
from adv_wrappers.wrappers.perturb_reward import RewardLayer


class VecLayer(Layer, VecEnvWrapper):
    """A layer around an SB3 ``VecEnv``. ``venv.seed(s)`` gives row i the seed s + i, at the next reset."""

    def _wrap(self, env: Any) -> Wrapped:
        if not isinstance(env, VecEnv):
            raise SpaceError(f"expected an SB3 VecEnv, got {type(env).__name__}")
        VecEnvWrapper.__init__(self, env)
        return Wrapped(env.observation_space, env.action_space, env.num_envs, "same step", from_zero=True)

    def _installed(self, env: VecEnv) -> None:
        if not self.quantize:
            self.observation_space = self.perturbed_space
        if self.on == "action" and env.has_attr("action_masks"):
            self._masks = partial(env.env_method, "action_masks")

    def reset(self) -> Any:
        """Reset all rows."""
        obs, _ = self._restart()
        self.reset_infos = self._with_masks(obs, self._reset_infos_beneath())
        self._action_mask = _masks(self.reset_infos, self._choices)
        return self.engine.observe(self._received(obs))

    def _restart(self) -> tuple[Any, list[int | None]]:
        """Reset the environments and the engine: what the former return, and the seeds that they were given."""
        seeds = list(getattr(self.venv.unwrapped, "_seeds", [None] * self.num_envs))
        obs = self.venv.reset()
        self.engine.begin_episode(seeds)
        return obs, seeds

    def step_async(self, actions: Any) -> None:
        """Send the (perturbed) actions."""
        self.venv.step_async(self._send(actions, self._action_mask))

    def step_wait(self) -> Any:
        """Receive the (perturbed) observations."""
        obs, rewards, dones, infos = self.venv.step_wait()
        dones = np.asarray(dones, dtype=bool)  # SuperSuit's are integers
        rewards = self._pay(rewards)
        engine, infos = self.engine, self._end_step(obs, dones, list(infos))
        # action masks of the newest observations, which in a row that is done are those of the reset
        told = any(mask_name(info, self._choices) is not None for info in infos)
        if self._mask_path is not None or self._masks is not None or told:
            fresh = self._with_masks(obs, self._reset_infos_beneath())
            self.reset_infos = [
                new if done else old for new, old, done in zip(fresh, self.reset_infos, dones, strict=True)
            ]
            going = self._with_masks(obs, infos)
            infos = [info if done else new for info, new, done in zip(infos, going, dones, strict=True)]
            # the last info of an episode is not about the first action of the next
            known = [self.reset_infos[i] if done else infos[i] for i, done in enumerate(dones)]
            self._action_mask = _masks(known, self._choices)
        # the layer's entry in the info of every row
        obs = engine.observe(self._received(obs))
        attacked = self._rows(engine.attacked)
        true = engine.true if self.keep_true else None
        infos = [
            self._note(info, bool(attacked[i]), None if true is None else trees.row(true, i))
            for i, info in enumerate(infos)
        ]
        return obs, rewards, dones, infos

    def _end_step(self, obs: Any, dones: NDArray[np.bool_], infos: list[Info]) -> list[Info]:
        """End the engine's step; dictionaries with the last observations as the next layer or the agent gets them."""
        # agents of one game may be done before it is over: those have no terminal observation
        over = [i for i in np.flatnonzero(dones).tolist() if "terminal_observation" in infos[i]]
        if not over or self.on != "observation":
            self.engine.end_step(dones)
            return infos
        # the last observations of rows that are done, attacked as the others are
        final = trees.copy(obs)
        for i in over:
            trees.put(final, i, infos[i]["terminal_observation"])
        final = self.engine.end_step(dones, self._received(final))
        for i in over:
            last = trees.like(trees.row(final, i), infos[i]["terminal_observation"])
            infos[i] = {**infos[i], "terminal_observation": last}
        return infos

    def _rows(self, attacked: Flags) -> NDArray[np.bool_]:
        return np.array(np.broadcast_to(attacked, (self.num_envs,)))

    def _reset_infos_beneath(self) -> list[Info]:
        """The infos of the newest resets, which SB3's own wrappers do not pass on, nor vectors of other libraries."""
        beneath = layers(self.venv)
        nearest: Any = beneath[-1] if beneath else self.venv.unwrapped
        return list(getattr(nearest, "reset_infos", ())) or [{} for _ in range(self.num_envs)]

    def _with_masks(self, obs: Any, infos: Sequence[Info]) -> list[Info]:
        """The infos of all rows, with the masks that lie in observations."""
        if self._mask_path is None and self._masks is None:
            return list(infos)
        masks = self._masks() if self._masks is not None else leaf_at(obs, self._mask_path or ())
        return [{MASK: mask, **info} for mask, info in zip(masks, infos, strict=True)]


def _masks(infos: Sequence[Info], choices: tuple[int, ...]) -> torch.Tensor | None:
    found = []
    for info in infos:
        name = mask_name(info, choices)
        if name is None:
            return None
        mask = info[name]
        found.append(side_by_side_mask(mask, choices) if name == MASK else as_mask(mask, choices, name))
    if not found:
        return None
    return torch.as_tensor(np.stack(found))


class VecPerturbObservation(VecLayer):
    """:class:`adv_wrappers.PerturbObservation` for an SB3 ``VecEnv``."""

    on: ClassVar[On] = "observation"


class VecPerturbAction(VecLayer):
    """:class:`adv_wrappers.PerturbAction` for an SB3 ``VecEnv``."""

    on: ClassVar[On] = "action"


class VecPerturbDynamics(DynamicsLayer, VecLayer):
    """:class:`adv_wrappers.PerturbDynamics` for an SB3 ``VecEnv`` whose environments are in this process."""


class VecPerturbReward(RewardLayer, VecLayer):
    """:class:`adv_wrappers.PerturbReward` for an SB3 ``VecEnv``."""


class VecProbabilisticTiming(VecEnvWrapper):
    """:class:`adv_wrappers.ProbabilisticTiming` for an SB3 ``VecEnv``."""

    def __init__(self, venv: VecEnv, p: float) -> None:
        VecEnvWrapper.__init__(self, venv)
        self.beneath = gate(venv, p)

    def reset(self) -> Any:
        """Reset all rows."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Receive the observations."""
        return self.venv.step_wait()


class VecAdversaryEnv(AdversaryLayer, VecLayer):
    """:class:`adv_wrappers.AdversaryEnv` for an SB3 ``VecEnv``: all rows are attacked as one batch.

    Put it around the bare environments (``DummyVecEnv``, ``SubprocVecEnv``), and ``VecNormalize`` around it: the victim
    sees raw observations. Where a Monitor writes ``info["episode"]``, its ``r`` becomes the adversary's return. At the
    end of an episode ``info["adversary_episode"]`` holds ``victim_return``, the number of ``attacks``, and ``length``.
    """

    def _wrap(self, env: Any) -> Wrapped:
        wrapped = super()._wrap(env)
        if any(type(each).__name__ == "VecNormalize" and each.norm_obs for each in wrappers_of(env)):
            raise OrderError("VecNormalize goes around AdversaryEnv: the victim looks at raw observations")
        return wrapped

    def reset(self) -> Any:
        """Reset all rows; returns what the adversary observes, ``[B, *S]``."""
        obs, seeds = self._restart()
        self._begin_episodes(seeds=seeds if any(seed is not None for seed in seeds) else None)
        self._returns = np.zeros(self.num_envs)  # of the adversary
        self._lengths = np.zeros(self.num_envs, np.int64)
        return self._see(obs)

    def step_wait(self) -> Any:
        """What the adversary observes, its rewards, ``done`` and one dictionary a row."""
        engine = self.engine
        obs, rewards, dones, infos = self.venv.step_wait()
        # the adversary's reward knows episodes that were cut off from those that ended
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos]) & dones
        own = self._pay(rewards, dones & ~cut, cut)
        self._returns += own
        self._lengths += 1
        spent: Any = engine.spent
        each = self._rows(engine.attacked)
        infos = [self._note(info, bool(each[i]), None) for i, info in enumerate(infos)]
        engine.end_step(dones)
        # statistics of the episodes that are over, and their last observations as the adversary sees them
        if dones.any():
            for row in np.flatnonzero(dones).tolist():
                infos[row]["adversary_episode"] = {
                    "victim_return": float(self._victim_returns[row]),
                    "attacks": int(spent[row]),
                    "length": int(self._lengths[row]),
                }
                if "episode" in infos[row]:  # a Monitor beneath counts what the victim earns
                    infos[row]["episode"] = {**infos[row]["episode"], "r": float(self._returns[row])}
            if self.observe != "state":
                for row, seen in self._final_observations(
                    obs, dones, lambda i: infos[i]["terminal_observation"], spent
                ).items():
                    infos[row]["terminal_observation"] = seen
            self._begin_episodes(dones)
            self._returns[dones] = 0.0
            self._lengths[dones] = 0
        return self._see(obs), np.asarray(own, np.float32), dones, infos
