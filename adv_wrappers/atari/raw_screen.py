"""The emulator's own screens as observations, so that they can be perturbed before they are made grey and small.

``AtariPreprocessing`` reads the screen from the emulator, past all wrappers beneath it. Here its two steps are wrappers
of their own: the observations of :class:`RawFrames` are the screens in colour, :class:`ShrinkFrames` turns them into
what agents see (grey, the maximum of two, small), and wrappers that perturb fit between. The two together equal
``AtariPreprocessing`` to the byte.

Grey is the rule of the Arcade Learning Environment, ``round(0.2989 r + 0.587 g + 0.114 b)``, which gives every colour
of its palettes the grey that it has there, and is defined for all other colours too. Only Air Raid shows codes outside
the palette, for which the emulator's grey and its colours have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from adv_wrappers.atari.ale import Action, AtariGame, AtariWrapper, Frame, Options
from adv_wrappers.core.types import Array, Info, Space
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils.checks import integer

Shrink = Callable[[Array], Array]


class RawFrames(AtariWrapper, RecordConstructorArgs):
    """The last two screens of an Atari game as the observation: uint8 ``[2, 210, 160, 3]``, the newest last.

    Frames are skipped and no-ops played as ``AtariPreprocessing`` does it, which takes the maximum of two screens
    because sprites flicker: therefore two. After a reset there is one screen, returned twice. A step that ends the
    episode stops early and may return the screens before it again, as ``AtariPreprocessing`` does.

    Args:
        env: the game to wrap, of the Arcade Learning Environment, that does not skip frames itself (``frameskip=1``).
        noop_max: the largest number of no-ops after a reset, of which 1 to this many are played; 0 for none.
        frame_skip: the number of frames of one step, all with one action.

    Raises:
        SpaceError: for another environment.
        ValueRangeError: for numbers out of range.
    """

    def __init__(self, env: AtariGame, noop_max: int = 30, frame_skip: int = 4) -> None:
        # the emulator itself is needed, one frame at a time
        for name, value, least in (("noop_max", noop_max, 0), ("frame_skip", frame_skip, 1)):
            integer(name, value, least)
        self._ale: Any = getattr(getattr(env, "unwrapped", None), "ale", None)
        if self._ale is None or getattr(env.unwrapped, "_frameskip", 1) != 1:
            raise SpaceError(f"expected a game of the Arcade Learning Environment made with frameskip=1, got {env}")
        if noop_max and env.unwrapped.get_action_meanings()[0] != "NOOP":  # type: ignore[attr-defined]
            raise SpaceError("the first action must be NOOP, or noop_max=0")
        RecordConstructorArgs.__init__(self, noop_max=noop_max, frame_skip=frame_skip)
        gym.Wrapper.__init__(self, env)
        self._noops, self._skip = noop_max, frame_skip
        self._screen = (*self._ale.getScreenDims(), 3)
        self.observation_space = spaces.Box(0, 255, (2, *self._screen), np.uint8)
        self._pair: Frame = np.zeros((2, *self._screen), np.uint8)

    def reset(self, *, seed: int | None = None, options: Options = None) -> tuple[Frame, Info]:
        """Reset and play the no-ops."""
        _, info = self.env.reset(seed=seed, options=options)
        # as AtariPreprocessing draws them, from the environment's own generator
        noops = int(self.env.unwrapped.np_random.integers(1, self._noops + 1)) if self._noops else 0
        for _ in range(noops):
            _, _, terminated, truncated, more = self.env.step(0)
            info.update(more)
            if terminated or truncated:
                _, info = self.env.reset(seed=seed, options=options)
        screen = self._ale.getScreenRGB()
        self._pair = np.stack([screen, screen])
        return self._pair.copy(), info

    def step(self, action: Action) -> tuple[Frame, float, bool, bool, Info]:
        """Some frames with one action; their rewards are added."""
        total, fresh = 0.0, self._pair
        for left in range(self._skip - 1, -1, -1):
            _, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
            # the screens of the last two frames are kept
            if left == 1:
                fresh = np.empty_like(self._pair)
                self._ale.getScreenRGB(fresh[0])
            elif left == 0 and self._skip == 1:
                fresh = np.stack([self._ale.getScreenRGB()] * 2)
            elif left == 0:
                self._ale.getScreenRGB(fresh[1])
        if fresh is not self._pair and (terminated or truncated):
            fresh[1] = self._brightest()  # beside the only new screen stands what was shown before
        self._pair = fresh
        return fresh.copy(), total, terminated, truncated, info

    def _brightest(self) -> Frame:
        """Pixel by pixel the brighter of the two last screens: its grey is the maximum of their greys."""
        a, b = grey(self._pair)
        brightest: Frame = np.where((b > a)[..., None], self._pair[1], self._pair[0])
        return brightest


# Sums of whole multiples of 1e-4, of which half a level is one: 5e-5 more than that decides every tie upwards, and is
# more than what float32 loses on the way.
_GREY = np.array([[0.2989, 0.587, 0.114, 5e-5]], np.float32)


def grey(colours: Frame) -> Frame:
    """The emulator's grey of RGB colours, uint8 ``[..., 3]`` to ``[...]``: ``round(0.2989 r + 0.587 g + 0.114 b)``.

    >>> grey(np.array([[[200, 72, 72], [0, 28, 136], [236, 236, 236]]], np.uint8))
    array([[110,  32, 236]], dtype=uint8)
    """
    lines = np.ascontiguousarray(colours).reshape(-1, *colours.shape[-2:])
    return np.asarray(cv2.transform(lines, _GREY), np.uint8).reshape(colours.shape[:-1])


def shrink(pictures: Frame, size: int) -> Frame:
    """Grey pictures uint8 ``[N, H, W]`` at ``[N, size, size]``, every pixel the mean of the area that it covers."""
    out = np.empty((len(pictures), size, size), np.uint8)
    for picture, into in zip(pictures, out, strict=True):
        cv2.resize(picture, (size, size), dst=into, interpolation=cv2.INTER_AREA)
    return out


class ShrinkFrames(gym.ObservationWrapper[Frame, Action, Frame], RecordConstructorArgs):
    """What agents see of the screens of :class:`RawFrames`: grey, the maximum of the two, small.

    Args:
        env: the environment to wrap, whose observations are pairs of screens.
        size: height and width of the picture.

    Raises:
        SpaceError: for other observations.
        ValueRangeError: for a size below 1.
    """

    takes_pairs = True  # no stack of frames, which Newest is for

    def __init__(self, env: AtariGame, size: int = 84) -> None:
        integer("size", size, 1)
        space = env.observation_space
        shape = space.shape or ()
        if space.dtype != np.uint8 or len(shape) != 4 or shape[::3] != (2, 3):
            raise SpaceError(
                f"ShrinkFrames takes screens in colour, uint8 (2, height, width, 3) of RawFrames, got {space}"
            )
        RecordConstructorArgs.__init__(self, size=size)
        gym.ObservationWrapper.__init__(self, env)
        self._size = size
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)

    def observation(self, observation: Frame) -> Frame:
        """Screens uint8 ``[2, H, W, 3]`` to a picture ``[size, size]``."""
        picture: Frame = shrink(grey(observation).max(0, keepdims=True), self._size)[0]
        return picture


def shrinking_of(wrappers: Iterable[object], space: Space) -> tuple[Space, Shrink]:
    """The space of screens after the ``ShrinkFrames`` among some wrappers, and the function that shrinks them.

    Without one ``space`` and observations stay as they are.
    """
    found = next((wrapper for wrapper in wrappers if isinstance(wrapper, ShrinkFrames)), None)
    return (space, lambda observation: observation) if found is None else (found.observation_space, found.observation)
