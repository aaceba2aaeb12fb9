"""A layer around a Stable-Baselines3 ``VecEnv``: a class of its own, which always resets in the same step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from adv_wrappers.core.action_masks import MASK, mask_name, told_mask
from adv_wrappers.core.engine.clock import Seeds
from adv_wrappers.core.engine.engine import Wrapped
from adv_wrappers.core.spaces import leaf_at
from adv_wrappers.core.types import Flags, Info
from adv_wrappers.errors import OrderError, SpaceError
from adv_wrappers.utils import trees
from adv_wrappers.wrappers.adversary_env import AdversaryLayer
from adv_wrappers.wrappers.layer import EnvLayer, Layer, gate, layers, twin, wrappers_of
from adv_wrappers.wrappers.perturb_action import PerturbAction
from adv_wrappers.wrappers.perturb_dynamics import PerturbDynamics
from adv_wrappers.wrappers.perturb_observation import PerturbObservation
from adv_wrappers.wrappers.perturb_reward import PerturbReward


class VecLayer(Layer, VecEnvWrapper):
    """A layer around an SB3 ``VecEnv``. ``venv.seed(s)`` gives row i the seed s + i, at the next reset."""

    from_zero = True

    def _wrap(self, env: Any) -> Wrapped:
        if not isinstance(env, VecEnv):
            raise SpaceError(f"expected an SB3 VecEnv, got {type(env).__name__}")
        VecEnvWrapper.__init__(self, env)
        return Wrapped(env.observation_space, env.action_space, env.num_envs, "same step")

    def _installed(self, env: VecEnv) -> None:
        if self.on == "action" and env.has_attr("action_masks"):
            self._masks = partial(env.env_method, "action_masks")
        self._over = np.ones(self.num_envs, bool)  # rows whose newest observation is that of a reset

    def reset(self) -> Any:
        """Reset all rows."""
        seeds = list(getattr(self.venv.unwrapped, "_seeds", [None] * self.num_envs))
        obs = self.venv.reset()
        self._over = np.ones(self.num_envs, bool)
        self.reset_infos = self._reset_infos_beneath()
        obs, _ = self._begin(obs, list(self.reset_infos), None if all(seed is None for seed in seeds) else seeds)
        return obs

    def step_async(self, actions: Any) -> None:
        """Send the (perturbed) actions."""
        self.venv.step_async(self._send(actions))

    def step_wait(self) -> Any:
        """Receive the (perturbed) observations."""
        obs, rewards, dones, infos = self.venv.step_wait()
        self._over = np.asarray(dones, dtype=bool)  # SuperSuit's are integers
        truncated = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos]) & self._over
        obs, rewards, _, _, infos = self._step(obs, rewards, self._over & ~truncated, truncated, list(infos))
        return obs, rewards, self._over, infos

    def _last_observations(self, obs: Any, over: NDArray[np.bool_], info: list[Info]) -> Any:
        # agents of one game may be done before it is over: those have no terminal observation
        rows = _told(over, info)
        if not rows:
            return None
        batch = trees.copy(obs)
        for row in rows:
            trees.put(batch, row, info[row]["terminal_observation"])
        return batch

    def _with_last(self, info: list[Info], over: NDArray[np.bool_], last: Any) -> list[Info]:
        for row in _told(over, info):
            seen = trees.like(trees.row(last, row), info[row]["terminal_observation"])
            info[row] = {**info[row], "terminal_observation": seen}
        return info

    def _with_mask(self, obs: Any, info: list[Info]) -> list[Info]:
        """The masks of rows that were reset are in ``reset_infos``: the last info of an episode is about its end."""
        told = any(mask_name(one, self._choices) is not None for one in info)
        if self._mask_path is None and self._masks is None and not told:
            return info
        fresh, going = self._with_masks(obs, self._reset_infos_beneath()), self._with_masks(obs, info)
        rows = range(self.num_envs)
        self.reset_infos = [(fresh if self._over[row] else self.reset_infos)[row] for row in rows]
        return [(info if self._over[row] else going)[row] for row in rows]

    def _allowed(self, info: list[Info], mask: Any) -> torch.Tensor | None:
        known = [(self.reset_infos if over else info)[row] for row, over in enumerate(self._over)]
        found = [told_mask(one, self._choices) for one in known]
        return None if any(mask is None for mask in found) else torch.as_tensor(np.stack(found))

    def _rows(self, attacked: Flags) -> NDArray[np.bool_]:
        return np.array(np.broadcast_to(attacked, (self.num_envs,)))

    def _note(self, info: list[Info], attacked: NDArray[np.bool_], true: Any) -> list[Info]:
        """The layer's entry in the info of every row."""
        note = super()._note
        rows = enumerate(info)
        return [note(one, bool(attacked[i]), None if true is None else trees.row(true, i)) for i, one in rows]

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


def _told(over: NDArray[np.bool_], infos: Sequence[Info]) -> list[int]:
    """The rows that are done whose info has the last observation."""
    return [row for row in np.flatnonzero(over).tolist() if "terminal_observation" in infos[row]]


VecPerturbObservation = twin(PerturbObservation, "Vec", {EnvLayer: VecLayer}, __name__)
VecPerturbAction = twin(PerturbAction, "Vec", {EnvLayer: VecLayer}, __name__)
VecPerturbDynamics = twin(PerturbDynamics, "Vec", {EnvLayer: VecLayer}, __name__)
VecPerturbReward = twin(PerturbReward, "Vec", {EnvLayer: VecLayer}, __name__)


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

    def _begin(self, obs: Any, info: Any, seeds: Seeds = None, mask: Any = None) -> tuple[Any, Any]:
        self._returns = np.zeros(self.num_envs)  # of the adversary
        self._lengths = np.zeros(self.num_envs, np.int64)
        return super()._begin(obs, info, seeds, mask)

    def _pay(self, rewards: Any, *ends: Any) -> Any:
        own = super()._pay(rewards, *ends)
        self._returns += own
        self._lengths += 1
        return np.asarray(own, np.float32)

    def _end_step(self, obs: Any, over: Any, info: list[Info]) -> list[Info]:
        # statistics of the episodes that are over
        spent: Any = self.engine.spent
        for row in np.flatnonzero(over).tolist():
            ended = {
                "victim_return": float(self._victim_returns[row]),
                "attacks": int(spent[row]),
                "length": int(self._lengths[row]),
            }
            info[row] = {**info[row], "adversary_episode": ended}
            if "episode" in info[row]:  # a Monitor beneath counts what the victim earns
                info[row]["episode"] = {**info[row]["episode"], "r": float(self._returns[row])}
        self._returns[over] = 0.0
        self._lengths[over] = 0
        found: list[Info] = super()._end_step(obs, over, info)
        return found
