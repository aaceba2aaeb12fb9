"""A layer around a Gymnasium vector environment, in every autoreset mode, on the host or on a device."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from adv_wrappers.core.clock import Seeds, row_seeds
from adv_wrappers.core.engine import Autoreset
from adv_wrappers.core.spaces import MASK, side_by_side_mask, with_mask
from adv_wrappers.core.types import Array, Batch, Flags, Info
from adv_wrappers.environments.checked import CHECKED_STEPS, check_step_of_vector, checked_reset_of_vector
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils import trees
from adv_wrappers.wrappers.layer import (
    LAYERS,
    AnyVectorEnv,
    Layer,
    Wrapped,
    autoreset_mode,
    floated,
    layers,
    understood,
)

_AUTORESET: dict[AutoresetMode, Autoreset] = {
    AutoresetMode.DISABLED: "disabled",
    AutoresetMode.NEXT_STEP: "next step",
    AutoresetMode.SAME_STEP: "same step",
}


class VectorLayer(Layer, VectorWrapper):
    """A layer around a :class:`gymnasium.vector.VectorEnv`."""

    def _wrap(self, env: Any) -> Wrapped:
        if not isinstance(env, VectorEnv):
            raise SpaceError(f"expected a gymnasium VectorEnv, got {type(env).__name__}")
        if not hasattr(env, "single_observation_space"):
            raise SpaceError(
                f"{type(env).__name__} has no single_observation_space, as a VectorEnv has; SuperSuit's vectors can be "
                f"wrapped as SB3's: concat_vec_envs_v1(..., base_class='stable_baselines3')"
            )
        VectorWrapper.__init__(self, env)
        batch = getattr(env.unwrapped, "batch_size", None)
        if batch not in (None, env.num_envs):
            raise SpaceError(f"rows must stay in place: expected batch_size = num_envs = {env.num_envs}, got {batch}")
        self.mode = autoreset_mode(env)
        autoreset = _AUTORESET[self.mode]
        return Wrapped(env.single_observation_space, env.single_action_space, env.num_envs, autoreset)

    def _installed(self, env: AnyVectorEnv) -> None:
        if not self.quantize:
            self.single_observation_space = self.perturbed_space
            self.observation_space = batch_space(self.perturbed_space, env.num_envs)
        self.metadata = {**(env.metadata or {}), **self.beneath, LAYERS: self.beneath[LAYERS] + 1}
        self._unchecked = 0 if layers(env) else CHECKED_STEPS
        self._every: Flags = np.ones(env.num_envs, bool)

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment; an autoreset mode in its arguments is written as its value, for JSON."""
        spec = self.env.spec
        mode = spec.kwargs.get("autoreset_mode") if spec is not None else None
        if spec is None or not isinstance(mode, AutoresetMode):
            return spec
        spec = copy.deepcopy(spec)
        spec.kwargs["autoreset_mode"] = mode.value
        return spec

    def reset(self, *, seed: int | list[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset all rows, or those of ``options["reset_mask"]``; the other rows keep what they were shown."""
        mask, _, obs, info = self._reset(seed, options)
        info = self._with_mask(obs, info)
        self._action_mask = self._allowed(info, mask)
        return self._receive(obs, info)

    def _reset(self, seed: Seeds, options: Info | None) -> tuple[Any, list[int | None] | None, Any, Info]:
        """Reset the environment and the engine: mask and seeds of the rows (None for all, and for none), its answer."""
        mask: Any = None  # bool [B]
        if options and options.get("reset_mask") is not None:
            mask = options["reset_mask"]
            if self.engine.on_host or not isinstance(mask, torch.Tensor):
                mask = np.array(mask, dtype=bool)
            options = {**options, "reset_mask": trees.copy(mask)}
        seeds = row_seeds(seed, self.num_envs, mask)
        obs, info = checked_reset_of_vector(self.env, seed, options)
        self._find_device(obs)
        if mask is not None and not self.engine.on_host:
            mask = torch.as_tensor(mask, dtype=torch.bool, device=self.engine.clock.device)
        given = None if seed is None else seeds
        self.engine.begin_episode(given, mask)
        return mask, given, obs, info

    def _find_device(self, obs: Any) -> None:
        """Follow the environment to its device, which its first observation tells."""
        understood(obs)
        device = trees.device(obs)
        if device is not None and self.engine.on_host:
            self.engine.to(device)
            self._every = self._rows(True)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        """One step of every row under attack."""
        actions = self._send(actions, self._action_mask)
        obs, rewards, terminated, truncated, info = self._answer(actions)
        rewards = self._pay(rewards)
        info = self._end_step(obs, terminated | truncated, self._with_mask(obs, info))
        self._action_mask = self._allowed(info, None)
        obs, info = self._receive(obs, info)
        return obs, rewards, terminated, truncated, info

    def _answer(self, actions: Any) -> Any:
        """What the environment returns to actions; its first answers are checked."""
        answer = self.env.step(actions)
        if self._unchecked:
            check_step_of_vector(self.env, answer)
            self._unchecked -= 1
        return answer

    def _end_step(self, obs: Any, done: Batch, info: Info) -> Info:
        """End the engine's step; ``info`` with SAME_STEP's last observations as the agent gets them."""
        engine = self.engine
        final: Any = info.get("final_obs")
        looked_at = self.mode == AutoresetMode.SAME_STEP and self.on == "observation" and final is not None
        if not looked_at or (engine.on_host and not done.any()):
            engine.end_step(done)
            return info
        ragged = isinstance(final, np.ndarray) and final.dtype == object  # one entry a row, most of them None
        over = np.flatnonzero(done).tolist() if ragged else []
        batch = trees.copy(obs) if ragged else final
        for row in over:
            trees.put(batch, row, final[row])
        batch = engine.end_step(done, self._received(batch))
        if not ragged:
            return {**info, "final_obs": batch}
        final = final.copy()
        for row in over:
            final[row] = trees.like(trees.row(batch, row), final[row])
        return {**info, "final_obs": final}

    def _received(self, obs: Any) -> Any:
        """Observations as this layer takes them."""
        return obs if self.quantize or self.on != "observation" else floated(obs, self.engine.applied.field.paths)

    def _receive(self, obs: Any, info: Info) -> tuple[Any, Info]:
        """What the environment returned, as the next layer or the agent gets it."""
        engine = self.engine
        obs = engine.observe(self._received(obs))
        return obs, self._note(info, self._rows(engine.attacked), engine.true if self.keep_true else None)

    def _with_mask(self, obs: Any, info: Info) -> Info:
        """``info`` with the masks that lie in observations, of all rows."""
        found = with_mask(obs, info) if self._masked else info
        return info if found is info else {**found, f"_{MASK}": self._every}

    def _allowed(self, info: Info, mask: Flags | None) -> torch.Tensor | None:
        """Action masks bool ``[B, A]``; after a partial reset the other rows keep theirs, and a row without has all."""
        new = side_by_side_mask(info.get(MASK), self._choices)
        if new is None:
            return self._action_mask if mask is not None else None
        new, known = torch.as_tensor(new).bool(), info.get(f"_{MASK}")
        if known is not None:
            new = new | ~torch.as_tensor(known, device=new.device)[:, None]
        if mask is not None and self._action_mask is not None:
            new = torch.where(torch.as_tensor(mask, device=new.device)[:, None], new, self._action_mask)
        return new

    def _rows(self, attacked: Flags) -> Flags:
        if isinstance(attacked, bool):
            rows, device = self.num_envs, self.engine.clock.device
            kind = np.ones if attacked else np.zeros
            return kind(rows, bool) if device is None else torch.full((rows,), attacked, device=device)
        return attacked

    def _note(self, info: Info, attacked: Flags, true: Any) -> Info:
        """As in every vector info, a key ``k`` comes with the mask ``_k`` of the rows that have it: here, all."""
        every = self._every
        entry = {"attacked": attacked, "_attacked": every}
        if true is not None:
            entry |= {"true": true, "_true": every}
        layers = {**info.get("adv_wrappers", {}), self.key: entry, f"_{self.key}": every}
        return {**info, "adv_wrappers": layers, "_adv_wrappers": every}
