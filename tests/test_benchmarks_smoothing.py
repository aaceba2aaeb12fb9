"""The script that compares certificates of smoothing with attacks: lengths of its attacks, and what its page claims."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.core.budgets.budget import L2
from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("smoothing") as module:
        yield module


def row(returns, attacked, name="fgsm, 1 step, 1 sigma"):
    figures = {"mean_return": float(np.mean(attacked)), "low": 0.0, "high": max(attacked), "eps": 0.1}
    radii = {"observations": 2, "samples": 9, "votes": [0.1, 0.0]}
    return {
        "sigma": 0.1,
        "vote": 1,
        "returns": returns,
        "attacks": {name: figures},
        "clean": {"mean_return": 500.0},
        "radii": radii,
    }


@pytest.mark.parametrize(("attack", "steps", "every"), [("fgsm", 1, 1), ("network", 4, 3), ("tilt", 6, 1)])
def test_an_attack_spends_no_more_than_its_length(script, attack, steps, every):
    victim = script.CASES[0].smoothed(0.1, 1)
    threat = script.Plan(attack, steps, every).threat(victim, 0.3)
    assert threat.within == L2(0.3 / math.sqrt(steps))
    env = adv.wrap(gym.make("CartPole-v1"), threat)
    clean = gym.make("CartPole-v1")
    spent, obs, true = 0.0, env.reset(seed=0)[0], clean.reset(seed=0)[0]
    for t in range(20):
        spent += float(np.square(obs - true, dtype=np.float64).sum())
        obs, true = env.step(t % 2)[0], clean.step(t % 2)[0]
    assert spent == pytest.approx(0.09, rel=0.01)


def test_an_attack_below_its_certificate_is_named(script):
    case = script.CASES[0]
    assert script.broken(case, {"sigma=0.1": row([500.0] * 1000, [100.0, 499.0])}) == []
    wrong = script.broken(case, {"sigma=0.1": row([500.0] * 1000, [3.0, 9.0])})
    assert wrong == ["CartPole, DQN, sigma=0.1, fgsm, 1 step, 1 sigma"]
