"""The page of the beam over its width: the second search's episodes are played, and a search that rises is named."""

from __future__ import annotations

import importlib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def beam(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("beam")


def test_the_second_search_steps_the_game(beam):
    env = gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    state, draws = np.array(env.state)[None], np.random.default_rng(0)
    for _ in range(300):
        action = draws.integers(2, size=1)
        state, over = beam.fall(state, action)
        _, _, terminated, _, _ = env.step(int(action[0]))
        assert state[0] == pytest.approx(np.array(env.state), rel=1e-12) and over[0] == terminated
        if terminated:
            return
    raise AssertionError("the pole never fell")


def test_what_it_finds_is_played_within_the_budget(beam, monkeypatch):
    monkeypatch.setattr(beam, "STATES", 30)
    victim = adv.load_victim("zoo:cartpole-ppo")
    length, path = beam.layered(victim, 0.05, 0)
    assert beam.played(victim, 0.05, 0, path) == length == len(path) < 60
    with pytest.raises(AssertionError, match="out of the budget"):
        beam.played(victim, 0.01, 0, path)
