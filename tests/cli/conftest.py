"""Episodes that end early: commands are tested for what they print, not for how long an agent lasts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.episodes import short_episodes_of


@pytest.fixture(autouse=True)
def short_episodes() -> Iterator[None]:
    """Episodes of CartPole of at most 60 steps, instead of 500."""
    with short_episodes_of(60, "CartPole-v1"):
        yield
