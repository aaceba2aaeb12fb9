"""Smoothed victims: noise of their own that can be repeated, and an average over other noise for attackers."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers import from_module, load_victim
from adv_wrappers.core import rng
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.training.models.robust_sarsa import exploring_victim
from adv_wrappers.victims import Victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.smoothed import Smoothed
from tests.core.helpers import actor, box, chooser, linear, mlp, randn
from tests.rigs import ReplayEnv
from tests.victims.helpers import check_adversary_repeats, rows_of_short_episodes

KEYS = rng.as_tensor(rng.roots([rng.root(i) for i in range(4000)]), 4000, torch.device("cpu"))


def identity(size: int = 3) -> adv.Victim:
    """Plays what it sees."""
    return actor(linear(torch.eye(size, dtype=torch.float64)), "mean", size=size, actions=size)


def test_the_noise_is_normal_of_the_stated_size_and_has_no_mean():
    victim, obs = Smoothed(identity(), 0.5), torch.full((4000, 3), 2.0, dtype=torch.float64)
    noise = (victim.act_on(obs, key=KEYS) - obs) / 0.5
    assert abs(noise.mean()) < 0.03 and abs(noise.std() - 1) < 0.03
    within = (noise.abs() < 1).double().mean()
    assert abs(within - 0.6827) < 0.015
    assert abs(torch.corrcoef(noise.T)[0, 1]) < 0.05


@pytest.mark.parametrize("scale", [(2.0, 0.5, 1.0), "victim"])
def test_the_unit_of_every_feature(scale):
    inner = actor(linear(torch.eye(3)), "mean", 3, 3, scale=torch.tensor([2.0, 0.5, 1.0]))
    victim, obs = Smoothed(inner, 0.1, scale=scale), torch.zeros(4000, 3, dtype=torch.float64)
    assert victim.act_on(obs, key=KEYS).std(0) == pytest.approx([0.2, 0.05, 0.1], rel=0.05)


def test_noise_depends_on_seed_and_step_alone_and_clean_and_attacked_steps_share_it():
    victim = Smoothed(load_victim("zoo:cartpole-dqn"), 0.3)
    whole, part = PolicyRunner(victim, 6), PolicyRunner(victim, 2)
    obs = np.random.default_rng(0).normal(size=(6, 4)) * 0.05
    seeds = [3, 4, 5, 6, 7, 8]
    whole.reset(None, seeds)
    part.reset(None, [6, 4])
    played = []
    for _ in range(30):
        assert np.array_equal(whole.peek(obs), whole.peek(obs))
        played.append(whole.act(obs))
        assert part.act(obs[[3, 1]]).tolist() == played[-1][[3, 1]].tolist()
    assert len({tuple(row) for row in np.array(played).T}) == 6  # rows have noise of their own
    assert all(len(set(row)) == 2 for row in np.array(played).T.tolist())  # and steps


def test_the_agent_shares_no_noise_with_its_attacker_who_sees_the_same_twice():
    victim = Smoothed(identity(), 1.0, samples=4)
    obs = torch.zeros(2, 3, dtype=torch.float64)
    noisy, _ = victim.noisy(obs, KEYS[:2], 4)
    own = victim._averaged(obs, lambda x: x)
    assert not torch.isclose(noisy.view(2, 4, 3), own).any()
    assert torch.equal(victim.params(obs), victim.params(obs)) and torch.equal(own[0], own[1])
    assert torch.allclose(own.sum(1), torch.zeros(2, 3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("kind", ["q", "logits", "mean", "gaussian"])
def test_attackers_see_the_average_over_noise(kind):
    inner = (chooser if kind in ("q", "logits") else actor)(mlp(4, 6 if kind == "gaussian" else 3), kind)
    victim, obs = Smoothed(inner, 0.3, samples=2000), randn(2, 4)
    many = inner.params((obs[:, None] + 0.3 * rng.normal(KEYS, (4,), torch.float64)).flatten(0, 1)).view(2, 4000, -1)
    expected = many.softmax(-1).mean(1).log() if kind == "logits" else many.mean(1)
    assert victim.params(obs) == pytest.approx(expected, abs=0.1)
    assert (victim.params(obs) - inner.params(obs)).abs().max() > 0.12
    assert torch.equal(Smoothed(inner, 0.3, samples=0).params(obs), inner.params(obs))
    assert victim.has_value == inner.has_value and (kind != "q" or victim.value(obs).shape == (2,))


def test_the_gradient_is_that_of_the_average():
    victim, obs = Smoothed(chooser(mlp(4, 3)), 0.3, samples=6), randn(5, 4)
    found = victim.gradient(lambda params: params[:, 0])(obs)
    step = 1e-6 * torch.eye(4, dtype=torch.float64)
    rise = [(victim.params(obs + e)[:, 0] - victim.params(obs - e)[:, 0]) / 2e-6 for e in step]
    assert found == pytest.approx(torch.stack(rise, 1), abs=1e-6)


def test_masked_logits_stay_without_a_chance_and_gradients_finite():
    class Masked(nn.Module):
        def forward(self, obs):
            return torch.stack([obs[:, 0], obs[:, 1], torch.full_like(obs[:, 0], -torch.inf)], 1)

    victim = Smoothed(chooser(Masked(), dtype=torch.float64), 0.3)
    obs = randn(5, 4)
    assert (victim.params(obs)[:, 2] < -1e29).all()
    assert torch.isfinite(victim.gradient(lambda params: params[:, 0] - params[:, 1])(obs)).all()


def test_a_vote_is_the_majority_and_rarely_another_than_the_expected_action():
    inner = chooser(linear(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0], [-9.0, 0, 0, 0]])), "q")
    obs = torch.full((4000, 4), 0.5, dtype=torch.float64)
    one, many = (Smoothed(inner, 1.0, vote).act_on(obs, key=KEYS) for vote in (1, 25))
    assert float((one == 0).double().mean()) == pytest.approx(0.6915, abs=0.02)  # Phi(1/2)
    assert float((many == 0).double().mean()) > 0.96
    noisy, _ = Smoothed(inner, 1.0, 25).noisy(obs, KEYS, 25)
    assert torch.equal(many, inner.act_on(noisy).view(4000, 25).mode(1).values)


def test_votes_of_several_discrete_numbers_and_of_starts():
    seen = box(2)
    numbers = spaces.MultiDiscrete([2, 3], start=[5, -1])
    net = linear(torch.tensor([[1.0, 0], [-1, 0], [0, 9], [0, 0], [0, -9.0]]))
    victim = Smoothed(from_module(net, seen, numbers, "logits"), 0.1, 9)
    assert victim.act_on(np.array([[1.0, 1.0], [-1.0, -1.0]]), key=KEYS[:2]).tolist() == [[5, -1], [6, 1]]
    shifted = Smoothed(from_module(linear(torch.eye(2)), seen, spaces.Discrete(2, start=7), "q"), 0.1, 9)
    assert shifted.act_on(np.array([[1.0, 0.0], [0.0, 1.0]]), key=KEYS[:2]).tolist() == [7, 8]
    assert victim.params(torch.zeros(2, 2)).shape == (2, 5)


def test_an_agent_that_samples_does_so_under_noise_too():
    inner = chooser(linear(torch.zeros(3, 4)), select="sample")
    played = Smoothed(inner, 0.1).act_on(torch.zeros(4000, 4, dtype=torch.float64), key=KEYS)
    assert torch.bincount(played) / 4000 == pytest.approx([1 / 3] * 3, abs=0.03)


def test_boxes_of_a_dictionary_get_noise_and_other_leaves_none():
    space = spaces.Dict({"image": spaces.Box(0, 255, (2, 2), np.uint8), "room": spaces.Discrete(4), "speed": box(1)})
    seen = []

    def net(obs):
        seen.append(obs)
        return torch.cat([obs["image"].flatten(1).mean(1, keepdim=True), obs["speed"]], 1).float()

    victim = Smoothed(from_module(net, space, spaces.Discrete(2), "q"), 2.0, 3, samples=5)
    obs = {"image": np.zeros((2, 2, 2), np.uint8), "room": np.array([1, 3]), "speed": np.ones((2, 1))}
    assert victim.act_on(obs, key=KEYS[:2]).shape == (2,)
    shown = seen[-1]
    assert shown["image"].shape == (6, 2, 2) and (shown["image"] < 0).any()  # not clipped
    assert shown["room"].tolist() == [1, 1, 1, 3, 3, 3] and shown["speed"].std() > 0.5
    assert not np.isclose(shown["image"][0, 0], shown["speed"][0] - 1).any()  # leaves do not share draws
    assert victim.params(obs).shape == (2, 2)


@pytest.mark.parametrize("at", ["image", "speed"])
def test_attacks_on_one_key_of_a_dictionary_go_through_the_noise(at):
    space = spaces.Dict({"image": spaces.Box(0, 255, (2, 2), np.uint8), "speed": box(1)})

    def net(obs):
        both = torch.cat([obs["image"].flatten(1) / 50, 3 * obs["speed"]], 1).float()
        return torch.stack([both.tanh().sum(1), -both.tanh().sum(1)], 1)

    victim = Smoothed(from_module(net, space, spaces.Discrete(2), "q"), 1.0)
    recording = [[{"image": np.full((2, 2), 9, np.uint8), "speed": np.array([0.1])}] * 4]
    env = adv.wrap(ReplayEnv(recording, space, spaces.Discrete(2)), adv.threat("pgd", victim, eps=3.0, at=at))
    shown = env.reset(seed=0)[0]
    assert all(np.array_equal(shown[key], recording[0][0][key]) == (key != at) for key in shown)
    before, after = (victim.params({k: v[None] for k, v in obs.items()})[0, 0] for obs in (recording[0][0], shown))
    assert after < before - 0.1


def test_references_fingerprints_copies_and_pickles():
    inner = load_victim("zoo:cartpole-dqn")
    victim = Smoothed(inner, 0.1, 5, scale=2.0)
    assert victim.ref == "smoothed:zoo:cartpole-dqn?sigma=0.1&vote=5&scale=2.0"
    read = load_victim(victim.ref)
    assert isinstance(read, Smoothed) and read.fingerprint() == victim.fingerprint() and read.card == inner.card
    others = [Smoothed(inner, 0.2), Smoothed(inner, 0.1), Smoothed(inner, 0.1, samples=4), inner]
    assert len({one.fingerprint() for one in (victim, *others)}) == 5
    assert Smoothed(inner, 0.1, scale=[1, 1, 2, 2]).ref is None
    assert copy.deepcopy(victim) is victim and pickle.loads(pickle.dumps(victim)).fingerprint() == read.fingerprint()
    threat = adv.threat("pgd", victim, eps=0.05)
    assert adv.ThreatModel.from_dict(json.loads(json.dumps(threat.to_dict())), adv.load_victim).victims[0].vote == 5
    again = load_victim("smoothed:zoo:cartpole-a2c?sigma=0.1", select="sample")
    assert again.victim.select == "sample"
    assert repr(victim).startswith("<Smoothed, sigma=0.1, 5 votes, of <")


def test_it_is_evaluated_and_attacked_like_any_other_and_twice_the_same():
    victim = "smoothed:zoo:cartpole-dqn?sigma=0.05&samples=4"
    one = rows_of_short_episodes(victim, ["pgd:eps=0.3,steps=2,restarts=1", "square:eps=0.3,queries=4"])
    assert one[0]["mean_return"] == 20 and one[1]["mean_return"] < 18


def test_an_adversary_plays_against_it_as_it_is_deployed():
    check_adversary_repeats("smoothed:zoo:cartpole-dqn?sigma=0.2")


def test_a_critic_explores_around_the_noise():
    for kind, outputs in (("gaussian", 6), ("mean", 3)):
        victim = Smoothed(actor(mlp(4, outputs), kind), 1e-6)
        other = exploring_victim(victim, 0.3)
        obs = torch.zeros(4000, 4, dtype=torch.float64)
        assert (other.act_on(obs, key=KEYS) - victim.act_on(obs, key=KEYS)).abs().mean() > 0.1


def test_what_is_refused():
    inner = load_victim("zoo:cartpole-dqn")
    room = Victim(spaces.Discrete(2), spaces.Discrete(2), "q")
    start = lambda rows: torch.zeros(rows, 1)  # noqa: E731
    recurrent = from_module(lambda obs, state: (obs, state), box(2), spaces.Discrete(2), "q", initial_state=start)
    for wrong, match in [
        (lambda: Smoothed("zoo:cartpole-dqn", 0.1), "expected a victim"),
        (lambda: Smoothed(recurrent, 0.1), "without a hidden state"),
        (lambda: Smoothed(room, 0.1), "added to a Box"),
        (lambda: Smoothed(identity(), 0.1, 3), "majority"),
        (lambda: Smoothed(inner, 0.1, scale="victim"), "unit of its own"),
        (lambda: Smoothed(inner, 0.1, scale=[1.0, 2.0]), "scale has 2 numbers"),
        (lambda: Smoothed(inner, 0.1).act(torch.zeros(1, 2)), "acts on noisy observations"),
        (lambda: Smoothed(inner, 0.1).act_on(np.zeros((1, 4))), "one key per row"),
        (lambda: load_victim("smoothed:zoo:cartpole-dqn"), "REFERENCE"),
        (lambda: load_victim("smoothed:zoo:cartpole-dqn?vote=3"), "REFERENCE"),
        (lambda: load_victim("smoothed:zoo:cartpole-dqn?sigma=0.1&noise=3"), "REFERENCE"),
    ]:
        with pytest.raises(VictimError, match=match):
            wrong()
    for wrong, match in [
        (lambda: Smoothed(inner, 0.0), "sigma must be"),
        (lambda: Smoothed(inner, 0.1, 0), "vote must be"),
        (lambda: Smoothed(inner, 0.1, samples=-1), "samples must be"),
        (lambda: Smoothed(inner, 0.1, scale=-1.0), "scale must be"),
        (lambda: load_victim("smoothed:zoo:cartpole-dqn?sigma=much"), "sigma must be"),
    ]:
        with pytest.raises(ValueRangeError, match=match):
            wrong()
