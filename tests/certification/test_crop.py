"""The adaptive search of smoothed actions: exact where the truth is known, and below what every attack leaves."""

from __future__ import annotations

import math
from statistics import NormalDist

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers import L2
from adv_wrappers.certification.crop import (
    PossibleSmoothedActions,
    ScoreBounds,
    certify_smoothed_actions,
    possible_within,
)
from adv_wrappers.certification.smoothing import hoeffding
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.victims.smoothed import Smoothed
from tests.core.helpers import actor, chooser, linear, mlp

NORMAL = NormalDist()
SHORT = {"max_episode_steps": 15}


class Steps(gym.Env):
    """Five steps; the observation is ``start``, and the action 0 earns 1."""

    def __init__(self, start: float = 1.0) -> None:
        self.start, self.t = start, 0
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = spaces.Discrete(2)

    def _seen(self):
        return np.array([self.start, self.t, 0, 0], np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), float(action == 0), False, self.t == 5, {}


def make(start: float = 1.0) -> gym.Env:
    return gym.wrappers.TimeLimit(Steps(start), 5)


def threshold(sigma: float, vote: int = 1, q_range: tuple[float, float] | None = None) -> Smoothed:
    """Plays 0 where the first feature is above 0: shares change as fast as they can."""
    inner = chooser(linear(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])), "q", actions=2, select="mode")
    return Smoothed(inner, sigma, vote, q_range=q_range)


def certified(victim, eps, **settings):
    return certify_smoothed_actions(victim, make, eps, 2, least_reward=0.0, **settings)


def lower(found):
    """The certified mean returns, one a length."""
    return [one.lower for one in found]


def test_the_bound_is_exact_but_for_what_is_sampled():
    """At 1, an attack of length 1 reaches the threshold, and 0.9 does not."""
    found = certified(threshold(1.0), [1.1, 0.9, 0.5], exact=True, samples=20_000, env_kwargs=None)
    assert [one.within for one in found] == [L2(0.5), L2(0.9), L2(1.1)]
    assert [one.lower_returns.tolist() for one in found] == [[5.0, 5.0], [5.0, 5.0], [0.0, 0.0]]
    assert all(one.finished == 1 for one in found)


def test_an_agent_that_samples_is_certified_less_far_than_the_exact_one():
    few, many = (lower(certified(threshold(1.0, vote), [0.2, 0.7], samples=20_000)) for vote in (3, 2000))
    assert few == [0.0, 0.0] and many == [5.0, 5.0]
    # 2000 votes err by 0.06 of a share; at 0.9 an attack leaves a share of Phi(0.1), 0.54
    assert lower(certified(threshold(1.0, 2000), [0.9], samples=20_000)) == [0.0]
    attacked = adv.evaluate(threshold(1.0, 2000), make, [pushed(0.7)], 20, quantize=False)
    assert min(attacked.threats[1]["returns"]) >= 5.0
    assert min(adv.evaluate(threshold(1.0, 2000), make, [pushed(1.2)], 20).threats[1]["returns"]) == 0.0


def pushed(eps: float) -> adv.ThreatModel:
    return adv.ThreatModel("observation", lambda x, context: x - torch.tensor([1e3, 0, 0, 0]).to(x), L2(eps))


