"""The script of recurrent agents: what they see, and how its page sums up what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("recurrent") as module:
        yield module


def test_agents_see_positions_alone(script):
    env = script.positions("CartPole-v1")
    seen, _ = env.reset(seed=0)
    state = env.unwrapped.state
    assert env.observation_space.shape == (2,) and env.observation_space.contains(seen)
    assert np.allclose(seen, [state[0], state[2]])
