"""Episodes that end early: what is trained here is also played, most of all by agents that never fall."""

from __future__ import annotations

import gymnasium as gym
import pytest


@pytest.fixture(autouse=True)
def short_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of at most 60 steps, instead of 200 to 1000."""
    for env_id in ("CartPole-v1", "Hopper-v5", "Pendulum-v1"):
        monkeypatch.setattr(gym.registry[env_id], "max_episode_steps", 60)
