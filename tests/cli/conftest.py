"""Episodes that end early: commands are tested for what they print, not for how long an agent lasts."""

from __future__ import annotations

import gymnasium as gym
import pytest


@pytest.fixture(autouse=True)
def short_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of CartPole of at most 60 steps, instead of 500."""
    monkeypatch.setattr(gym.registry["CartPole-v1"], "max_episode_steps", 60)
