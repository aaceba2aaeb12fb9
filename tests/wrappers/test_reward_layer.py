"""How a layer on rewards pays: one number, or one a row."""

from __future__ import annotations

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.wrappers.reward_layer import checked_total
from tests.faults.test_rewards import Counting


def test_sb3_gets_float32():
    venv = adv.PerturbReward(DummyVecEnv([Counting] * 2), "reward-flip", total=4.0)
    venv.reset()
    rewards = venv.step(np.zeros(2, int))[1]
    assert rewards.dtype == np.float32 and rewards.tolist() == [0.5, 0.5]  # 4 of the 6 that it asks for, evenly


def test_totals():
    assert checked_total(None) is None and checked_total(2) == 2.0
    with pytest.raises(ValueRangeError, match="total"):
        checked_total(float("nan"))
