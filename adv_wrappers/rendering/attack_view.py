"""AttackView: the true observation beside the one that the agent receives, as the rendering of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import cv2
import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from adv_wrappers.atari.raw_screen import shrinking_of
from adv_wrappers.core.spaces import Path, leaf_at
from adv_wrappers.core.types import Array, Info, Space
from adv_wrappers.errors import OrderError, SpaceError
from adv_wrappers.rendering.frames import (
    ATTACKED,
    GRID,
    IDLE,
    INK,
    MUTED,
    FrameReader,
    GreyOrFloat,
    Pixels,
    amplified_difference,
    enlarge,
    factor_for,
    gain_for,
    is_image,
    largest_change,
    rgb,
    to_numpy,
    to_pixels,
)
from adv_wrappers.threats.text import caption
from adv_wrappers.utils.validation import Limits, checked
from adv_wrappers.wrappers.action_recorder import INSIDE, record_actions
from adv_wrappers.wrappers.layer import AnyEnv, is_vec_env, wrappers_of

# ----------------------------------------------------------------------------------------------------------------------
# Pictures drawn with OpenCV: captions above panels, and vectors as a line a feature.
# ----------------------------------------------------------------------------------------------------------------------


# pixels
MARGIN = 8  # around panels
LINE = 20  # of text
NARROWEST = 176  # panel
MAX_FEATURES = 24  # whose lines have numbers; those of a longer vector are thin
_FONT, _FONT_SCALE = cv2.FONT_HERSHEY_SIMPLEX, 0.43
_WIDTH, _HEIGHT = 460, 336  # pixels of a chart
_AXIS, _HALF = 350, 100  # column of no change, and columns to either side
_EDGE = 80  # columns from no change to the edge of the budget
FloatVector = NDArray[np.float64]


def blank(height: int, width: int) -> Pixels:
    """A white image."""
    return np.full((height, width, 3), 255, np.uint8)


def draw_text(image: Pixels, text: str, x: int, y: int, colour: str = INK, width: int | None = None) -> None:
    """Draw a line of text whose baseline is at ``y``, in place; what is wider than ``width`` is cut."""
    text = text.encode("ascii", "replace").decode()
    room = image.shape[1] - x if width is None else width
    if text_width(text) > room:
        while text and text_width(text + "...") > room:
            text = text[:-1]
        text += "..."
    cv2.putText(image, text, (x, y), _FONT, _FONT_SCALE, rgb(colour), 1, cv2.LINE_AA)


def text_width(text: str) -> int:
    """Pixels that a line of text takes."""
    return int(cv2.getTextSize(text, _FONT, _FONT_SCALE, 1)[0][0])


def compose_panels(header: Sequence[tuple[str | None, str]], panels: Sequence[tuple[str, Pixels]]) -> Pixels:
    """Captions above panels, which lie side by side.

    Args:
        header: a colour and a text for each line; a colour draws a dot before the line, None draws none.
        panels: title and picture of each panel.

    Returns:
        A picture with an even number of rows and columns, as video codecs want it. The first panel begins at row
        ``MARGIN + LINE * (len(header) + 1)`` and column ``MARGIN``.
    """
    # as wide as the panels are side by side, and as high as the highest with the lines above it
    widths = [max(image.shape[1], NARROWEST) for _, image in panels]
    top = MARGIN + LINE * len(header)
    height = top + max(image.shape[0] + LINE for _, image in panels) + MARGIN
    width = sum(widths) + MARGIN * (len(panels) + 1)
    out = blank(height + height % 2, width + width % 2)
    # the lines at the top, then the panels from left to right
    for i, (colour, text) in enumerate(header):
        baseline, x = MARGIN + LINE * i + 13, MARGIN
        if colour is not None:
            cv2.circle(out, (x + 5, baseline - 4), 5, rgb(colour), -1, cv2.LINE_AA)
            x += 18
        draw_text(out, text, x, baseline, width=out.shape[1] - x - MARGIN)
    x = MARGIN
    for (title, image), wide in zip(panels, widths, strict=True):
        draw_text(out, title, x, top + 13, MUTED, wide)
        out[top + LINE : top + LINE + image.shape[0], x : x + image.shape[1]] = image
        x += wide + MARGIN
    return out


class VectorChart:
    """Draws vectors: a line a feature with its change on the width of the budget, and its values where there is room.

    The axis of what has no budget grows with what was drawn before, so that it stands still in a video.
    """

    def __init__(self) -> None:
        self._largest = 1e-12

    def draw(self, true: ArrayLike, perturbed: ArrayLike, radius: FloatVector | None) -> Pixels:
        """The picture of one observation, uint8 ``[H, W, 3]``.

        Args:
            true, perturbed: ``[n]``.
            radius: how far the budget lets every feature move, infinite where it sets no limit; None if not known.
        """
        before, after = (np.nan_to_num(np.array(x, np.float64)) for x in (true, perturbed))
        bars = after - before
        self._largest = max(self._largest, float(np.abs(bars).max(initial=0)))
        units = np.full(len(bars), np.inf) if radius is None else radius
        # with few features a line of text for each, with many a thin line
        height = LINE if len(before) <= MAX_FEATURES else max(_HEIGHT // len(before), 2)
        out = blank(LINE + height * len(before), _WIDTH)
        # the head over the columns that are drawn
        heads = ("true", 62), ("perturbed", 142), ("change", _AXIS - 22)
        for text, x in heads if height == LINE else heads[2:]:
            draw_text(out, text, x, 14, MUTED)
        # a line for every feature
        for i, bar in enumerate(bars):
            middle = LINE + height * i + height // 2
            if height == LINE:
                draw_text(out, str(i), 20 - text_width(str(i)), middle + 5, MUTED)
                draw_text(out, f"{before[i]:+.4g}", 40, middle + 5)
                draw_text(out, f"{after[i]:+.4g}", 142, middle + 5, ATTACKED if bar else INK)
            self._bar(out, middle, min(height // 2, 6), float(bar), float(units[i]))
        return out

    def _bar(self, out: Pixels, middle: int, half: int, change: float, radius: float) -> None:
        limited = 0 < radius < np.inf
        if limited:
            cv2.rectangle(out, (_AXIS - _EDGE, middle - half), (_AXIS + _EDGE, middle + half), rgb(GRID), -1)
        cv2.line(out, (_AXIS - _HALF, middle), (_AXIS + _HALF, middle), rgb(GRID), 1)
        cv2.line(out, (_AXIS, middle - half - 2), (_AXIS, middle + half + 2), rgb(MUTED), 1)
        place = _AXIS + int(np.clip(round(_EDGE * change / (radius if limited else self._largest)), -_HALF, _HALF))
        colour = rgb(ATTACKED if change else MUTED)
        cv2.line(out, (_AXIS, middle), (place, middle), colour, max(half // 2, 1))
        cv2.circle(out, (place, middle), max(half - 2, 1), colour, -1, cv2.LINE_AA)


Caption = tuple[str | None, str]  # the colour of its dot, and the text


class AttackView(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Renders the true observation beside the one that the agent receives.

    ``render()`` returns the true observation (the one that the innermost wrapper on observations received), the
    perturbed one (the one that comes out of this wrapper) and their difference, grey where nothing changed, times 1, 2,
    5, 10, 20, 50 or 100, as much as the largest change so far allows. Of a stack of frames it is the newest.
    Captions name the threats and say whether each attacked at this step. A vector gets a line a feature, scaled by the
    budget where there is one, beside the environment's own rendering if its ``render_mode`` is ``rgb_array``. Under
    wrappers on actions the caption has the agent's last action and the one that the environment received. Nothing is
    drawn before ``render()`` is called, so ``gymnasium.wrappers.RecordVideo(AttackView(env), folder)`` films what an
    agent saw.

    It belongs right outside the wrappers that perturb: preprocessing that comes after them may lie outside the view.
    Around :class:`adv_wrappers.atari.ShrinkFrames`, as in ``atari(raw=...)``, the true screens are made grey and small
    as well; right around the wrappers at ``raw`` it shows them in colour.

    Args:
        env: the environment to wrap, that is perturbed by at least one wrapper; of a vector each environment is given
            a view of its own.
        size: the number of pixels that the longer side of an image is enlarged to at least, every pixel to a square.

    Raises:
        OrderError: for an environment without a wrapper that perturbs, and for vectors of environments.
        ValueRangeError: for arguments out of range.
        SpaceError: for something that is no environment.

    >>> env = AttackView(PerturbObservation(gym.make("CartPole-v1"), "noise:eps=0.05"))
    >>> obs, info = env.reset(seed=0)
    >>> env.render().shape
    (176, 476, 3)
    """

    @checked
    def __init__(self, env: AnyEnv, size: Annotated[int, Limits(1, 4096)] = 336) -> None:
        if isinstance(env, VectorEnv) or is_vec_env(env):
            raise OrderError(f"AttackView is of one environment: {INSIDE}")
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env, got {type(env).__name__}")
        RecordConstructorArgs.__init__(self, size=size)
        gym.Wrapper.__init__(self, env)
        self.whole_spec = False
        known = env.metadata or {}
        modes = [mode for mode in known.get("render_modes") or [] if mode != "rgb_array"]
        fps = known.get("render_fps") or 30
        self.metadata = {**known, "render_modes": [*modes, "rgb_array"], "render_fps": fps}
        # the last observation, and the actions since the last reset
        self._obs: Any = None
        self._action: Any = None
        self._wrappers, self._recorder = record_actions(env)
        # which part of the observation is shown: the one that is attacked, and in it an image
        self._size = size
        self._on_observations = [wrapper for wrapper in self._wrappers if wrapper.on == "observation"]
        innermost = self._on_observations[0] if self._on_observations else None
        space = env.observation_space
        inner: Space = space if innermost is None else innermost.engine.observation_space
        paths = None if innermost is None else innermost.engine.applied.field.paths
        if paths is None and isinstance(space, spaces.Dict):
            paths = tuple((key,) for key in space.spaces)
        if paths is not None:  # the image, where there is one among several
            paths = next(((path,) for path in paths if is_image(_leaf_space(inner, (path,)))), paths)
        self._paths = paths
        # screens that were perturbed are shrunk before they are stacked: so is the true one
        outside_in = wrappers_of(env)
        beyond = outside_in[: outside_in.index(innermost)] if innermost is not None else []
        inner, self._shrink = shrinking_of(beyond, inner)
        # how images are read, before the layers and after them
        self._true_frames = self._shown_frames = None
        inner, outer = _leaf_space(inner, paths), _leaf_space(space, paths)
        if (paths is None or len(paths) == 1) and is_image(inner) and is_image(outer):
            self._true_frames, self._shown_frames = FrameReader(inner), FrameReader(outer)
        self._chart, self._largest_change = VectorChart(), 0.0

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this view added."""
        self._cached_spec = None  # a layer's budget may have changed
        return super().spec

    @property
    def render_mode(self) -> str:  # type: ignore[override]  # which is fixed
        """Always ``rgb_array``."""
        return "rgb_array"

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset, and remember the observation."""
        self._action = None
        self._obs, info = self.env.reset(seed=seed, options=options)
        return self._obs, info

    def step(self, action: Any) -> Any:
        """Step, and remember the observation."""
        self._action = action
        out = self.env.step(action)
        self._obs = out[0]
        return out

    def render(self) -> Pixels:
        """The picture, uint8 ``[H, W, 3]``, always of the same size.

        Raises:
            ResetNeeded: before the first reset.
        """
        if self._obs is None:
            raise ResetNeeded("cannot render before the first reset")
        # the true observation is the one that reached the innermost layer
        perturbed, true = _leaf(self._obs, self._paths), None
        if self._on_observations:
            true = self._shrink(_leaf(self._on_observations[0].engine.true, self._paths))
        if self._true_frames is not None and self._shown_frames is not None:
            panels = self._image_panels(self._true_frames, self._shown_frames, true, perturbed)
            return compose_panels(self._header(), panels)
        # a vector, beside what the environment itself renders
        panels = [("observation", self._vector_panel(true, perturbed))]
        rendering = self.env.render() if self.env.render_mode == "rgb_array" else None
        if isinstance(rendering, np.ndarray) and rendering.ndim == 3:
            high, wide = self._size, max(1, round(rendering.shape[1] * self._size / rendering.shape[0]))
            resized = cv2.resize(rendering, (wide, high), interpolation=cv2.INTER_AREA)
            panels.insert(0, ("environment", to_pixels(resized)))
        return compose_panels(self._header(), panels)

    def _header(self) -> list[Caption]:
        lines: list[Caption] = [(None, f"t = {int(self._wrappers[0].engine.t)}")]
        acted = self._action is not None
        # a line for every layer, and one for the actions where they are attacked
        for wrapper in self._wrappers:
            attacked = bool(wrapper.engine.attacked) and (acted or wrapper.on != "action")
            text = f"{caption(wrapper.threat)}   {'attacked' if attacked else 'not attacked'}"
            lines.append((ATTACKED if attacked else IDLE, text))
        if self._recorder is not None:
            chosen, received = map(_action_text, (self._action, self._recorder.action)) if acted else ("-", "-")
            colour = ATTACKED if chosen != received else IDLE
            lines.append((colour, f"the agent's action {chosen}, the environment received {received}"))
        return lines

    def _image_panels(
        self, true_frames: FrameReader, shown_frames: FrameReader, true: Array | None, shown: Array
    ) -> list[tuple[str, Pixels]]:
        """The newest frames, and what changed."""
        after = shown_frames.levels(shown)[-1]
        panels = [("seen by the agent", self._enlarged(after))]
        if true is None:
            return panels
        before = true_frames.levels(true)[-1]
        panels.insert(0, ("true", self._enlarged(before)))
        # pictures of different sizes have no difference
        if before.shape != after.shape:
            return panels
        self._largest_change = max(self._largest_change, largest_change(before, after))
        gain = gain_for(self._largest_change)
        difference = amplified_difference(before, after, gain)
        return [*panels, (f"difference x {gain}", self._enlarged(difference))]

    def _enlarged(self, frame: GreyOrFloat) -> Pixels:
        return enlarge(to_pixels(frame), factor_for(frame, self._size))

    def _vector_panel(self, true: Array | None, shown: Array) -> Pixels:
        shown = shown.reshape(-1)
        if true is None or true.size != shown.size:  # nothing that it could be compared with
            return self._chart.draw(shown, shown, None)
        return self._chart.draw(true.reshape(-1), shown, self._radius(true))

    def _radius(self, true: Array) -> NDArray[np.float64] | None:
        """How far all wrappers together may move every feature, ``[n]``; None where that is not known."""
        total = np.zeros(true.size)
        for wrapper in self._on_observations:
            field = wrapper.engine.applied.field
            if field.low.size != true.size or wrapper.engine.applied.device not in (None, torch.device("cpu")):
                return None
            # half the sides of the budget's box, as if the space had no bounds
            x = torch.as_tensor(np.asarray(true, np.float64)).reshape(1, *field.shape)
            unbounded = torch.full_like(x, torch.inf)
            low, high = wrapper.engine.applied.budget.box(x, -unbounded, unbounded)
            total = total + ((high - low) / 2).numpy().reshape(-1)
        return total


def _leaf(tree: object, paths: tuple[Path, ...] | None) -> Array:
    """The perturbed part of one observation: itself, a leaf of a dictionary, or several leaves in a row."""
    if paths is None or not isinstance(tree, (dict, tuple)):
        return to_numpy(tree)
    leaves = [to_numpy(leaf_at(tree, path)) for path in paths]
    return leaves[0] if len(leaves) == 1 else np.concatenate([leaf.reshape(-1) for leaf in leaves])


def _leaf_space(space: Space, paths: tuple[Path, ...] | None) -> Space:
    return leaf_at(space, paths[0]) if paths and isinstance(space, (spaces.Dict, spaces.Tuple)) else space


def _action_text(action: object) -> str:
    if isinstance(action, dict):
        return " ".join(f"{key}: {_action_text(value)}" for key, value in action.items())
    flat = to_numpy(action).reshape(-1)
    if flat.dtype.kind != "f":
        return " ".join(str(value) for value in flat.tolist()[:12])
    text = " ".join(f"{value:+.2f}" for value in flat[:8].tolist())
    return f"[{text}{' ...' if len(flat) > 8 else ''}]"