def test_averages_of_q_values():
    """Q is x and -x within [-2, 2]: clipped, scaled and averaged, it is beaten where the first feature is below 0."""
    victim = threshold(0.5, 1, (-2.0, 2.0))
    found = certified(victim, [0.9, 1.1], exact=True, samples=50_000)
    # the theorem takes what changes fastest, and Q is slower
    most = 2 * 2 * (2000 // 2 + 1)  # states: two episodes, two lengths, max_nodes=2000 with two actions each
    mean, error = 0.73, hoeffding(50_000, 0.05 / (2 * 2 * most))
    reach = 0.5 * (NORMAL.inv_cdf(mean - error) - NORMAL.inv_cdf(1 - mean + error)) / 2
    assert 0.2 < reach < 0.9 and lower(found) == [0.0, 0.0]
    assert lower(certified(victim, [0.95 * reach], exact=True, samples=50_000)) == [5.0]
    assert victim.ref is None and victim.fingerprint() != threshold(0.5).fingerprint()
    assert victim.modules() == victim.victim.modules() != []


def test_the_agent_that_averages_q_values_plays_their_average():
    inner = chooser(linear(torch.tensor([[0.0, 0, 0, 0], [10.0, 0, 0, 0]]), torch.tensor([1.0, 0.0])), "q", actions=2)
    obs = torch.full((1, 4), 0.05, dtype=torch.float64).expand(64, 4)
    voting, clipped, free = (
        Smoothed(inner, 0.2, 501, q_range=q_range) for q_range in (None, (0.0, 1.0), (-100.0, 100.0))
    )
    # the second is the larger one on 40% of copies, and on average if it is clipped at 1; else it is at half of it
    assert voting.act_on(obs, key=torch.arange(64)).float().mean() < 0.1
    assert clipped.act_on(obs, key=torch.arange(64)).float().mean() == 0.0
    assert Smoothed(inner, 0.2, 501, q_range=(-100.0, 100.0)).act_on(3 * obs, key=torch.arange(64)).float().mean() > 0.9
    assert free.act_on(obs, key=torch.arange(64)).float().mean() < 0.1
    with pytest.raises(VictimError, match="q_range is for Q-values"):
        Smoothed(chooser(mlp(4, 3)), 0.2, q_range=(0, 1))
    with pytest.raises(ValueRangeError, match="the least and the largest"):
        Smoothed(inner, 0.2, q_range=(1, 1))


@pytest.mark.slow
def test_no_attack_leaves_less_than_is_certified():
    victim = Smoothed(adv.load_victim("zoo:cartpole-dqn"), 0.05, 300)
    eps = (0.002, 0.2)
    found = certify_smoothed_actions(victim, "CartPole-v1", eps, 1, samples=400, max_nodes=300, env_kwargs=SHORT)
    assert found[0].lower > max(found[1].lower, 11)
    for length, one in zip(eps, found, strict=True):
        threats = [adv.threat(name, victim, within=L2(length)) for name in ("fgsm", "min-best")]
        threats += [adv.threat("pgd", victim.victim, within=L2(length))]
        report = adv.evaluate(victim, "CartPole-v1", threats, 1, env_kwargs=SHORT)
        for row in report.threats:
            assert (np.array(row["returns"]) >= one.lower_returns).all(), (length, row["threat"])


def test_bounds_of_a_state_are_drawn_once_and_hold_together():
    scores = ScoreBounds(threshold(1.0), 500, 0, 0.05, 3)
    seen = np.zeros((5, 4))
    seen[:, 0] = [0.0, 1.0, 0.0, -1.0, 2.0]
    low, high = scores.at(seen)
    assert torch.equal(low[0], low[2]) and scores.states == 3
    assert low[4].tolist() == [0.0, 0.0] and high[4].tolist() == [1.0, 1.0]  # beyond the number nothing is known
    truth = torch.tensor([NORMAL.cdf(x) for x in (0.0, 1.0, 0.0, -1.0)])
    assert ((low[:4, 0] <= truth) & (truth <= high[:4, 0])).all() and (high - low)[:4].max() < 0.3
    again = scores.at(seen[[1]])
    assert torch.equal(again[0][0], low[1])
    possible, ranks = PossibleSmoothedActions(scores, 0.3, 0.0).at(seen)
    assert possible.tolist() == [[True, True], [True, False], [True, True], [False, True], [True, True]]
    assert ranks.shape == (5, 2)
    one_by_one = ScoreBounds(threshold(1.0), 500, 0, 0.05, 3)
    each = [one_by_one.at(seen[[i]])[0][0] for i in range(4)]
    assert torch.equal(torch.stack(each), low[:4])  # a state's noise depends on its number alone


@pytest.mark.parametrize("actions", [2, 4])
def test_possible_actions_are_those_that_no_other_beats_for_certain(actions):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(200, actions, generator=generator, dtype=torch.float64)
    low, high = (scores - 0.1).clamp(min=0), (scores + 0.1).clamp(max=1)
    for length, error in ((0.0, 0.0), (0.3, 0.0), (0.3, 0.05), (9.0, 0.0)):
        found = possible_within(low, high, length, error)
        assert found.any(1).all() and found[torch.arange(200), scores.argmax(1)].all()
        # whatever scores there are within the bounds, moved by at most the length
        for _ in range(20):
            true = low + (high - low) * torch.rand(low.shape, generator=generator, dtype=torch.float64)
            move = length * (2 * torch.rand(low.shape, generator=generator, dtype=torch.float64) - 1)
            told = torch.special.ndtr(torch.special.ndtri(true) + move)
            told += error * (2 * torch.rand(low.shape, generator=generator, dtype=torch.float64) - 1)
            assert found[torch.arange(200), told.argmax(1)].all()
    assert possible_within(low, high, 9.0, 0.0).all()
    wider = [possible_within(low, high, length, 0.0).sum().item() for length in (0.0, 0.1, 0.5)]
    assert wider == sorted(wider) and wider[0] < wider[-1]


def test_certificates_say_what_they_are_of():
    (found,) = certified(threshold(1.0), [0.5], exact=True, max_nodes=30)
    told = found.to_dict()
    assert told["lower"] == found.lower == 5 and told["within"] == {"type": "l2", "eps": 0.5} and told["clean"] is None
    assert found.method == "1000 draws at each of 5 states, confidence 0.95, exact" and "lower 5" in repr(found)
    seen = list[int]()
    certified(
        threshold(1.0), [0.5, 0.1], exact=True, progress=lambda what, done, count: seen.append((what, done, count))
    )
    assert seen == [("search", i, 4) for i in range(1, 5)]
    (again,) = certified(threshold(1.0), [0.5], exact=True, max_nodes=30)
    assert np.array_equal(again.lower_returns, found.lower_returns)


def test_what_is_refused():
    def run(victim=None, env=make, eps=(0.1,), **settings):
        return certify_smoothed_actions(victim or threshold(1.0), env, eps, 1, **{"least_reward": 0.0, **settings})

    sampled = Smoothed(chooser(mlp(4, 3), select="sample"), 0.1)
    for error, wrong, match in [
        (VictimError, lambda: run("zoo:cartpole-dqn", "CartPole-v1"), "a victim with noise"),
        (VictimError, lambda: run(Smoothed(actor(mlp(4, 3)), 0.1)), "discrete ones"),
        (VictimError, lambda: run(sampled, env=lambda: spaced(3)), "plays its mode"),
        (ValueRangeError, lambda: run(eps=()), "at least one eps"),
        (ValueRangeError, lambda: run(eps=(-0.1,)), "eps"),
        (ValueRangeError, lambda: run(confidence=1.0), "confidence"),
        (ValueRangeError, lambda: run(max_nodes=None), "union bound"),
        (ValueRangeError, lambda: run(env=Steps), "max_episode_steps"),
    ]:
        with pytest.raises(error, match=match):
            wrong()
    assert run(env=Steps, exact=True)[0].lower >= 0.0


def spaced(actions: int) -> gym.Env:
    env = make()
    env.unwrapped.action_space = spaces.Discrete(actions)
    return env


def test_more_samples_certify_no_other_thing():
    """The level of a bound is shared among all states, so that many states cost little."""
    assert hoeffding(1000, 1e-6) < 1.5 * hoeffding(1000, 1e-3)
    assert math.isclose(hoeffding(200, math.exp(-4)), 0.1)
