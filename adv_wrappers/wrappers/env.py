"""The shell of a single environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium.utils import RecordConstructorArgs

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import How, When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import SpaceError
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.base import LAYERS, Layer, floated, recorded


class EnvLayer(Layer, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A layer around a :class:`gymnasium.Env`; its subclasses say whether it perturbs observations or actions."""

    def __init__(
        self, env: gym.Env[Any, Any], how: How | ThreatModel | str | dict[str, Any], within: Budget | None = None,
        when: When | str | None = None, at: str | tuple[str, ...] | None = None, *,
        victim: Victim | str | None = None, quantize: bool = True, keep_true: bool = False, eps: float | None = None,
        norm: str | None = None, scale: Any = None,
    ) -> None:  # fmt: skip
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env, VectorEnv or an SB3 VecEnv, got {type(env).__name__}")
        gym.Wrapper.__init__(self, env)
        self._install(
            env, how, within, when, at, victim, None, quantize, keep_true, env.observation_space, env.action_space,
            ball={"eps": eps, "norm": norm, "scale": scale},
        )  # fmt: skip
        self._record()
        if not quantize:
            self.observation_space = self.perturbed_space
        self.metadata = {**(env.metadata or {}), **self.beneath, LAYERS: self.beneath[LAYERS] + 1}
        self.whole_spec = False  # set by a registered id, whose own spec already describes the stack
        self._action_mask: Any = None

    def _record(self) -> None:
        arguments: dict[str, Any] = {"how": recorded(self.threat)}
        if not self.quantize:
            arguments["quantize"] = False
        if self.keep_true:
            arguments["keep_true"] = True
        self.__dict__.pop("_saved_kwargs", None)  # Gymnasium records once, and budgets change
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)

    def _replace(self, threat: ThreatModel) -> None:
        super()._replace(threat)
        self._record()

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this layer added; a registered id's own spec is left as it is."""
        self._cached_spec = None
        return self.env.unwrapped.spec if self.whole_spec else super().spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; a seed restarts this layer's randomness, without one its next episode begins."""
        engine = self.engine
        engine.clock.check(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        engine.clock.reset(seed)
        engine.true = None
        engine.forget()
        engine.session.reset()
        engine.session.due = False
        self._action_mask = info.get("action_mask")
        return self._observe(obs, info, False)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step under attack."""
        engine = self.engine
        session = engine.session
        if session.listening:
            session.begin(self)
        on_action = self.on == "action"
        if on_action:
            struck = engine.decide(action)
            if struck:
                action = engine.apply(action, True, mask=_mask(self._action_mask))
                engine.clock.pay(True)
            else:
                engine.struck, engine.true = False, action
        obs, reward, terminated, truncated, info = self.env.step(action)
        if session.listening:
            session.answered()
        engine.clock.tick()
        if on_action:
            self._action_mask = info.get("action_mask")
            session.hand(self, obs)
            return obs, reward, terminated, truncated, self._note(info, struck, self._kept)
        obs, info = self._observe(obs, info, terminated or truncated)
        return obs, reward, terminated, truncated, info

    def _observe(self, obs: Any, info: dict[str, Any], done: bool) -> tuple[Any, dict[str, Any]]:
        engine = self.engine
        struck = False
        if self.on == "observation":
            if not self.quantize:
                obs = floated(obs, self.threat.at)
            obs, struck = engine.observe(obs)
            if struck and not done:  # nobody acts on a terminal observation
                engine.clock.pay(True)
        if engine.session.listening:
            engine.session.hand(self, obs)
        return obs, self._note(info, bool(struck), engine.true if self.keep_true else None)


def _mask(mask: Any) -> Any:
    return None if mask is None else torch.as_tensor(mask)[None]
