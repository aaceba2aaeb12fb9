"""One critic: the transitions it learns from, values known in closed form, resuming, and folders."""

from __future__ import annotations

import copy
import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers import RobustSarsa, from_module
from adv_wrappers.core.serialization import decode
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.training.folder import described_victim
from adv_wrappers.training.models import robust_sarsa
from adv_wrappers.training.models.robust_sarsa import (
    CriticSettings,
    CriticTraining,
    ReturnStatistics,
    SarsaBatch,
    TransitionCollector,
    exploring_victim,
)
from adv_wrappers.victims.auxiliary_networks import Critic
from tests.core.helpers import actor, chooser, linear, mlp, randn
from tests.every_case import every_case
from tests.training.toys import ACTED, SEEN, Stopped, Toy, Unplayed, one_critic, toy_victim

# its environments and agents are functions, which folders cannot tell apart
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot tell a victim that is a function:RuntimeWarning")


class Clock(gym.Env):
    """Shows (number of the episode, t); odd episodes end after three steps, even ones are cut after two."""

    observation_space, action_space = SEEN, ACTED

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.t = int(self.np_random.integers(1000)), 0
        return np.array([self.number, self.t], np.float64), {}

    def step(self, action):
        self.t += 1
        odd = self.number % 2 == 1
        end = odd and self.t == 3, not odd and self.t == 2
        return np.array([self.number, self.t], np.float64), float(self.t), *end, {}


def actions_of(critic, s0, choices=(-1.0, 0.0, 1.0)):
    """Q ``[states, choices]`` of actions in states whose first feature is ``s0``."""
    obs = torch.stack([torch.tensor(s0), torch.zeros(len(s0))], -1).double()
    return torch.stack([critic(obs, torch.full((len(s0), 1), a, dtype=torch.float64)) for a in choices], -1)


