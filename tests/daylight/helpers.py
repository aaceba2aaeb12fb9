"""What the tests of this folder share: a picture, an environment that shows it, contexts, and the torch backend."""

from __future__ import annotations

import types

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers import daylight
from adv_wrappers.core import rng
from adv_wrappers.daylight import opencv
from tests.toys import Brief

PICTURE = np.random.default_rng(0).integers(0, 256, (16, 20, 3), np.uint8)
X = torch.from_numpy(PICTURE)[None]
LENGTH = 4
FIXED = {  # a perturbation, and what it makes of X
    "brightness": (daylight.Brightness(1.7, 40), daylight.brightness(X, 1.7, 40)),
    "median-blur": (daylight.MedianBlur(5), daylight.median_blur(X, 5)),
    "rotation": (daylight.Rotation(3), daylight.rotate(X, 3)),
    "shift": (daylight.Shift(2, 1), daylight.shift(X, 2, 1)),
    "jpeg": (daylight.JPEG(), daylight.jpeg(X, 30)),
    "perspective": (daylight.Perspective(3), daylight.perspective(X, 3)),
}
RANGED = {
    "brightness": daylight.Brightness((0.5, 2.0), (-50, 50)), "median-blur": daylight.MedianBlur((3, 7)),
    "rotation": daylight.Rotation((-50, 50)), "shift": daylight.Shift((-5, 5), (-5, 5)),
    "jpeg": daylight.JPEG((5, 95)), "perspective": daylight.Perspective((0, 5)),
}  # fmt: skip


def force_torch(monkeypatch):
    """Every transform takes the path of other devices."""
    monkeypatch.setattr(opencv, "on_host", lambda images: False)


def pictures(*shape: int, seed: int = 0) -> torch.Tensor:
    """Noise, uint8."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def at_step(batch: int, episode: int = 0, t: int = 0, low: float = 0, high: float = 1) -> types.SimpleNamespace:
    """What a transform asks of a context."""
    key = rng.fold(torch.arange(batch), episode)
    space = torch.tensor(float(low)), torch.tensor(float(high))
    return types.SimpleNamespace(episode_key=key, key=rng.fold(key, t), space=space)


class Still(Brief):
    """Shows one picture for some steps."""

    action_space = spaces.Discrete(2)
    steps, cut = LENGTH, False

    def __init__(self, kind: str = "grid") -> None:
        self.picture = PICTURE if kind == "grid" else (PICTURE / 255 * 4 - 1).astype(np.float32)
        low, high = (0, 255) if kind == "grid" else (-1, 3)
        self.observation_space = spaces.Box(low, high, PICTURE.shape, self.picture.dtype.type)

    def seen(self):
        return self.picture


def episodes(env: gym.Env, seed: int, count: int = 2) -> list[list[bytes]]:
    """What is shown, episode by episode."""
    shown = []
    for i in range(count):
        obs, _ = env.reset(seed=seed) if i == 0 else env.reset()
        shown.append([obs.tobytes()])
        for _ in range(LENGTH):
            obs = env.step(0)[0]
            shown[-1].append(obs.tobytes())
    return shown
