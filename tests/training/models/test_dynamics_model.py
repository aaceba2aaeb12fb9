"""Models learned from a victim's transitions and random ones: what is learned, resumed, measured and refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import CardError, ValueRangeError, VictimError
from adv_wrappers.training.models.dynamics_model import _errors, train_dynamics
from adv_wrappers.training.models.trajectories import Trajectories, collect, recorded_trajectories
from tests.every_case import every_case
from tests.training.toys import Stopped

A = np.array([[1.0, 0.2], [-0.1, 0.95]])
B = np.array([[0.1], [0.4]])


class Linear(gym.Env):
    """``s' = A s + B a``; the reward is the first feature; episodes of 40 steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-2.0, 1.0, (1,), np.float32)

    def __init__(self, bend: float = 0.0, fail: bool = False):
        self.bend, self.fail = bend, fail

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.t = self.np_random.normal(size=2), 0
        return self.state, {}

    def step(self, action):
        self.state, self.t = A @ self.state + B @ action + self.bend * np.sin(3 * self.state), self.t + 1
        seen = self.state * (np.nan if self.fail and self.t == 5 else 1)
        return seen, float(seen[0]), False, self.t == 40, {}


def actor():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1), torch.nn.Tanh())
    return adv.from_module(net, Linear.observation_space, Linear.action_space, "mean")