@pytest.fixture(scope="module", autouse=True)
def few_epochs():
    """Two epochs a round instead of ten: most tests ask nothing of what a critic has learned."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(robust_sarsa, "EPOCHS", 2)
        yield


# transitions


@pytest.mark.parametrize("kind", ["mean", "gaussian"])
def test_no_successor_crosses_the_end_of_an_episode(kind):
    weight = torch.tensor([[0.0, 0.1]] if kind == "mean" else [[0.0, 0.1], [0.0, 0.0]], dtype=torch.float64)
    bias = torch.tensor([0.0] if kind == "mean" else [0.0, -5.0], dtype=torch.float64)
    victim = exploring_victim(from_module(linear(weight, bias), SEEN, ACTED, kind), 0.01)
    collector = TransitionCollector(Clock, victim, 3, (0,))
    first, second = collector.collect(9), collector.collect(4)
    assert np.array_equal(first.next_obs[..., 0], first.obs[..., 0])  # of the same episode
    assert (
        np.array_equal(first.next_obs[..., 1], first.obs[..., 1] + 1) and (first.reward == first.obs[..., 1] + 1).all()
    )
    odd = first.obs[..., 0] % 2 == 1
    assert np.array_equal(first.ended, odd & (first.obs[..., 1] == 2)) and first.ended.any()
    assert (
        np.array_equal(first.over & ~first.ended, ~odd & (first.obs[..., 1] == 1)) and (first.over & ~first.ended).any()
    )
    going = ~first.over
    acts = np.concatenate([first.act, second.act])[1 : len(first.act) + 1]
    assert np.array_equal(first.next_act[going], acts[going])  # Sarsa: what is done there, also in the next call
    cut = first.over & ~first.ended
    away = np.abs(first.next_act[..., 0] - 0.1 * first.next_obs[..., 1])
    assert (away[cut] < 0.1).all() and (away[cut] > 0).all() and (first.next_act[first.ended] == 0).all()
    assert {*first.returns} <= {6.0, 3.0} and len(first.returns) == first.over.sum()
    collector.venv.close()


def test_noise_is_a_fraction_of_half_the_range_and_clipped():
    taken = TransitionCollector(Toy, exploring_victim(toy_victim(((0.0, 0.0),)), 0.25), 4, (0,)).collect(150)
    assert abs(taken.act.std() - 0.5) < 0.05
    wide = TransitionCollector(Toy, exploring_victim(toy_victim(((0.0, 0.0),)), 5.0), 4, (0,)).collect(5)
    assert np.abs(wide.act).max() == 2.0


def test_the_running_deviation_of_returns():
    rng = np.random.default_rng(0)
    reward, over = rng.normal(1, 3, (40, 2)), rng.random((40, 2)) < 0.1
    returns, seen = np.zeros(2), []
    for r, o in zip(reward, over, strict=True):
        returns = 0.9 * returns + r
        seen.append(returns)
        returns = np.where(o, 0.0, returns)
    running = ReturnStatistics(0.9)
    assert running.std == 1.0
    running.update(reward[:7], over[:7])
    running.update(reward[7:], over[7:])
    assert running.std == pytest.approx(np.std(seen))


# what is learned


@pytest.mark.parametrize(
    ("ends", "successor"),
    [(False, "next"), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((True, "next"), (False, "shuffled")))],
)
def test_values_known_in_closed_form(ends, successor, monkeypatch):
    """States depend on nothing, so a shuffled successor has the right mean; but a cut is an end there."""
    monkeypatch.setattr(robust_sarsa, "EPOCHS", 10)
    how = {"steps": 2048, "robust": None, "successor": successor, "gamma": 0.5, "lr": 1e-2, "noise": 0.5}
    critic = one_critic(toy_victim(), lambda: Toy(ends), **how)
    s0 = (-0.8, -0.4, 0.0, 0.4, 0.8)
    discount = 0.25 if successor == "shuffled" else 0.5
    after = 0.0 if ends else discount * (1 + 0.5 / 3) / (1 - discount)
    exact = 1 + torch.tensor(s0).double()[:, None] * torch.tensor([-1.0, 0.0, 1.0]) + after
    assert (actions_of(critic, s0) - exact).abs().max() < 0.25


@pytest.mark.slow
def test_the_robustness_term_narrows_the_bounds(monkeypatch):
    monkeypatch.setattr(robust_sarsa, "EPOCHS", 3)

    def width(**more):
        how = {"steps": 256, "eps": 0.2, "gamma": 0.5, "lr": 3e-3, "noise": 0.5, **more}
        return one_critic(toy_victim(), Toy, **how).card["losses"][-1]["width"]

    assert width(weight=10.0) < width(robust=None)


def test_the_box_may_be_around_the_action_alone():
    how = {"steps": 64, "robust": None, "eps": 0.2}
    both, action = (
        one_critic(toy_victim(), Toy, box=box, **how).card["losses"][0]["width"] for box in ("both", "action")
    )
    assert 0 < action < both  # of the same network


@pytest.mark.slow
def test_the_attack_finds_what_the_critic_values_least(monkeypatch):
    monkeypatch.setattr(robust_sarsa, "EPOCHS", 5)
    victim = toy_victim()
    critic = one_critic(victim, Toy, steps=1024, gamma=0.5, lr=3e-3, noise=0.5)
    how = RobustSarsa(victim, critic=critic)
    report = adv.evaluate(victim, Toy, [adv.ThreatModel("observation", how, adv.Linf(1.0)), "noise:eps=1"], episodes=40)
    clean, attacked, noise = (row["mean_return"] for row in report.threats)
    assert attacked < clean - 0.3 and attacked < noise - 0.3


@pytest.mark.parametrize("before", [32, 48])
def test_beyond_the_last_step_nothing_is_learned(before):
    """The last round plays whole steps of all environments, which may be more than were asked for."""
    one = CriticTraining(toy_victim(), Environment(Toy), CriticSettings(steps=32, lr=0.1, hidden=(4,)))
    ends = torch.zeros(8, dtype=torch.bool)
    batch = SarsaBatch(x=randn(8, 3), after=randn(8, 3), reward=randn(8), ended=ends, over=ends)
    first = [param.clone() for param in one.net.parameters()]
    one.learn(batch, torch.Generator(), before)
    assert all(torch.equal(old, new) for old, new in zip(first, one.net.parameters(), strict=True))
    one.learn(batch, torch.Generator(), 16)
    assert not any(torch.equal(old, new) for old, new in zip(first, one.net.parameters(), strict=True))


# folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A critic of the toy in a folder."""
    where = tmp_path_factory.mktemp("critics") / "one"
    one_critic(toy_victim(), Toy, steps=64, num_envs=2, out=where, seed=3)
    return where


