"""A layer around a single environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium.utils import RecordConstructorArgs

from adv_wrappers.core.clock import row_seeds
from adv_wrappers.core.spaces import MASK, side_by_side_mask, with_mask
from adv_wrappers.core.types import Info
from adv_wrappers.environments.checked import CHECKED_STEPS, check_one, check_step, checked_reset
from adv_wrappers.errors import SpaceError
from adv_wrappers.wrappers.layer import LAYERS, AnyEnv, Layer, Wrapped, floated, layers, recorded


class EnvLayer(Layer, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A layer around a :class:`gymnasium.Env`; its subclasses say what it perturbs."""

    def _wrap(self, env: Any) -> Wrapped:
        if not isinstance(env, gym.Env):
            of_agents = ": PerturbAgents takes PettingZoo's" if hasattr(env, "possible_agents") else ""
            got = f"got {type(env).__name__}{of_agents}"
            raise SpaceError(f"expected a gymnasium Env, VectorEnv or an SB3 VecEnv, {got}")
        gym.Wrapper.__init__(self, check_one(env))
        return Wrapped(env.observation_space, env.action_space)

    def _installed(self, env: AnyEnv) -> None:
        self._unchecked = 0 if layers(self.env) else CHECKED_STEPS
        self.metadata = {**(self.env.metadata or {}), **self.beneath, LAYERS: self.beneath[LAYERS] + 1}
        self.env = env
        if not self.quantize:
            self.observation_space = self.perturbed_space
        self.whole_spec = False  # set by a registered id, whose own spec already describes the stack
        self._takes = self.on == "action" or not self.quantize

    @property
    def _saved_kwargs(self) -> Info:  # type: ignore[override]
        """The arguments that Gymnasium writes into the spec, made when it asks: budgets change."""
        arguments: Info = {"how": recorded(self.whole_threat)}
        if not self.quantize:
            arguments["quantize"] = False
        if self.keep_true:
            arguments["keep_true"] = True
        return arguments

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this layer added; a registered id's own spec is left as it is."""
        self._cached_spec = None
        return self.env.unwrapped.spec if self.whole_spec else super().spec

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset; a seed restarts this layer's randomness, without one its next episode begins."""
        row_seeds(seed)
        obs, info = checked_reset(self.env, seed, options)
        self.engine.begin_episode(seed)
        return self._receive(obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """One step under attack."""
        engine = self.engine
        obs, reward, terminated, truncated, info = self._answer(self._send(action, self._action_mask))
        reward = self._pay(reward)
        engine.end_step(bool(terminated or truncated))
        obs, info = self._receive(obs, info)
        return obs, reward, terminated, truncated, info

    def _answer(self, action: Any) -> Any:
        """What the environment returns to an action; its first answers are checked."""
        answer = self.env.step(action)
        if self._unchecked:
            check_step(self.env, answer)
            self._unchecked -= 1
        return answer

    def _receive(self, obs: Any, info: Info) -> tuple[Any, Info]:
        """What the environment returned, as the next layer or the agent gets it."""
        engine = self.engine
        if self._masked:
            info = with_mask(obs, info)
        if self._takes:
            obs = self._take(obs, info)
        obs = engine.observe(obs)
        entry: Info = {"attacked": bool(engine.attacked)}
        if self.keep_true and engine.true is not None:
            entry["true"] = engine.true
        if "adv_wrappers" in info:
            return obs, {**info, "adv_wrappers": {**info["adv_wrappers"], self.key: entry}}
        return obs, {**info, "adv_wrappers": {self.key: entry}}

    def _take(self, obs: Any, info: Info) -> Any:
        """The observation as a layer takes it that does not take it as it came; one on actions takes their mask."""
        if self.on == "observation":
            return floated(obs, self.engine.applied.field.paths)
        mask = side_by_side_mask(info.get(MASK), self._choices)
        self._action_mask = None if mask is None else torch.as_tensor(mask)[None]
        return obs
