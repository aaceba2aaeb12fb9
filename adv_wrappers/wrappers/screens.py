"""The emulator's own screens as observations, so that they can be perturbed before they are made grey and small.

``AtariPreprocessing`` reads the screen behind the backs of the wrappers beneath it. Here it is taken apart:
:class:`RawFrames` hands out the screens, :class:`adv_wrappers.ShrinkFrames` makes of them what agents see, and layers
fit between. The two together equal ``AtariPreprocessing`` to the byte.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from adv_wrappers.core.errors import SpaceError, ValueRangeError
from adv_wrappers.wrappers.shrink import Pixels, grey


class RawFrames(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """The last two screens of an Atari game as the observation: uint8 ``[2, 210, 160, 3]``, the newest last.

    Frames are skipped and no-ops played as ``AtariPreprocessing`` does it, which takes the maximum of two screens
    because sprites flicker: therefore two. After a reset there is one screen, handed out twice. A step that ends the
    episode stops early and may hand out the screens before it again, as ``AtariPreprocessing`` does.

    Args:
        env: a game of the Arcade Learning Environment that does not skip frames itself (``frameskip=1``).
        noop_max: after a reset, 1 to this many no-ops; 0 for none.
        frame_skip: frames a step, with one action.

    Raises:
        SpaceError: for another environment.
        ValueRangeError: for numbers out of range.
    """

    def __init__(self, env: gym.Env[Any, Any], noop_max: int = 30, frame_skip: int = 4) -> None:
        for name, value, least in (("noop_max", noop_max, 0), ("frame_skip", frame_skip, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueRangeError(f"{name} must be an integer of at least {least}, got {value!r}")
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
        self._pair: Pixels = np.zeros((2, *self._screen), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset and play the no-ops."""
        _, info = self.env.reset(seed=seed, options=options)
        noops = int(self.env.unwrapped.np_random.integers(1, self._noops + 1)) if self._noops else 0
        for _ in range(noops):
            _, _, terminated, truncated, more = self.env.step(0)
            info.update(more)
            if terminated or truncated:
                _, info = self.env.reset(seed=seed, options=options)
        screen = self._ale.getScreenRGB()
        self._pair = np.stack([screen, screen])
        return self._pair.copy(), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Some frames with one action; their rewards are added."""
        total, fresh = 0.0, self._pair
        for left in range(self._skip - 1, -1, -1):
            _, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
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

    def _brightest(self) -> Pixels:
        """Pixel by pixel the brighter of the two last screens: its grey is the maximum of their greys."""
        a, b = grey(self._pair)
        brightest: Pixels = np.where((b > a)[..., None], self._pair[1], self._pair[0])
        return brightest
