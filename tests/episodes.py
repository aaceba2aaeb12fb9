"""Episodes that end early, where what is tested is not how long an agent lasts, and the answers of environments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest


@contextmanager
def short_episodes_of(steps: int, *env_ids: str) -> Iterator[None]:
    """Episodes of these environments have at most so many steps inside."""
    with pytest.MonkeyPatch.context() as patch:
        for env_id in env_ids:
            patch.setattr(gym.registry[env_id], "max_episode_steps", steps)
        yield


def play(env: gym.Env[Any, Any], actions: list[Any]) -> list[Any]:
    """Answers to some actions, resets where an episode is over included."""
    answers: list[Any] = []
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        info = {key: value for key, value in info.items() if key != "episode"}  # holds seconds
        answers.append((np.array(obs), reward, terminated, truncated, info))
        if terminated or truncated:
            answers.append(env.reset())
    return answers
