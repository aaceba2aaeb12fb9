"""What cannot search an agent's episodes says so before anything is played."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.core.spaces import At
from adv_wrappers.evaluation.applicable_attacks import why_no_beam
from tests.studies.report.planted import agent_for, showing

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Still(gym.Wrapper[Any, Any, Any, Any]):
    """The first observation of an episode, again and again: nothing is drawn in its steps."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.seen, info = self.env.reset(**kwargs)
        self.t = 0
        return self.seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.seen, float(action), self.t == 4, False, {}


IMAGE = spaces.Box(0, 255, (9, 9), np.uint8)


@pytest.mark.parametrize(
    ("space", "at", "reason"),
    [
        (spaces.Dict(cart=BOX, pole=BOX), ("cart", "pole"), None),
        (spaces.Tuple([BOX, BOX]), 1, None),
        (spaces.Dict(cart=BOX, pole=BOX), None, "pick a key, at='cart' (it has cart, pole)"),
        (spaces.Dict(cart=BOX, room=spaces.Discrete(3)), "room", "these are choices"),
        (spaces.Dict(cart=BOX, seen=IMAGE), "cart", "on images it takes too long"),
    ],
)
def test_a_beam_needs_a_part_with_distances(space: spaces.Space[Any], at: At, reason: str | None) -> None:
    environment = adv.Environment(lambda: Still(showing(space)))
    found = why_no_beam(agent_for(space), environment, adv.Linf(0.1), at)
    assert found is None if reason is None else reason in str(found)
