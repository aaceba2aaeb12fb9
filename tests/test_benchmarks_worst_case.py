"""The script of the greedy worst case: an episode is Pong's second point, and the page counts what was searched."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("worst_case") as module:
        yield module


class Points(gym.Env):
    """Every third step scores: +1 for action 1, else -1."""

    observation_space, action_space = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        scored = (1.0 if action else -1.0) if self.t % 3 == 0 else 0.0
        return np.full(1, self.t, np.float32), scored, False, False, {}


def test_an_episode_is_the_second_point(script):
    victim = adv.from_module(lambda x: x * 0 + 1, Points.observation_space, Points.action_space, "action")
    env = script.SecondPoint(Points(), victim)
    assert env.reset(seed=0)[0] == [3.0]
    steps = [env.step(0) for _ in range(3)]
    assert [reward for _, reward, *_ in steps] == [0, 0, -1] and [step[2] for step in steps] == [False, False, True]


def row(eps, gwc, awc, finished):
    count = len(gwc)
    return {
        "eps": eps,
        "method": "interval",
        "clean_returns": [1.0] * count,
        "gwc_returns": gwc,
        "awc_returns": awc,
        "lower_returns": gwc,
        "lowest_found": gwc,
        "clean_acr": [0.5] * count,
        "finished_searches": finished,
        "node_counts": [10] * count,
        "sequence_counts": [2] * count,
        "seconds": 3.0,
    }


def test_a_short_episode_is_searched_whole(script, tmp_path):
    found = script.certified(
        adv.load_victim("zoo:cartpole-dqn"),
        script.short_cartpole,
        0.05,
        1,
        0,
        budget_s=None,
        max_sequences=None,
        max_nodes=20_000,
    )
    assert found["finished_searches"] == [True] and found["awc_returns"][0] <= found["gwc_returns"][0] <= 12
    script.draw([row(1.0, [1.0, -1.0], [1.0, -1.0], [True, True])], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
