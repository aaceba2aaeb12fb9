"""Episodes that end early: what is trained here is also played, most of all by agents that never fall."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.episodes import short_episodes_of


@pytest.fixture(autouse=True)
def short_episodes() -> Iterator[None]:
    """Episodes of at most 30 steps, instead of 200 to 1000."""
    with short_episodes_of(30, "CartPole-v1", "Hopper-v5", "Pendulum-v1"):
        yield
