"""Recorders of the actions that an environment is given, for evaluations, training and captions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorWrapper

from adv_wrappers.core.types import Info
from adv_wrappers.environments.checked import TransparentEnv
from adv_wrappers.errors import OrderError
from adv_wrappers.wrappers.layer import Layer, layers

INSIDE = "put AttackView around each environment, outside its layers, and then side by side"


class Recorder:
    """Mixin of the recorders of one environment and of a vector.

    Attributes:
        action: the newest action, or actions ``[B, ...]``, as the environment received them; None before the first
            step.
        observation: the newest true observation, ``[*S]`` or ``[B, *S]``, as the environment returned it.
    """

    env: Any
    action: Any = None
    observation: Any = None

    def reset(self, *, seed: Any = None, options: Info | None = None) -> tuple[Any, Info]:
        self.observation, info = self.env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Info]:
        self.action = action
        self.observation, rewards, terminated, truncated, info = self.env.step(action)
        return self.observation, rewards, terminated, truncated, info


class ActionRecorder(Recorder, TransparentEnv):
    """Remembers the newest action that an environment is given. Specs do not name this wrapper."""


class VectorActionRecorder(Recorder, VectorWrapper):
    """:class:`ActionRecorder` for a vector environment."""


def record_actions(env: gym.Env[Any, Any]) -> tuple[list[Layer], ActionRecorder | None]:
    """The layers of a stack, innermost first, and a recorder beneath those that perturb actions.

    Args:
        env: the outermost wrapper of the stack. A recorder is inserted unless one is there; None is returned where no
            layer perturbs actions.

    Raises:
        OrderError: for an environment without layers.
    """
    found = layers(env)
    if not found:
        raise OrderError("AttackView shows the layers beneath it, and there are none: wrap them first")
    innermost: Any = next((layer for layer in found if layer.on == "action"), None)
    if innermost is None:
        return found, None
    # put beneath that layer once, whoever asks
    if not isinstance(innermost.env, ActionRecorder):
        innermost.env = ActionRecorder(innermost.env)
    return found, innermost.env
