"""Whole steps of an environment under a daylight transform, beside OpenCV: for ``benchmarks/daylight_speed.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
from daylight_loops import ALPHA, BETA, DEGREES, DX, DY, NORM, QUALITY, Images, affine, grey_jpegs, projective
from gymnasium import spaces
from timing import interleave

import adv_wrappers as adv
from adv_wrappers import daylight

HAND, WRAPPED = "ObservationWrapper with OpenCV's call", "PerturbObservation"
SIDE, FRAMES = 84, 4


class Stack(gym.Env[Any, Any]):
    """Hands out one uint8 stack of frames again and again."""

    observation_space = spaces.Box(0, 255, (SIDE, SIDE, FRAMES), np.uint8)
    action_space = spaces.Discrete(2)
    stack = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, FRAMES), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Images, dict[str, Any]]:
        """The stack."""
        super().reset(seed=seed)
        return self.stack, {}

    def step(self, action: Any) -> tuple[Images, float, bool, bool, dict[str, Any]]:
        """The stack."""
        return self.stack, 0.0, False, False, {}


class ByHand(gym.ObservationWrapper[Any, Any, Any]):
    """What a person writes."""

    def __init__(self, env: gym.Env[Any, Any], call: Callable[[Images], Any]) -> None:
        super().__init__(env)
        self.call = call

    def observation(self, observation: Images) -> Any:
        """Transformed."""
        return self.call(observation)


def threats() -> dict[str, tuple[daylight.Transform, Callable[[Images], Any]]]:
    """Every transform, and OpenCV's call."""
    turned, moved = (affine(SIDE, SIDE, name) for name in ("rotation", "shift"))
    tilted, size, edge = projective(SIDE, SIDE), (SIDE, SIDE), cv2.BORDER_REPLICATE
    return {
        "brightness": (daylight.Brightness(ALPHA, BETA, "abs"), lambda x: cv2.convertScaleAbs(x, None, ALPHA, BETA)),
        "median 3": (daylight.MedianBlur(3), lambda x: cv2.medianBlur(x, 3)),
        "median 5": (daylight.MedianBlur(5), lambda x: cv2.medianBlur(x, 5)),
        "rotation": (daylight.Rotation(DEGREES), lambda x: cv2.warpAffine(x, turned, size, None, 1, edge)),
        "shift": (daylight.Shift(DX, DY), lambda x: cv2.warpAffine(x, moved, size, None, 1, edge)),
        "perspective": (daylight.Perspective(NORM), lambda x: cv2.warpPerspective(x, tilted, size, None, 1, edge)),
        "JPEG 30": (daylight.JPEG(QUALITY), grey_jpegs),
    }


def measure_step(transform: str, rounds: int, least: float) -> dict[str, float]:
    """Microseconds a step of both, in their quickest rounds."""
    how, call = threats()[transform]
    by_hand, wrapped = ByHand(Stack(), call), adv.PerturbObservation(Stack(), how)
    for env in (by_hand, wrapped):
        env.reset(seed=0)
    seconds = interleave({HAND: lambda: by_hand.step(0), WRAPPED: lambda: wrapped.step(0)}, rounds, least)
    return {name: 1e6 * min(times) for name, times in seconds.items()}