def test_a_folder_holds_all_there_is_to_know(folder):
    card = json.loads((folder / "card.json").read_text())
    assert card["victim"] == described_victim(toy_victim())
    assert card["environment"] == {"id": "Toy", "kwargs": {}, "make": f"{Toy.__module__}:Toy"}
    assert card["training"] == {
        "robust": "interval",
        "eps": 0.02,
        "weight": 0.1,
        "box": "both",
        "successor": "next",
        "gamma": 0.99,
        "lr": 3e-4,
        "steps": 64,
        "noise": 0.2,
        "hidden": [64, 64],
        "seed": 3,
        "num_envs": 2,
    }
    assert [row["steps"] for row in card["losses"]] == [64] and "torch" in card["versions"]
    assert sorted(path.name for path in folder.iterdir()) == ["card.json", "state.json", "weights.safetensors"]


def test_the_same_arguments_give_the_same_critic(folder):
    again = one_critic(toy_victim(), Toy, steps=64, num_envs=2, seed=3)
    x, act = randn(5, 2), randn(5, 1)
    assert again.folder is None and torch.equal(again(x, act), Critic(str(folder))(x, act))
    other = one_critic(toy_victim(), Toy, steps=64, num_envs=2, seed=4)
    assert not torch.equal(again(x, act), other(x, act))
    assert again(x.float(), act.float()).dtype == torch.float32
    with pytest.raises(ThreatError, match="save"):
        RobustSarsa(critic=again).to_dict()


def test_the_victims_own_normaliser_is_the_critics():
    net = torch.nn.Sequential(Normalize(randn(2), randn(2).exp(), 3.0), linear(torch.tensor([[0.5, 0.0]]).double()))
    critic = one_critic(from_module(net, SEEN, ACTED, "mean"), Toy, steps=16, num_envs=2)
    assert torch.equal(critic.net.normalise.mean, net[0].mean) and critic.net.normalise.clip == 3.0
    plain = one_critic(toy_victim(), Toy, steps=512)
    assert plain.net.normalise.clip == 10.0 and (plain.net.normalise.std - 3**-0.5).abs().max() < 0.1


def test_text_dictionary_pickle_and_copy(folder, tmp_path):
    victim = toy_victim(ref="toy")
    threat = parse_threat(f"robust-sarsa:critic={folder},eps=0.1", victim=victim)
    data = json.loads(json.dumps(threat.to_dict()))
    assert data["how"]["critic"] == {"type": "critic", "folder": str(folder), "sha256": threat.how.critic.sha256}
    back = decode(data, {"toy": victim})
    assert back.how.critic == threat.how.critic and hash(back.how.critic) == hash(threat.how.critic)
    x, act = randn(5, 2), randn(5, 1)
    for other in (back.how.critic, pickle.loads(pickle.dumps(threat)).how.critic, copy.deepcopy(threat).how.critic):
        assert torch.equal(other(x, act), threat.how.critic(x, act))
    moved = threat.how.critic.save(tmp_path / "moved")
    assert moved.sha256 == threat.how.critic.sha256 and moved.folder != threat.how.critic.folder
    env = adv.wrap(Toy(), threat)
    assert np.abs(env.reset(seed=0)[0] - Toy().reset(seed=0)[0]).max() <= 0.1 + 1e-12


