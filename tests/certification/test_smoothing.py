"""Certificates of smoothed agents: exact where the truth is known, and below what every attack leaves."""

from __future__ import annotations

import itertools
from statistics import NormalDist

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TransformReward

import adv_wrappers as adv
from adv_wrappers.certification.smoothing import SmoothedCertificate, certify_smoothed
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.victims.smoothed import Smoothed
from tests.core.helpers import chooser, linear
from tests.evaluation.agents import make_short
from tests.toys import Brief

NORMAL = NormalDist()


class OneLook(Brief):
    """One step: the observation is ``start``, and the action 0 earns 1."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Discrete(2)
    steps, cut = 1, False

    def __init__(self, start: float = 1.0) -> None:
        self.start = start

    def seen(self):
        return np.array([self.start, 0, 0, 0])

    def act(self, action):
        return action == 0


def threshold(sigma: float, vote: int = 1) -> Smoothed:
    """Plays 0 where the first feature is above 0: the worst case of the theorem, which it is tight for."""
    return Smoothed(chooser(linear(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])), "q", actions=2), sigma, vote)


def test_the_whole_certificate_fails_as_rarely_as_stated():
    """Of uniform returns: the certified distribution function is above the true one in at most 5% of the samples."""
    random, fails = np.random.default_rng(0), 0
    for _ in range(200):
        found = SmoothedCertificate(random.random(60), 1.0, 0.0)
        returns, chances = found.thresholds
        fails += bool((chances > 1 - returns).any())
    assert fails <= 10


def test_returns_that_repeat_give_valid_bounds():
    """Of returns of 0 and 1, which have ties at every rank."""
    random, fails = np.random.default_rng(0), 0
    for _ in range(200):
        found = SmoothedCertificate(random.random(60) < 0.8, 1.0, 0.0)
        fails += found.certified_return(0.0) > 0.8
    assert fails <= 10


def test_the_sum_over_thresholds():
    found = SmoothedCertificate([-3.0, 5.0], 0.5, -4.0, confidence=0.5)
    level = 0.25
    low, high = level**0.5, 1 - (1 - level) ** 0.5  # of two and of one success in two trials (Clopper and Pearson)
    assert found.certified_return(0.0) == pytest.approx(-4 + low + 8 * high)
    shift = lambda p: NORMAL.cdf(NORMAL.inv_cdf(p) - 0.3 / 0.5)  # noqa: E731
    assert found.certified_return(0.3) == pytest.approx(-4 + shift(low) + 8 * shift(high))
    chances = [found.certified_probability(c, 0.3) for c in (-4, -3.5, -3, 0, 5, 5.1)]
    assert chances == pytest.approx([1, shift(low), shift(low), shift(high), shift(high), 0])


def test_certificates_fall_with_length_rise_with_sigma_and_never_leave_what_is_possible():
    random = np.random.default_rng(0)
    returns = random.normal(100, 30, 500).clip(0)
    found, wider = SmoothedCertificate(returns, 0.1, 0.0), SmoothedCertificate(returns, 0.2, 0.0)
    curve = [found.certified_return(eps) for eps in np.linspace(0, 3, 40)]
    assert all(a > b or b == 0 for a, b in itertools.pairwise(curve)) and min(curve) >= 0
    assert 80 < curve[0] < returns.mean() and curve[-1] < 1e-3
    assert wider.certified_return(0.2) == pytest.approx(found.certified_return(0.1))
    voting = SmoothedCertificate(returns, 0.1, 0.0, vote=4)
    assert voting.certified_return(0.1) == pytest.approx(found.certified_return(0.2))


def test_the_worst_attack_leaves_no_less_than_certified_and_hardly_more():
    """On one look the theorem is tight: shifting the feature by eps leaves ``Phi((start - eps) / sigma)``."""
    found = certify_smoothed(threshold(1.0), OneLook, 2000, least=0.0, num_envs=500)
    for eps in (0.0, 0.5, 1.0, 1.5):
        truth = NORMAL.cdf(1.0 - eps)
        assert truth - 0.05 < found.certified_return(eps) <= truth + 0.005
    moved = adv.evaluate(threshold(1.0), lambda: OneLook(0.0), [], episodes=500, num_envs=500, seed=1)  # by 1
    assert moved.threats[0]["mean_return"] == pytest.approx(0.5, abs=0.06)


def test_the_least_return_is_that_of_the_environment_at_hand_or_the_users():
    found = certify_smoothed("smoothed:zoo:mountaincar-dqn?sigma=0.001", "MountainCar-v0", 4)
    assert (found.least, found.sigma, found.seed) == (-200.0, 0.001, 0) and found.certified_return(0.0) > -200
    assert SmoothedCertificate(**found.to_dict()) == found
    car = "smoothed:zoo:mountaincar-dqn?sigma=0.001"
    longer = certify_smoothed(car, "MountainCar-v0", 1, env_kwargs={"max_episode_steps": 210})
    made = certify_smoothed(car, "MountainCar-v0", 1, env_kwargs={"steps": 220}, make=make_short)
    assert (longer.least, made.least) == (-210.0, -220.0)
    fall = certify_smoothed(
        "smoothed:zoo:cartpole-dqn?sigma=2", "CartPole-v1", 4, env_kwargs={"sutton_barto_reward": True}
    )
    assert fall.least == -1.0 and set(fall.returns) == {-1.0}
    with pytest.raises(ValueRangeError, match="give least="):
        certify_smoothed(threshold(1.0), OneLook, 4)
    with pytest.raises(ValueRangeError, match="give least="):
        certify_smoothed(
            "smoothed:zoo:cartpole-dqn?sigma=0.1", lambda: TransformReward(gym.make("CartPole-v1"), lambda r: r - 2), 4
        )
    with pytest.raises(ValueRangeError, match=r"below least=0\.5"):
        certify_smoothed(threshold(9.0), OneLook, 20, least=0.5)


def test_what_is_refused():
    with pytest.raises(VictimError, match="a victim with noise"):
        certify_smoothed("zoo:cartpole-dqn", "CartPole-v1")
    known = SmoothedCertificate([1.0], 0.1, 0.0)
    for wrong, match in [
        (lambda: SmoothedCertificate([], 0.1, 0.0), "at least one return"),
        (lambda: SmoothedCertificate([np.nan], 0.1, 0.0), "all finite"),
        (lambda: SmoothedCertificate([1.0], 0.0, 0.0), "sigma must be"),
        (lambda: SmoothedCertificate([1.0], 0.1, -np.inf), "least must be"),
        (lambda: SmoothedCertificate([1.0], 0.1, 0.0, 0), "vote must be"),
        (lambda: SmoothedCertificate([1.0], 0.1, 0.0, 1, 1.0), "confidence must be"),
        (lambda: known.certified_return(-1.0), "eps must be"),
        (lambda: known.certified_probability(1.0, np.nan), "eps must be"),
        (lambda: certify_smoothed("smoothed:zoo:cartpole-dqn?sigma=1", "CartPole-v1", confidence=0), "confidence must"),
    ]:
        with pytest.raises(ValueRangeError, match=match):
            wrong()
