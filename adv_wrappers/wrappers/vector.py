"""The shell of a Gymnasium vector environment, in every autoreset mode, on the host or on a device."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import How, When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils import trees
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.base import LAYERS, Layer, autoreset_mode, floated, understood


class VectorLayer(Layer, VectorWrapper):
    """A layer around a :class:`gymnasium.vector.VectorEnv`."""

    def __init__(
        self, env: VectorEnv[Any, Any, Any], how: How | ThreatModel | str | dict[str, Any],
        within: Budget | None = None, when: When | str | None = None, at: str | tuple[str, ...] | None = None, *,
        victim: Victim | str | None = None, quantize: bool = True, keep_true: bool = False, eps: float | None = None,
        norm: str | None = None, scale: Any = None,
    ) -> None:  # fmt: skip
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
        self._install(
            env, how, within, when, at, victim, env.num_envs, quantize, keep_true,
            env.single_observation_space, env.single_action_space, ball={"eps": eps, "norm": norm, "scale": scale},
        )  # fmt: skip
        if not quantize:
            self.single_observation_space = self.perturbed_space
            self.observation_space = batch_space(self.perturbed_space, env.num_envs)
        self.metadata = {**(env.metadata or {}), **self.beneath, LAYERS: self.beneath[LAYERS] + 1}
        self.mode = autoreset_mode(env)
        self._finished: Any = np.zeros(env.num_envs, bool)  # rows whose next step is NEXT_STEP's dummy
        self._handed: Any = None
        self._action_mask: Any = None
        self._every: Any = np.ones(env.num_envs, bool)

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

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all rows, or those of ``options["reset_mask"]``; the other rows keep what they were handed."""
        mask: Any = None
        if options and options.get("reset_mask") is not None:
            mask = options["reset_mask"]
            if self.engine.clock.device is None or not isinstance(mask, torch.Tensor):
                mask = np.array(mask, dtype=bool)
            options = {**options, "reset_mask": trees.copy(mask)}
        seeds = self.engine.clock.check(seed, mask)
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._settle(obs)
        engine, device = self.engine, self.engine.clock.device
        engine.true = None
        if mask is not None and device is not None:
            mask = torch.as_tensor(mask, dtype=torch.bool, device=device)
        engine.clock.reset(None if seed is None else seeds, mask)  # the check of seeds looks into the mask
        engine.forget(mask)
        engine.session.reset(mask)
        if mask is None:
            engine.session.due = False
            self._finished = self._rows(False)
        else:
            self._finished = self._finished & ~mask
        self._action_mask = self._allowed(info, mask)
        before = self._handed
        obs, struck = self._observe(obs, True if mask is None else mask, False, False)
        if mask is not None and before is not None:
            obs = trees.merge(mask, obs, before)
        return self._hand(obs), self._note(info, self._rows(struck), self._kept)

    def _settle(self, obs: Any) -> None:
        """On the first observation: is this environment on a device?"""
        understood(obs)
        device = trees.device(obs)
        if device is not None and self.engine.clock.device is None:
            self.engine.settle(device)
            self._finished, self._every = self._rows(False), self._rows(True)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every row under attack."""
        engine = self.engine
        session, clock = engine.session, engine.clock
        if session.listening:
            session.begin(self)
        dummy: Any = self._finished if self.mode == AutoresetMode.NEXT_STEP else False
        struck: Any = False
        if self.on == "action":
            acting = True if dummy is False else ~dummy
            struck = engine.decide(actions, acting)
            actions = engine.apply(actions, struck, mask=self._action_mask)
            clock.pay(struck)
        obs, rewards, terminated, truncated, info = self.env.step(actions)
        done: Any = terminated | truncated
        if session.listening:
            session.answered(None if dummy is False else ~dummy)
        if dummy is False:
            clock.tick()
        else:
            clock.tick(~dummy)
            if clock.device is not None or dummy.any():
                self._turn(dummy)
        if self.mode == AutoresetMode.SAME_STEP:
            if clock.device is not None or done.any():
                info = self._last(obs, done, info)
                self._turn(done)
        elif self.mode == AutoresetMode.NEXT_STEP:
            self._finished = done
        self._action_mask = self._allowed(info, None)
        obs, seen = self._observe(obs, True, False, done if self.mode != AutoresetMode.SAME_STEP else False)
        info = self._note(info, self._rows(struck if self.on == "action" else seen), self._kept)
        return self._hand(obs), rewards, terminated, truncated, info

    def _allowed(self, info: dict[str, Any], mask: Any) -> Any:
        """Action masks bool ``[B, A]``; after a partial reset the other rows keep theirs, and a row without has all."""
        new = info.get("action_mask")
        if new is None:
            return self._action_mask if mask is not None else None
        new, told = torch.as_tensor(new).bool(), info.get("_action_mask")
        if told is not None:
            new = new | ~torch.as_tensor(told, device=new.device)[:, None]
        if mask is not None and self._action_mask is not None:
            new = torch.where(torch.as_tensor(mask, device=new.device)[:, None], new, self._action_mask)
        return new

    def _turn(self, mask: Any) -> None:
        self.engine.clock.turn(mask)
        self.engine.forget(mask)
        self.engine.session.reset(mask)

    def _rows(self, struck: Any) -> Any:
        if isinstance(struck, bool):
            rows, device = self.num_envs, self.engine.clock.device
            return np.full(rows, struck) if device is None else torch.full((rows,), struck, device=device)
        return struck

    def _note(self, info: dict[str, Any], struck: Any, true: Any) -> dict[str, Any]:
        """As in every vector info, a key ``k`` comes with the mask ``_k`` of the rows that have it: here, all."""
        info, every = super()._note(info, struck, true), self._every
        entries = info["adv_wrappers"]
        entries[self.key] |= {f"_{name}": every for name in tuple(entries[self.key])}
        entries[f"_{self.key}"] = info["_adv_wrappers"] = every
        return info

    def _observe(self, obs: Any, eligible: Any, final: bool, free: Any) -> tuple[Any, Any]:
        """The observation as this layer hands it on; strikes in the rows of ``free`` cost nothing."""
        if self.on == "action":
            return obs, False
        if not self.quantize:
            obs = floated(obs, self.threat.at)
        engine = self.engine
        obs, struck = engine.observe(obs, eligible, final)
        if not final and struck is not False:
            engine.clock.pay(struck if free is False else struck & ~free)
        return obs, self._rows(struck)

    def _last(self, obs: Any, done: Any, info: dict[str, Any]) -> dict[str, Any]:
        """SAME_STEP's final observations, perturbed under the old episode's clock; nobody acts on them."""
        final = info.get("final_obs")
        if final is None or self.on == "action":
            return info
        ragged = isinstance(final, np.ndarray) and final.dtype == object
        batch = trees.copy(obs) if ragged else final
        if ragged:
            for row in np.flatnonzero(done):
                trees.put(batch, int(row), final[row])
        batch, _ = self._observe(batch, done, True, False)
        if not ragged:
            return {**info, "final_obs": batch}
        final = final.copy()
        for row in np.flatnonzero(done):
            final[row] = trees.row(batch, int(row))
        return {**info, "final_obs": final}

    def _hand(self, obs: Any) -> Any:
        self.engine.session.hand(self, obs)
        self._handed = obs
        return obs
