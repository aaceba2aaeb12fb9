"""A layer around a Stable-Baselines3 ``VecEnv``: a class of its own, which always resets in the same step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import How, On, When
from adv_wrappers.core.spaces import MASK, At, mask_choices, side_by_side_mask, with_mask
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Info
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils import trees
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.dynamics_layer import DynamicsLayer
from adv_wrappers.wrappers.layer import GATES, Layer, counts, floated, gate, layers
from adv_wrappers.wrappers.reward_layer import RewardLayer


class VecLayer(Layer, VecEnvWrapper):
    """A layer around an SB3 ``VecEnv``. ``venv.seed(s)`` gives row i the seed s + i, at the next reset."""

    def __init__(
        self,
        venv: VecEnv,
        how: How | ThreatModel | str | dict[str, Any],
        within: Budget | None = None,
        when: When | str | None = None,
        at: At = None,
        *,
        victim: Victim | str | None = None,
        quantize: bool = True,
        keep_true: bool = False,
        eps: float | None = None,
        norm: str | None = None,
        scale: Any = None,
    ) -> None:
        if not isinstance(venv, VecEnv):
            raise SpaceError(f"expected an SB3 VecEnv, got {type(venv).__name__}")
        VecEnvWrapper.__init__(self, venv)
        threat = {"within": within, "when": when, "at": at, "eps": eps, "norm": norm, "scale": scale}
        self._install(
            venv,
            how,
            threat,
            victim,
            venv.num_envs,
            (venv.observation_space, venv.action_space),
            quantize,
            keep_true,
            autoreset="same step",
            from_zero=True,
        )
        if not quantize:
            self.observation_space = self.perturbed_space
        space = venv.observation_space
        self._masked = isinstance(space, spaces.Dict) and MASK in space.spaces
        self._choices = mask_choices(venv.action_space)
        self._masks: torch.Tensor | None = None

    def reset(self) -> Any:
        """Reset all rows."""
        obs, _ = self._restart()
        self.reset_infos = self._with_masks(obs, self._reset_infos_beneath())
        self._masks = _masks(self.reset_infos, self._choices)
        return self.engine.observe(self._received(obs))

    def _restart(self) -> tuple[Any, list[int | None]]:
        """Reset the environments and the engine: what the former return, and the seeds that they were given."""
        seeds = list(getattr(self.venv.unwrapped, "_seeds", [None] * self.num_envs))
        obs = self.venv.reset()
        self.engine.begin_episode(seeds)
        return obs, seeds

    def step_async(self, actions: Any) -> None:
        """Send the (perturbed) actions."""
        self.venv.step_async(self._send(actions, self._masks))

    def step_wait(self) -> Any:
        """Receive the (perturbed) observations."""
        obs, rewards, dones, infos = self.venv.step_wait()
        dones = np.asarray(dones, dtype=bool)  # SuperSuit's are integers
        rewards = self._pay(rewards)
        engine, infos = self.engine, self._end_step(obs, dones, list(infos))
        if self._masked or any(MASK in info for info in infos):
            fresh = self._with_masks(obs, self._reset_infos_beneath())
            self.reset_infos = [
                new if done else old for new, old, done in zip(fresh, self.reset_infos, dones, strict=True)
            ]
            going = self._with_masks(obs, infos)
            infos = [info if done else new for info, new, done in zip(infos, going, dones, strict=True)]
            # the last info of an episode is not about the first action of the next
            known = [self.reset_infos[i] if done else infos[i] for i, done in enumerate(dones)]
            self._masks = _masks(known, self._choices)
        obs = engine.observe(self._received(obs))
        attacked = np.broadcast_to(engine.attacked, (self.num_envs,))
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
        final = trees.copy(obs)
        for i in over:
            trees.put(final, i, infos[i]["terminal_observation"])
        final = self.engine.end_step(dones, self._received(final))
        for i in over:
            last = trees.like(trees.row(final, i), infos[i]["terminal_observation"])
            infos[i] = {**infos[i], "terminal_observation": last}
        return infos

    def _received(self, obs: Any) -> Any:
        """Observations as this layer takes them."""
        return obs if self.quantize or self.on != "observation" else floated(obs, self.engine.field.paths)

    def _reset_infos_beneath(self) -> list[Info]:
        """The infos of the newest resets, which SB3's own wrappers do not pass on, nor vectors of other libraries."""
        beneath = layers(self.venv)
        nearest: Any = beneath[-1] if beneath else self.venv.unwrapped
        return list(getattr(nearest, "reset_infos", ())) or [{} for _ in range(self.num_envs)]

    def _with_masks(self, obs: Any, infos: Sequence[Info]) -> list[Info]:
        """The infos of all rows, with the masks that lie in observations."""
        if not self._masked:
            return list(infos)
        return [with_mask({MASK: mask}, info) for mask, info in zip(obs[MASK], infos, strict=True)]


def _masks(infos: Sequence[Info], choices: tuple[int, ...]) -> torch.Tensor | None:
    if choices and infos and all(MASK in info for info in infos):
        return torch.as_tensor(np.stack([side_by_side_mask(info[MASK], choices) for info in infos]))
    return None


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
        gate(venv, p)
        below = counts(venv)
        self.beneath = {**below, GATES: below[GATES] + 1}

    def reset(self) -> Any:
        """Reset all rows."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Receive the observations."""
        return self.venv.step_wait()
