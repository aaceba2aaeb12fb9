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


def test_the_page_has_the_worst_attack_of_every_agent(script):
    returns = {"none": [500.0, 400.0], "noise": [400.0, 400.0], "max-diff": [300.0], "sa-rl": [200.0], "pa-ad": [250.0]}
    data = {
        "command": "x",
        "machine": "y",
        "agents": {"ATLA-s0": {"returns": returns, "training_seconds": 7, "attack_seconds": 8}},
    }
    assert "| ATLA-s0 | 450 | 400 | 300 | 200 | 250 | **200** | 7 | 8 |" in script.PAGE.markdown(data)
