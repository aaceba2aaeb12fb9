"""What the environment is told: heard beneath the layers on actions, for captions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv, VectorWrapper

from adv_wrappers.errors import OrderError
from adv_wrappers.wrappers.base import LAYERS, Layer, counts, layers

INSIDE = "put AttackView around each environment, outside its layers, and then side by side"


class Ear(gym.Wrapper[Any, Any, Any, Any]):
    """Beneath the innermost layer on actions: hears what the environment is told. Specs do not name it."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.told: Any = None

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """That of the environment."""
        return self.env.spec

    def step(self, action: Any) -> Any:
        self.told = action
        return self.env.step(action)


class VectorEar(VectorWrapper):
    """:class:`Ear` for a vector environment."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.told: Any = None

    def step(self, actions: Any) -> Any:
        self.told = actions
        return self.env.step(actions)


def listen(env: Any, kind: type[Ear] | type[VectorEar]) -> tuple[list[Layer], Any]:
    """The layers of a stack, innermost first, and an ear beneath those on actions (None where there are none)."""
    found = layers(env)
    if not found:
        hidden = f"; those inside the rows are out of reach: {INSIDE}" if counts(env)[LAYERS] else ""
        raise OrderError(f"AttackView shows the layers beneath it, and there are none: wrap them first{hidden}")
    inner: Any = next((layer for layer in found if layer.on == "action"), None)
    if inner is None:
        return found, None
    if not isinstance(inner.env, kind):
        inner.env = kind(inner.env)
    return found, inner.env
