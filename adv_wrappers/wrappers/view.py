"""A view of an attack: what is true beside what the agent was handed, as the rendering of an environment."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper

from adv_wrappers.core.errors import OrderError, SpaceError
from adv_wrappers.wrappers import trees
from adv_wrappers.wrappers.draw import Drawing
from adv_wrappers.wrappers.ear import INSIDE, Ear, VectorEar, listen
from adv_wrappers.wrappers.layer import is_vec_env
from adv_wrappers.wrappers.panels import host


def _metadata(env: Any) -> dict[str, Any]:
    """The environment's own, with what is rendered here."""
    known = dict(env.metadata or {})
    modes = [mode for mode in known.get("render_modes") or [] if mode != "rgb_array"]
    return {**known, "render_modes": [*modes, "rgb_array"], "render_fps": known.get("render_fps") or 30}


class VectorAttackView(VectorWrapper):
    """:class:`AttackView` for a :class:`gymnasium.vector.VectorEnv`: a picture a row."""

    def __init__(
        self, env: VectorEnv[Any, Any, Any], frames: str = "newest", size: int = 336, gain: float | None = None,
        layout: str | None = None,
    ) -> None:  # fmt: skip
        VectorWrapper.__init__(self, env)
        self._layers, self._ear = listen(env, VectorEar)
        self._drawing = Drawing(env, self._layers, env.single_observation_space, frames, size, gain, layout)
        self.metadata = _metadata(env)
        self._obs: Any = None
        self._action: Any = None
        self._acted = np.zeros(env.num_envs, bool)

    @property
    def render_mode(self) -> str:  # type: ignore[override]
        """Always ``rgb_array``."""
        return "rgb_array"

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and remember what came out."""
        mask = (options or {}).get("reset_mask")
        self._acted = np.zeros(self.num_envs, bool) if mask is None else self._acted & ~host(mask).astype(bool)
        self._obs, info = self.env.reset(seed=seed, options=options)
        return self._obs, info

    def step(self, actions: Any) -> Any:
        """Step, and remember what came out."""
        self._action, self._acted = actions, np.ones(self.num_envs, bool)
        out = self.env.step(actions)
        self._obs = out[0]
        return out

    def render(self) -> tuple[Any, ...]:
        """One picture a row, uint8 ``[H, W, 3]``.

        Raises:
            ResetNeeded: before the first reset.
        """
        if self._obs is None:
            raise ResetNeeded("cannot render before the first reset")
        own = self.env.render() if self.env.render_mode == "rgb_array" else None
        return tuple(
            self._drawing.frame(
                row, trees.row(self._obs, row), None if own is None else own[row],
                (trees.row(self._action, row), trees.row(self._ear.told, row))
                if self._ear is not None and self._acted[row] else None,
            )
            for row in range(self.num_envs)
        )  # fmt: skip


class AttackView(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Renders what the agent was handed beside what is true.

    ``render()`` returns the true observation (what the innermost layer on observations received), the perturbed one
    (what came out of this wrapper) and the amplified difference, grey where nothing changed, with captions: the
    threats, and whether each struck. Vectors get a line a feature, scaled by the budget where there is one, beside
    the environment's own rendering if its ``render_mode`` is ``rgb_array``. Under layers on actions the caption has
    the agent's last action and the one that the environment was told. Nothing is drawn before ``render()`` is called,
    so ``gymnasium.wrappers.RecordVideo(AttackView(env), folder)`` films what an agent saw.

    It belongs right outside the layers: preprocessing that comes after them may lie outside the view. Around
    :class:`adv_wrappers.ShrinkFrames`, as in ``atari(raw=...)``, the true screens are made grey and small as well;
    right around the layers at ``raw`` it shows them in colour.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv`` (which renders one picture a row) under at least one layer.
        frames: of a stack, ``newest``, or ``all`` in a row.
        size: the longer side of a picture is enlarged to at least so many pixels, every pixel to a square.
        gain: of the difference; None amplifies by 1, 2, 5, 10, 20, 50 or 100, as much as the largest change so far
            allows.
        layout: which axis of an image is what (see :func:`adv_wrappers.core.layouts.layout_of`); None infers.

    Raises:
        OrderError: without a layer beneath, and for an SB3 ``VecEnv``.
        ValueRangeError: for arguments that make no sense.

    >>> env = AttackView(PerturbObservation(gym.make("CartPole-v1"), "noise:eps=0.05"))
    >>> obs, info = env.reset(seed=0)
    >>> env.render().shape
    (176, 476, 3)
    """

    def __new__(cls, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return VectorAttackView(env, *args, **kwargs)
        if is_vec_env(env):
            raise OrderError(f"AttackView goes inside an SB3 VecEnv: {INSIDE}")
        return super().__new__(cls)

    def __init__(
        self, env: gym.Env[Any, Any], frames: str = "newest", size: int = 336, gain: float | None = None,
        layout: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env or VectorEnv, got {type(env).__name__}")
        RecordConstructorArgs.__init__(self, frames=frames, size=size, gain=gain, layout=layout)
        gym.Wrapper.__init__(self, env)
        self._layers, self._ear = listen(env, Ear)
        self._drawing = Drawing(env, self._layers, env.observation_space, frames, size, gain, layout)
        self.metadata = _metadata(env)
        self.whole_spec = False
        self._obs: Any = None
        self._action: Any = None

    __signature__ = inspect.Signature(list(inspect.signature(__init__).parameters.values())[1:])

    @property
    def render_mode(self) -> str:  # type: ignore[override]
        """Always ``rgb_array``."""
        return "rgb_array"

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this view added."""
        self._cached_spec = None  # a layer's budget may have changed
        return super().spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and remember what came out."""
        self._action = None
        self._obs, info = self.env.reset(seed=seed, options=options)
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and remember what came out."""
        self._action = action
        self._obs, reward, terminated, truncated, info = self.env.step(action)
        return self._obs, reward, terminated, truncated, info

    def render(self) -> Any:
        """The picture, uint8 ``[H, W, 3]``, always of the same size.

        Raises:
            ResetNeeded: before the first reset.
        """
        if self._obs is None:
            raise ResetNeeded("cannot render before the first reset")
        own = self.env.render() if self.env.render_mode == "rgb_array" else None
        acted = (self._action, self._ear.told) if self._ear is not None and self._action is not None else None
        return self._drawing.frame(None, self._obs, own, acted)
