"""The picture that a view renders, for one row of a stack of layers.

A view of an attack: what is true beside what the agent was handed, as the rendering of an environment.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from adv_wrappers.atari.screens import shrinking
from adv_wrappers.errors import OrderError, SpaceError, ValueRangeError
from adv_wrappers.formatting import caption
from adv_wrappers.rendering.frames import (
    FrameReader,
    Levels,
    Pixels,
    amplified_difference,
    enlarge,
    factor_for,
    gain_for,
    is_image,
    largest_change,
    to_numpy,
    to_pixels,
)
from adv_wrappers.rendering.palette import ATTACKED, IDLE
from adv_wrappers.rendering.panels import MARGIN, VectorChart, compose
from adv_wrappers.utils import trees
from adv_wrappers.utils.numbers import check_number, integer
from adv_wrappers.wrappers.base import chain, is_vec_env
from adv_wrappers.wrappers.recorder import INSIDE, ActionRecorder, VectorActionRecorder, record_actions


def _leaf(tree: Any, keys: tuple[str, ...] | None) -> Any:
    """The perturbed part of one observation: itself, a leaf of a dictionary, or several leaves in a row."""
    if keys is None or not isinstance(tree, dict):
        return to_numpy(tree)
    leaves = [to_numpy(tree[key]) for key in keys]
    return leaves[0] if len(leaves) == 1 else np.concatenate([leaf.reshape(-1) for leaf in leaves])


def _space(space: Any, keys: tuple[str, ...] | None) -> Any:
    return space.spaces[keys[0]] if keys is not None and isinstance(space, spaces.Dict) else space


class Drawing:
    """Draws the rows of a stack.

    Args:
        env: the stack.
        found: its layers, innermost first.
        space: of what comes out of the stack, of one row.
        frames, size, gain, layout: see :class:`adv_wrappers.rendering.attack_view.AttackView`.

    Raises:
        ValueRangeError, SpaceError: for arguments that make no sense, and a layout that does not fit.
    """

    def __init__(
        self, env: Any, found: list[Any], space: Any, frames: str, size: int, gain: float | None, layout: str | None
    ) -> None:
        if frames not in ("newest", "all"):
            raise ValueRangeError(f"frames must be newest or all, got {frames!r}")
        if gain is not None:
            check_number("gain", gain, 0, 1e9, above=True)
        self._layers, self._all, self._gain = found, frames == "all", gain
        self._size = integer("size", size, 1, 4096)
        self._watched = [layer for layer in found if layer.on == "observation"]
        first = self._watched[0] if self._watched else None
        inner = space if first is None else first.engine.spaces[0]
        keys: tuple[str, ...] | None = None if first is None else first.engine.field.keys
        if keys is None and isinstance(space, spaces.Dict):
            keys = tuple(space.spaces)
        if keys is not None:  # the image, where there is one among several
            keys = next(((key,) for key in keys if is_image(_space(inner, (key,)), layout)), keys)
        self._keys = keys
        shells = chain(env)  # screens that were perturbed are small before they are stacked: so is the true one
        inner, self._shrunk = shrinking(shells[: shells.index(first)] if first is not None else (), inner)
        single = keys is None or len(keys) == 1
        if layout is None and first is not None:
            layout = getattr(first.threat.how, "layout", None)
        self._inner = self._outer = None
        if single and (layout is not None or (is_image(_space(inner, keys)) and is_image(_space(space, keys)))):
            self._inner = self._frames(_space(inner, keys), layout)
            self._outer = self._frames(_space(space, keys), layout)
        self._chart, self._largest = VectorChart(), 0.0

    @staticmethod
    def _frames(space: Any, layout: str | None) -> FrameReader:
        try:
            return FrameReader(space, layout)
        except SpaceError:
            if layout is None or not is_image(space):
                raise
            return FrameReader(space)  # a layout names the axes of one end of the stack, the other has its own

    def frame(self, row: int | None, handed: Any, own: Any, acted: tuple[Any, Any] | None) -> Pixels:
        """The picture of a row (None: the only one).

        Args:
            handed: what came out of the stack.
            own: the environment's own rendering, or None.
            acted: the agent's last action and what the environment was told, or None where there was none.
        """
        shown = _leaf(handed, self._keys)
        true = None
        if self._watched:
            tree = self._watched[0].engine.true
            true = self._shrunk(_leaf(tree if row is None else trees.row(tree, row), self._keys))
        header = self._header(row, acted)
        if self._inner is not None and self._outer is not None:
            return compose(header, self._images(true, shown), self._all)
        panels = [("observation", self._vector(true, shown))]
        if isinstance(own, np.ndarray) and own.ndim == 3:
            high, wide = self._size, max(1, round(own.shape[1] * self._size / own.shape[0]))
            resized = cv2.resize(own, (wide, high), interpolation=cv2.INTER_AREA)
            panels.insert(0, ("environment", to_pixels(resized)))
        return compose(header, panels, False)

    def _header(self, row: int | None, acted: tuple[Any, Any] | None) -> list[tuple[str | None, str]]:
        t = self._layers[0].engine.clock.t
        lines: list[tuple[str | None, str]] = [(None, f"t = {int(_at(t, row))}")]
        for layer in self._layers:
            struck = bool(_at(layer.engine.struck, row))
            if layer.on == "action" and acted is None:
                struck = False
            lines.append(
                (ATTACKED if struck else IDLE, f"{caption(layer.threat)}   {'struck' if struck else 'not struck'}")
            )
        if any(layer.on == "action" for layer in self._layers):
            meant, told = ("-", "-") if acted is None else (_words(acted[0]), _words(acted[1]))
            colour = ATTACKED if meant != told else IDLE
            lines.append((colour, f"the agent's action {meant}, the environment was told {told}"))
        return lines

    def _images(self, true: Any, shown: NDArray[Any]) -> list[tuple[str, Pixels]]:
        assert self._inner is not None and self._outer is not None
        after = self._outer.levels(shown)
        if true is None:
            return [("handed to the agent", self._row(after))]
        before = self._inner.levels(true)
        if not self._all or len(before) != len(after):
            before, after = before[-1:], after[-1:]
        panels = [("true", self._row(before)), ("handed to the agent", self._row(after))]
        if before[0].shape != after[0].shape:
            return panels
        self._largest = max(self._largest, *map(largest_change, before, after))
        gain = gain_for(self._largest) if self._gain is None else self._gain
        gap = [amplified_difference(x, y, gain) for x, y in zip(before, after, strict=True)]
        return [*panels, (f"difference x {gain:g}", self._row(gap))]

    def _row(self, frames: Sequence[Levels]) -> Pixels:
        factor = factor_for(frames[0], self._size if len(frames) == 1 else self._size // 2)
        shown = [enlarge(to_pixels(frame), factor) for frame in frames]
        gap = np.full((shown[0].shape[0], MARGIN // 2, 3), 255, np.uint8)
        return np.concatenate([part for frame in shown for part in (gap, frame)][1:], 1)

    def _vector(self, true: Any, shown: NDArray[Any]) -> Pixels:
        shown = shown.reshape(-1)
        if true is None or true.size != shown.size:
            return self._chart.draw(shown, None, None)
        return self._chart.draw(true.reshape(-1), shown, self._radius(true))

    def _radius(self, true: NDArray[Any]) -> NDArray[Any] | None:
        """How far all layers together may move every feature."""
        total = np.zeros(true.size)
        for layer in self._watched:
            field = layer.engine.field
            if field.low.size != true.size or layer.engine.device not in (None, torch.device("cpu")):
                return None
            x = torch.as_tensor(np.asarray(true, np.float64)).reshape(1, *field.shape)
            free = torch.full_like(x, torch.inf)
            low, high = layer.engine.budget.box(x, -free, free)
            total = total + ((high - low) / 2).numpy().reshape(-1)
        return total


def _at(value: Any, row: int | None) -> Any:
    """A row of what may hold for all rows."""
    if row is None or isinstance(value, (bool, int)) or not getattr(value, "shape", ()):
        return value
    return value[row]


def _words(action: Any) -> str:
    if isinstance(action, dict):
        return " ".join(f"{key}: {_words(value)}" for key, value in action.items())
    flat = to_numpy(action).reshape(-1)
    if flat.dtype.kind != "f":
        return " ".join(str(value) for value in flat.tolist()[:12])
    text = " ".join(f"{value:+.2f}" for value in flat[:8].tolist())
    return f"[{text}{' ...' if len(flat) > 8 else ''}]"


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
        self._layers, self._recorder = record_actions(env, VectorActionRecorder)
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
        self._acted = np.zeros(self.num_envs, bool) if mask is None else self._acted & ~to_numpy(mask).astype(bool)
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
                (trees.row(self._action, row), trees.row(self._recorder.action, row))
                if self._recorder is not None and self._acted[row] else None,
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
        layout: which axis of an image is what (see :func:`adv_wrappers.core.spaces.layout_of`); None infers.

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
        self._layers, self._recorder = record_actions(env, ActionRecorder)
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
        acted = (
            (self._action, self._recorder.action) if self._recorder is not None and self._action is not None else None
        )
        return self._drawing.frame(None, self._obs, own, acted)
