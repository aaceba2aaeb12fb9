"""Actions by certified lower bound: sound bounds, the best worst case, and attacks that pass through the defence."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers import Linf, from_module, load_victim
from adv_wrappers.errors import BudgetError, ValueRangeError, VictimError
from adv_wrappers.victims.carrl import LowerBound
from tests.core.helpers import actor, box, chooser, linear, mlp, randn

METHODS = ("interval", "crown", "full-crown")


@pytest.mark.parametrize("method", METHODS)
def test_no_true_observation_within_the_budget_has_a_lower_value(method):
    inner, seen = chooser(mlp(4, 3), "q"), randn(20, 4)
    victim = LowerBound(inner, Linf(0.1), method)
    least, chosen = victim.params(seen), victim.act_on(seen)
    assert torch.equal(chosen, least.argmax(-1))
    truth = seen[:, None] + 0.1 * (2 * torch.rand(20, 300, 4, dtype=torch.float64) - 1)
    values = inner.params(truth.flatten(0, 1)).view(20, 300, 3)
    assert (values >= least[:, None] - 1e-9).all()


def test_the_worst_case_decides_and_not_what_is_seen():
    """Action 0 is worth more where it is seen, and far less next to it; action 1 is worth the same everywhere."""
    net = linear(torch.tensor([[9.0, 0, 0, 0], [0.0, 0, 0, 0]]), torch.tensor([5.0, 4.0]))
    inner, seen = chooser(net, "q", actions=2), torch.zeros(1, 4, dtype=torch.float64)
    assert inner.act_on(seen).item() == 0
    assert [LowerBound(inner, Linf(eps)).act_on(seen).item() for eps in (0.0, 0.1, 0.12)] == [0, 0, 1]
    scaled = [LowerBound(inner, Linf(0.12, scale)).act_on(seen).item() for scale in ((0.5, 1, 1, 1), 2.0)]
    assert scaled == [0, 1]


@pytest.mark.parametrize("method", METHODS)
def test_without_a_radius_it_is_the_agent(method):
    inner, seen = load_victim("zoo:cartpole-dqn"), randn(50, 4, dtype=torch.float32) * 0.05
    victim = LowerBound(inner, Linf(0.0), method)
    assert victim.params(seen) == pytest.approx(inner.params(seen), abs=1e-4)
    assert torch.equal(victim.q(seen), inner.q(seen)) and victim.value(seen).shape == (50,)


def test_the_box_ends_with_the_space_and_holds_what_is_seen_beyond():
    space = spaces.Box(0.0, 1.0, (1,), np.float64)
    inner = from_module(linear(torch.tensor([[1.0], [-1.0]])), space, spaces.Discrete(2), "q")
    victim = LowerBound(inner, Linf(0.5), "interval")
    assert victim.params(torch.tensor([[0.2], [0.7], [1.2]])).tolist() == pytest.approx(
        torch.tensor([[0.0, -0.7], [0.2, -1.0], [0.7, -1.2]])
    )
    gradient = victim.gradient(lambda params: params[:, 0])(torch.tensor([[0.2], [0.7]]))
    assert gradient.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_the_bounds(method):
    victim, seen = LowerBound(chooser(mlp(4, 3), "q"), Linf(0.05), method), randn(3, 4)
    found = victim.gradient(lambda params: params[:, 1])(seen)
    step = 1e-6 * torch.eye(4, dtype=torch.float64)
    rise = torch.stack([(victim.params(seen + e) - victim.params(seen - e))[:, 1] / 2e-6 for e in step], 1)
    assert found == pytest.approx(rise, abs=1e-4)


def test_images_and_their_unit():
    torch.manual_seed(0)
    space = spaces.Box(0, 255, (1, 6, 6), np.uint8)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))
    inner = from_module(net, space, spaces.Discrete(3), "q")
    victim = LowerBound(inner, Linf(2.0), "interval")
    seen = np.random.default_rng(0).integers(0, 256, (2, 1, 6, 6), np.uint8)
    values = torch.as_tensor(seen).float()
    assert (victim.params(seen) < inner.params(values)).all() and victim.act_on(seen).shape == (2,)


def test_attacks_and_references():
    victim = load_victim("lower-bound:zoo:cartpole-dqn?eps=0.02&method=interval")
    assert isinstance(victim, LowerBound) and victim.within == Linf(0.02)
    assert victim.ref == "lower-bound:zoo:cartpole-dqn?eps=0.02&method=interval"
    again = load_victim("lower-bound:zoo:cartpole-dqn?eps=0.01&scale=2.0")
    assert again.within == Linf(0.01, 2.0) and again.method == "crown" and load_victim(again.ref).ref == again.ref
    assert len({victim.fingerprint(), again.fingerprint(), load_victim("zoo:cartpole-dqn").fingerprint()}) == 3
    assert pickle.loads(pickle.dumps(victim)).fingerprint() == victim.fingerprint()
    short = {"max_episode_steps": 30}
    threats = ["pgd:eps=0.4,restarts=1,steps=5", "min-q:eps=0.1,steps=2", "worst-action:p=1"]
    rows = adv.evaluate(victim, "CartPole-v1", threats, episodes=2, env_kwargs=short).threats
    assert rows[0]["mean_return"] == 30 and rows[1]["mean_return"] < 20 and rows[3]["mean_return"] < 20
    threat = adv.threat("pgd", victim, eps=0.1)
    read = adv.ThreatModel.from_dict(json.loads(json.dumps(threat.to_dict())), adv.load_victim).victims[0]
    assert read.ref == victim.ref and repr(read).startswith("<LowerBound, Linf(eps=0.02")
    assert LowerBound(load_victim("zoo:cartpole-dqn"), Linf(0.1, (1, 1, 2, 2))).ref is None


def test_what_is_refused():
    inner = load_victim("zoo:cartpole-dqn")
    sine = from_module(lambda obs: obs[:, :2].sin(), box(4), spaces.Discrete(2), "q")
    for wrong, match in [
        (lambda: LowerBound("zoo:cartpole-dqn", Linf(0.1)), "expected a victim"),
        (lambda: LowerBound(load_victim("zoo:cartpole-ppo"), Linf(0.1)), "lower bounds are of Q-values"),
        (lambda: LowerBound(actor(mlp(4, 3)), Linf(0.1)), "lower bounds are of Q-values"),
        (lambda: LowerBound(sine, Linf(0.1)), "torch module"),
        (lambda: LowerBound(chooser(nn.Sequential(nn.Linear(4, 3), nn.Mish()), "q"), Linf(0.1)), "Mish"),
        (lambda: load_victim("lower-bound:zoo:cartpole-dqn"), "REFERENCE"),
        (lambda: load_victim("lower-bound:zoo:cartpole-dqn?eps=0.1&sigma=2"), "REFERENCE"),
    ]:
        with pytest.raises(VictimError, match=match):
            wrong()
    for wrong, match in [
        (lambda: LowerBound(inner, 0.1), "within must be an Linf"),
        (lambda: LowerBound(inner, Linf(0.1), "bisect"), "method must be"),
    ]:
        with pytest.raises(ValueRangeError, match=match):
            wrong()
    for wrong, match in [
        (lambda: LowerBound(inner, Linf(0.1, "victim")), "needs a victim with a unit"),
        (lambda: LowerBound(inner, Linf(0.1, (1, 2))), "scale has 2 numbers"),
        (lambda: load_victim("lower-bound:zoo:cartpole-dqn?eps=much"), "eps must be"),
    ]:
        with pytest.raises(BudgetError, match=match):
            wrong()
