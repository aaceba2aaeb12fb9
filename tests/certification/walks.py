"""Small deterministic environments whose sequences can all be followed, and victims whose actions are known exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers import from_module
from adv_wrappers.victims import Victim
from tests.core.helpers import box, linear, randn
from tests.toys import Brief

STEPS = 7


class Walk(Brief):
    """Eleven places in a circle, on which rewards and the end of an episode depend, after seven steps at the latest."""

    steps = STEPS

    def __init__(self, actions: int = 2, lost: float = 0.0) -> None:
        self.observation_space, self.action_space = box(3), spaces.Discrete(actions, start=1)
        self.lost = lost

    def begin(self) -> None:
        self.place = int(self.np_random.integers(11))

    def seen(self) -> NDArray[np.float64]:
        place = self.place * 2 * np.pi / 11
        return np.array([np.sin(place), np.cos(place), self.t / 2])

    def act(self, action):
        self.place = (3 * self.place + 2 * int(action) + self.t) % 11
        return (self.place * 7 + (self.t + 1) * 3) % 11 / 8 - self.lost

    def over(self) -> bool:
        return self.place == 7 and self.t > 4


def walker(actions: int = 2, kind: str = "q", seed: int = 4, **more: object) -> Victim:
    """A linear float64 victim for a :class:`Walk`."""
    net = linear(randn(actions, 3, seed=seed))
    return from_module(net, box(3), spaces.Discrete(actions, start=1), kind, dtype=torch.float64, **more)


def shown(observation: NDArray[np.float64], eps: float) -> NDArray[np.float64]:
    """Points of the ball around an observation: its corners, its middle, and some within, ``[N, 3]``."""
    sides = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3), -1).reshape(-1, 3)
    inside = np.random.default_rng(0).uniform(-1, 1, (40, 3))
    return observation + eps * np.concatenate([sides, inside])


def every_return(
    env: Walk, victim: Victim, seed: int, eps: float, choose: Callable[..., NDArray[np.int64]] | None = None
) -> Iterator[float]:
    """The return of every sequence of actions that perturbations bring about, by playing each from the start."""
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        actions = waiting.pop()
        observation, total, over = env.reset(seed=seed)[0], 0.0, False
        for action in actions:
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + reward, terminated or truncated
        if over:
            yield total
        else:
            waiting += [(*actions, int(a)) for a in {*victim.act_on(shown(observation, eps)).tolist()}]
