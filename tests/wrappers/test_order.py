"""A perturbation that can never reach the agent is refused."""

from __future__ import annotations

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation

import adv_wrappers as adv

gym.register_envs(ale_py)
NOISE = "noise:eps=8"


def pong():
    return gym.make("ALE/Pong-v5", frameskip=1)


def test_inside_atari_preprocessing():
    """The preprocessing reads the emulator's own screen: what lies inside is never seen."""
    env = AtariPreprocessing(adv.wrap(pong(), NOISE))
    bare = AtariPreprocessing(pong())
    assert np.array_equal(env.reset(seed=0)[0], bare.reset(seed=0)[0])  # the trap itself
    for check in (adv.check_order, lambda e: adv.wrap(e, "action-flip")):
        with pytest.raises(adv.OrderError, match="AtariPreprocessing"):
            check(env)
    with pytest.raises(adv.OrderError, match="AtariPreprocessing"):
        adv.check_order(SyncVectorEnv([lambda: AtariPreprocessing(adv.wrap(pong(), NOISE))]))


def test_outside_and_actions_are_fine():
    env = adv.wrap(FrameStackObservation(AtariPreprocessing(adv.wrap(pong(), "action-noise:p=0")), 4), NOISE)
    adv.check_order(env)
    adv.check_order(TransformObservation(env, lambda o: o, env.observation_space))
    bare = FrameStackObservation(AtariPreprocessing(pong()), 4)
    moved = np.abs(env.reset(seed=0)[0].astype(int) - bare.reset(seed=0)[0].astype(int))
    assert 0 < moved.max() <= 8
