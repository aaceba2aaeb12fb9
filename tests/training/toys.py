"""Small environments and agents whose values, best actions and answers are known."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers import from_module, train_critic
from tests.core.helpers import linear
from tests.toys import Brief

SEEN, ACTED = spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Box(-2.0, 2.0, (1,), np.float32)


class Toy(Brief):
    """States that nothing changes, uniform in [-1, 1]^2, and a reward of ``1 + a s_0``.

    Cut short every second step, ``Q(s, a) = 1 + a s_0 + gamma E[reward] / (1 - gamma)``; where every step is the last
    one (``ends``), ``Q(s, a) = 1 + a s_0``.
    """

    steps = 2

    def __init__(self, ends: bool = False) -> None:
        self.observation_space, self.action_space, self.ends = SEEN, ACTED, ends

    def seen(self):
        self.shown = self.np_random.uniform(-1, 1, 2)
        return self.shown

    def act(self, action):
        return 1.0 + float(action[0]) * self.shown[0]

    def over(self):
        return self.ends


class Stopped(Exception):
    """What ends a training from outside."""


def stop_at(least):
    """A progress that ends a training at its first checkpoint after so many steps, as a kill would."""

    def stop(steps, *_):
        if steps >= least:
            raise Stopped

    return stop


def one_critic(*given, **how):
    """A critic by one setting, which is not attacked with."""
    return train_critic(*given, settings=[{}], **how)


class Unplayed(Toy):
    """The toy, which nobody may play."""

    def __init__(self, config: object = None) -> None:
        super().__init__()

    def step(self, action):
        raise AssertionError("something was spent")


def toy_victim(weight=((0.5, 0.0),), **more):
    """Does half of the state's first feature; deterministic, so that noise explores."""
    return from_module(linear(torch.tensor(weight, dtype=torch.float64)), SEEN, ACTED, "mean", **more)


POINT, TWO = spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2)


class Plane(gym.Env):
    """A point in the plane that an action pushes up or down, seven steps long; it keeps the seeds that it was given."""

    seeds: list[int] = []  # noqa: RUF012 - of all environments

    def __init__(self, action_space: spaces.Space | None = None, observation_space: spaces.Space = POINT) -> None:
        self.observation_space, self.action_space = observation_space, action_space or TWO

    def _see(self):
        return self.point.astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            Plane.seeds.append(seed)
        self.point, self.t = self.np_random.normal(size=2), 0
        return self._see(), {}

    def step(self, action):
        push = float(np.asarray(action).reshape(-1)[0])
        self.point = 0.9 * self.point + [0.1, push - 0.5] + self.np_random.normal(size=2) * 0.3
        self.t += 1
        return self._see(), 1.0, self.t == 7, False, {}


class Rule:
    """A black box that counts the observations that it was asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, obs):
        assert isinstance(obs, np.ndarray)
        self.asked += len(obs)
        return (obs[:, 1] > 0.3 * obs[:, 0]).astype(np.int64)


class Alternating(torch.nn.Module):
    """Acts by the parity of the step, which only its hidden state knows."""

    def forward(self, obs, state):
        return torch.stack([state, 1 - state], -1) + 0 * obs, 1 - state
