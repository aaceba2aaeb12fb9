"""Episodes that end early, where what is tested is not how long an agent lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium as gym
import pytest


@contextmanager
def short_episodes_of(steps: int, *env_ids: str) -> Iterator[None]:
    """Episodes of these environments have at most so many steps inside."""
    with pytest.MonkeyPatch.context() as patch:
        for env_id in env_ids:
            patch.setattr(gym.registry[env_id], "max_episode_steps", steps)
        yield