def test_a_critic_of_other_shapes(folder):
    with pytest.raises(VictimError, match=r"\(\(2,\), \(1,\)\)"):
        RobustSarsa(actor(mlp(4, 3)), critic=str(folder))
    with pytest.raises(VictimError, match="critic must be"):
        RobustSarsa(toy_victim(), critic=3)


# going on


def test_an_interrupted_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(robust_sarsa, "ROUND", 256)
    how = {"steps": 600, "num_envs": 4, "lr": 3e-3, "out": tmp_path}
    received = []

    def stop(_, done, steps):
        received.append((done, steps))
        if len(received) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        one_critic(toy_victim(), Toy, **how, progress=stop)
    assert received == [(256, 600), (512, 600)]
    partial = Critic(str(tmp_path))
    assert (tmp_path / "checkpoint-512").exists() and len(partial.card["losses"]) == 2
    with pytest.raises(ValueRangeError, match="another training, with training"):
        one_critic(toy_victim(), Toy, **{**how, "eps": 0.3})
    finished = one_critic(toy_victim(), Toy, **how, progress=lambda _, *at: received.append(at))
    assert received[2:] == [(600, 600)] and not [*tmp_path.glob("checkpoint-*")]
    assert finished.card["losses"][:2] == partial.card["losses"]
    x, act = randn(50, 2), randn(50, 1)
    apart = (finished(x, act) - partial(x, act)).abs().mean()
    fresh = (one_critic(toy_victim(), Toy, steps=64, seed=9)(x, act) - partial(x, act)).abs().mean()
    assert 0 < apart < 0.3 * fresh  # it went on from there, and did not begin anew


# arguments


@every_case(
    ("change", "word"),
    [
        ({"robust": "crown"}, "robust"), ({"box": "state"}, "box"), ({"successor": "last"}, "successor"),
        ({"eps": -1.0}, "eps"), ({"weight": np.nan}, "weight"), ({"gamma": 1.5}, "gamma"), ({"steps": 0}, "steps"),
        ({"num_envs": 0}, "num_envs"), ({"hidden": (0,)}, "hidden"), ({"seed": -1}, "seed"), ({"noise": 0.0}, "noise"),
        ({"eps": "0.1"}, "eps"), ({"lr": None}, "lr"), ({"noise": np.inf}, "noise"), ({"hidden": 64}, "hidden"),
    ],
)  # fmt: skip
def test_arguments_out_of_range(change, word):
    with pytest.raises(ValueRangeError, match=word):
        one_critic(toy_victim(), Unplayed, **{"steps": 64, **change})


def test_where_it_is_not_defined():
    with pytest.raises(VictimError, match="continuous"):
        one_critic(chooser(linear(randn(3, 4))), Toy, steps=64)
    picture = spaces.Box(-1, 1, (1, 2), np.float64)
    with pytest.raises(VictimError, match="one dimension"):
        one_critic(from_module(lambda x: x[:, 0, :1], picture, ACTED, "mean", dtype=torch.float64), Toy, steps=64)
    with pytest.raises(VictimError, match="observation space"):
        one_critic(actor(mlp(4, 1), actions=1), Toy, steps=64)
    with pytest.raises(SpaceError, match="id of an environment or a function that makes one, got 3"):
        one_critic(toy_victim(), 3, steps=64)


class Broken(Toy):
    """Pays NaN."""

    def step(self, action):
        return *super().step(action)[:1], np.nan, False, False, {}


def test_rewards_that_are_not_finite():
    with pytest.raises(ValueRangeError, match="reward"):
        one_critic(toy_victim(), Broken, steps=64)