def test_a_linear_system_is_found_in_closed_form():
    found = train_dynamics(actor(), Linear, 2000, hidden=(), num_envs=2)
    obs, act = torch.randn(20, 2), torch.randn(20, 1)
    after, reward = found.predict(obs, act)
    expected = obs.double().numpy() @ A.T + act.double().numpy() @ B.T
    np.testing.assert_allclose(after.numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(reward.numpy(), expected[:, 0], atol=1e-4)
    errors = found.card["errors"]
    assert set(errors) == {"victim", "random"}
    for part in errors.values():
        assert max(part["one_step"]) < 1e-8 and part["mse"] < 1e-8
        assert set(part["open_loop"]) == {"1", "5", "10", "20"} and part["open_loop"]["20"] < 1e-6


@pytest.mark.slow
def test_a_network_learns_what_a_linear_model_cannot():
    settings = {"env_kwargs": {"bend": 0.2}, "transitions": 6000, "num_envs": 4}
    line = train_dynamics(actor(), Linear, hidden=(), **settings)
    net = train_dynamics(actor(), Linear, hidden=(64, 64), epochs=30, batch=64, lr=5e-3, **settings)
    for source in ("victim", "random"):
        worst = max(line.card["errors"][source]["one_step"])
        assert max(net.card["errors"][source]["one_step"]) < 0.5 * worst


def test_the_error_is_a_share_of_the_variance_of_changes():
    """Of a model that predicts no change but the mean one, all of the variance is left."""
    found = train_dynamics(actor(), Linear, 2000, random=1.0, hidden=(4,), epochs=1, lr=1e-12)
    with torch.no_grad():
        for parameter in found.net.nets.parameters():
            parameter.zero_()
    played = collect(Environment(Linear), None, 500, 8, (0, 1))
    share = _errors(found.net, played)["one_step"]
    np.testing.assert_allclose(share, [1.0, 1.0], atol=0.1)


def test_an_open_loop_ends_with_the_episode():
    played = collect(Environment(Linear), None, 100, 3, (5,))
    assert played.over.sum() == 6 and len(played) == 300
    again = train_dynamics(actor(), Linear, 800, hidden=())
    assert "50" not in again.card["errors"]["random"]["open_loop"]  # episodes have 40 steps


def test_transitions_are_those_of_the_environment():
    played = collect(Environment(Linear), actor(), 90, 4, (3,), noise=0.5)
    exact = played.obs @ A.T + played.act @ B.T
    np.testing.assert_allclose(played.next_obs, exact, atol=1e-5)
    np.testing.assert_allclose(played.obs[1:][~played.over[:-1]], played.next_obs[:-1][~played.over[:-1]])
    clean = actor().act_on(played.obs.reshape(-1, 2)).reshape(90, 4, 1)
    apart = np.abs(clean - played.act).max((0, 2))
    assert (apart[::2] < 1e-6).all() and (apart[1::2] > 0.3).all()  # every second row plays with noise
    assert played.act.min() >= -2 and played.act.max() <= 1


def test_random_actions_fill_the_space():
    played = collect(Environment(Linear), None, 400, 2, (1,))
    assert played.act.min() < -1.95 and played.act.max() > 0.95 and abs(played.act.mean() + 0.5) < 0.1


def test_the_same_seed_learns_the_same_and_draws_nothing_else(tmp_path):
    before = torch.random.get_rng_state()
    settings = {"hidden": (8,), "epochs": 2, "batch": 64}
    first, second, other = (train_dynamics(actor(), Linear, 400, seed=seed, **settings) for seed in (0, 0, 1))
    obs, act = torch.randn(5, 2), torch.randn(5, 1)
    torch.random.set_rng_state(before)
    assert torch.equal(first.step(obs, act), second.step(obs, act))
    assert not torch.equal(first.step(obs, act), other.step(obs, act))
    train_dynamics(actor(), Linear, 100, **settings)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("where", [("random", 1), ("training", 1)])
def test_an_interrupted_training_goes_on(tmp_path, where):
    settings = {"hidden": (8,), "epochs": 4, "batch": 64, "seed": 4}
    whole = train_dynamics(actor(), Linear, 400, **settings)

    def stop(part, done, total):
        if (part, done) == where or (part == where[0] == "random"):
            raise Stopped

    with pytest.raises(Stopped):
        train_dynamics(actor(), Linear, 400, out=tmp_path, progress=stop, **settings)
    kept = (tmp_path / "trajectories-victim.safetensors").read_bytes()
    seen = []
    found = train_dynamics(actor(), Linear, 400, out=tmp_path, progress=lambda *at: seen.append(at), **settings)
    assert (tmp_path / "trajectories-victim.safetensors").read_bytes() == kept
    assert not any(part == "victim" for part, *_ in seen)
    done = where[1] if where[0] == "training" else 0
    assert [at for at in seen if at[0] == "training"] == [("training", i, 4) for i in range(done + 1, 5)]
    obs, act = torch.randn(5, 2), torch.randn(5, 1)
    assert torch.equal(found.step(obs, act), whole.step(obs, act))
    assert not [*tmp_path.glob("checkpoint-*")]
    seen.clear()
    assert train_dynamics(actor(), Linear, 400, out=tmp_path, progress=lambda *at: seen.append(at), **settings) == found
    assert not seen


def test_damaged_trajectories_are_named(tmp_path):
    def stop(part, done, total):
        if part == "random":
            raise Stopped

    with pytest.raises(Stopped):
        train_dynamics(actor(), Linear, 400, hidden=(), out=tmp_path, progress=stop)
    (tmp_path / "trajectories-victim.safetensors").write_bytes(b"nothing")
    with pytest.raises(CardError, match="as trajectories"):
        train_dynamics(actor(), Linear, 400, hidden=(), out=tmp_path)


@every_case(
    ("settings", "words"),
    [
        ({"transitions": 99}, "transitions must be an integer"),
        ({"env_kwargs": {"fail": True}}, "returned what is not finite"),
    ],
)  # fmt: skip
def test_bad_settings(settings, words):
    with pytest.raises(ValueRangeError, match=words):
        train_dynamics(actor(), Linear, **{"transitions": 200, "hidden": (), **settings})


def test_other_victims_are_refused():
    with pytest.raises(VictimError, match="for continuous actions"):
        train_dynamics("zoo:cartpole-dqn", "CartPole-v1")
    with pytest.raises(VictimError, match="is for observation space"):
        train_dynamics(actor(), "Pendulum-v1", 100)


class Episode:
    """As Minari's datasets have them."""

    def __init__(self, seed, steps=30, env=None):
        env, draw = env or Linear(), np.random.default_rng(seed)
        seen, self.actions, self.rewards = [env.reset(seed=seed)[0]], [], []
        for _ in range(steps):
            self.actions.append(draw.uniform(-1, 1, 1).astype(np.float32))
            obs, reward, *_ = env.step(self.actions[-1])
            seen.append(obs)
            self.rewards.append(reward)
        self.observations, self.actions = np.array(seen), np.array(self.actions).reshape(-1, 1)


class Still(Linear):
    def step(self, action):
        raise AssertionError("a step was played")


def test_recorded_episodes_are_learned_from_and_nothing_is_played(tmp_path):
    episodes = [Episode(seed) for seed in range(20)]
    played = recorded_trajectories(iter(episodes), 2, 1)
    assert len(played) == 600 and played.over[:, 0].nonzero()[0].tolist() == [*range(29, 600, 30)]
    np.testing.assert_array_equal(played.next_obs[:29], played.obs[1:30])
    np.testing.assert_array_equal(played.next_obs[29, 0], np.float32(episodes[0].observations[-1]))
    said = []
    found = train_dynamics(
        actor(), Still, recorded=episodes, hidden=(), out=tmp_path, progress=lambda *told: said.append(told)
    )
    obs, act = torch.randn(20, 2), torch.randn(20, 1)
    expected = obs.double().numpy() @ A.T + act.double().numpy() @ B.T
    np.testing.assert_allclose(found.predict(obs, act)[0].numpy(), expected, atol=1e-4)
    assert set(found.card["errors"]) == {"recorded"} and found.card["training"]["transitions"] == 600
    assert max(found.card["errors"]["recorded"]["one_step"]) < 1e-6 and not said
    again = train_dynamics(actor(), Still, recorded=episodes, hidden=(), out=tmp_path)
    assert torch.equal(again.predict(obs, act)[0], found.predict(obs, act)[0])
    with pytest.raises(ValueRangeError, match=r"recorded|another"):
        train_dynamics(actor(), Still, recorded=episodes[1:], hidden=(), out=tmp_path)


def test_recorded_episodes_of_another_form_are_refused():
    good, odd, wild = Episode(0), Episode(1), Episode(2)
    odd.observations, wild.rewards = odd.observations[:-1], [np.nan] * 30
    for episodes, words in (
        ([good, odd], r"observations \[T \+ 1, 2\].*got \(30, 2\), \(30, 1\) and \(30,\) as number 1"),
        ([wild], "number 0 holds numbers that are not finite"),
        ([{"observations": 1}], "got dict as number 0"),
        ([], "no transition"),
        ([Episode(0, 3)], "at least 5 recorded transitions, got 3"),
    ):
        with pytest.raises(ValueRangeError, match=words):
            train_dynamics(actor(), Linear, recorded=episodes, hidden=())


def test_files_of_trajectories_come_back(tmp_path):
    played = collect(Environment(Linear), None, 10, 2, (0,))
    path = tmp_path / "played.safetensors"
    path.write_bytes(played.to_bytes())
    read = Trajectories.read(path)
    assert all(np.array_equal(getattr(read, k), getattr(played, k)) for k in vars(played))
