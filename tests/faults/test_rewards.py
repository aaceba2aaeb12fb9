"""What is done to rewards: noise, flipped signs, an end of the scale, a late arrival."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from tests.every_case import every_case


class Counting(gym.Env[np.ndarray, int]):
    """The reward of step t is t, counted from 1, less 2.5; an episode has five steps."""

    observation_space = gym.spaces.Box(-1, 1)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.t += 1
        return np.zeros(1, np.float32), self.t - 2.5, self.t == 5, False, {}


TRUE = [-1.5, -0.5, 0.5, 1.5, 2.5]


def paid(text: str, **options: Any) -> list[list[float]]:
    """The rewards of two episodes."""
    env = adv.PerturbReward(Counting(), text, **options)
    found = []
    for seed in (0, None):
        env.reset(seed=seed)
        found.append([float(env.step(0)[1]) for _ in range(5)])
    return found


@every_case(
    ("text", "rewards"),
    [
        ("reward-flip", [1.5, 0.5, -0.5, -1.5, -2.5]),
        ("reward-flip:when=every(2)", [1.5, -0.5, -0.5, 1.5, -2.5]),
        ("reward-clip", [-1.0, -0.5, 0.5, 1.0, 1.0]),
        ("reward-clip:low=0,high=2", [0.0, 0.0, 0.5, 1.5, 2.0]),
        ("reward-delay", [0.0, -1.5, -0.5, 0.5, 1.5]),
        ("reward-delay:steps=3", [0.0, 0.0, 0.0, -1.5, -0.5]),
        ("reward-noise:kind=bernoulli,eps=0", TRUE),
    ],
)
def test_what_becomes_of_rewards(text: str, rewards: list[float]) -> None:
    assert paid(text) == [rewards, rewards]


@pytest.mark.parametrize("kind", ["uniform", "bernoulli", "gaussian"])
def test_noise_stays_within_its_budget_and_differs_between_episodes(kind: str) -> None:
    first, second = paid(f"reward-noise:kind={kind},eps=0.5")
    assert first != second
    for rewards in (first, second):
        change = np.abs(np.subtract(rewards, TRUE))
        assert (change <= 0.5).all() and change.max() > 0
        assert kind != "bernoulli" or (change == 0.5).all()


@every_case(
    ("text", "words"),
    [
        (
            "reward-noise:kind=poisson,eps=1",
            "kind must be 'uniform', 'bernoulli' or 'gaussian', got 'poisson'",
        ),
        ("reward-clip:low=2,high=1", "low must be at most high, got low=2, high=1"),
        ("reward-delay:steps=0", "steps must be"),
    ],
)
def test_bad_arguments(text: str, words: str) -> None:
    with pytest.raises(ValueRangeError, match=words):
        adv.PerturbReward(Counting(), text)
