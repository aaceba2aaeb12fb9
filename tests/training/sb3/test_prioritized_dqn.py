"""DQN with prioritised replay and parameter-space noise: its errors and gradients, its draws, and its noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.training.sb3.prioritized_dqn import (
    SMALLEST,
    LayerNormQPolicy,
    ParameterNoise,
    PrioritizedDQN,
    PrioritizedReplayBuffer,
)
from tests.toys import Brief


class NameTheState(Brief):
    """One of three states, drawn anew at every step; the action that names it is paid. Episodes of eight steps."""

    observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(3)
    cut = False

    def seen(self):
        self.state = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.state]

    def act(self, action):
        return action == self.state


def small(**settings):
    arguments = {
        "seed": 0,
        "device": "cpu",
        "learning_starts": 32,
        "buffer_size": 500,
        "policy_kwargs": {"net_arch": [16]},
    }
    return PrioritizedDQN("MlpPolicy", settings.pop("env", NameTheState()), **{**arguments, **settings})


def test_bad_input_is_refused():
    with pytest.raises(ValueRangeError, match=r"alpha must be a finite number from 0 to 1, got 2"):
        filled(1, alpha=2)
    with pytest.raises(ValueRangeError, match="optimize_memory_usage must be False"):
        filled(1, optimize_memory_usage=True)
    with pytest.raises(ValueRangeError, match="without transitions"):
        filled(0, size=3).draw(1, 0.4)
    with pytest.raises(ValueRangeError, match="without transitions"):
        filled(0, size=3, alpha=0.0).draw(1, 0.4)
    with pytest.raises(ValueRangeError, match=r"beta must be a finite number from 0 to 1, got -1"):
        small(beta=-1)


def test_errors_are_those_of_double_q_learning():
    model = small(learning_rate=0.0, alpha=1.0)
    model.learn(64)
    for weight in model.q_net_target.parameters():
        weight.data.normal_()
    buffer = model.replay_buffer
    everything = np.arange(buffer.size())
    buffer.update(everything, np.full(buffer.size(), 1e3))
    data = buffer.transitions(everything)
    with torch.no_grad():
        best = model.q_net(data.next_observations).argmax(1)
        future = model.q_net_target(data.next_observations)[torch.arange(len(best)), best]
        target = data.rewards[:, 0] + 0.99 * (1 - data.dones[:, 0]) * future
        errors = (target - model.q_net(data.observations)[torch.arange(len(best)), data.actions[:, 0]]).abs().numpy()
    model.train(1, 32)
    touched = buffer.priorities[everything] < 1e3
    assert 8 < touched.sum() <= 32
    np.testing.assert_allclose(buffer.priorities[everything][touched], errors[touched] + SMALLEST, rtol=1e-4)


def test_gradients_are_clipped_as_a_whole():
    norms = {}
    for most in (0.01, 1e9):
        model = small(max_grad_norm=most)
        model.learn(64)
        model.train(1, 32)
        norms[most] = float(torch.cat([w.grad.flatten() for w in model.q_net.parameters()]).norm())
    assert norms[0.01] == pytest.approx(0.01, rel=1e-4) and norms[1e9] > 0.02


def test_a_tiny_problem_is_learned():
    env = make_vec_env(NameTheState, 2, seed=0)
    model = small(env=env, learning_rate=5e-3, exploration_fraction=0.5)
    model.learn(300)
    assert model.predict(np.eye(3, dtype=np.float32), deterministic=True)[0].tolist() == [0, 1, 2]


def test_the_defaults_are_those_of_the_paper():
    model = PrioritizedDQN("MlpPolicy", "CartPole-v1", device="cpu")
    assert (model.learning_rate, model.buffer_size, model.learning_starts) == (1e-3, 50_000, 1000)
    assert (model.target_update_interval, model.gamma, model.exploration_fraction) == (500, 0.99, 0.1)
    assert (model.exploration_final_eps, model.batch_size, model.max_grad_norm, model.beta) == (0.02, 32, 10, 0.4)
    assert model.param_noise and model.replay_buffer.alpha == 0.6 and isinstance(model.policy, LayerNormQPolicy)
    assert [type(layer).__name__ for layer in model.q_net.q_net] == ["Linear", "LayerNorm", "ReLU", "Linear"]
    assert model.q_net.net_arch == [64]


def test_a_saved_model_goes_on(tmp_path):
    model = small()
    model.learn(60)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    read = PrioritizedDQN.load(tmp_path / "model", env=NameTheState(), device="cpu")
    read.load_replay_buffer(tmp_path / "buffer")
    states = np.eye(3, dtype=np.float32)
    assert np.array_equal(*(m.predict(states, deterministic=True)[0] for m in (model, read)))
    assert read.parameter_noise.std == model.parameter_noise.std != 0.01
    assert torch.equal(*(m.parameter_noise.acting.q_net[0].weight for m in (model, read)))
    assert np.array_equal(read.replay_buffer.priorities, model.replay_buffer.priorities)
    read.learn(40, reset_num_timesteps=False)
    assert read.num_timesteps == 100
    read.parameter_noise.perturb()
    assert not torch.equal(read.parameter_noise.acting.q_net[0].weight, model.parameter_noise.acting.q_net[0].weight)


def test_a_trained_agent_is_a_victim_and_a_card(tmp_path):
    model = small()
    model.learn(40)
    victim = adv.from_sb3(model)  # without a warning of statistics that there never were
    x = torch.randn(5, 3)
    assert victim.kind == "q" and torch.allclose(victim.params(x), model.q_net.q_net(x))
    read = adv.victims.card.save_card(tmp_path / "card", victim, environment="CartPole-v1")
    assert torch.equal(read.params(x), victim.params(x))


# the replay buffer


OBS = spaces.Box(-10.0, 10.0, (2,), np.float32)
ACT = spaces.Discrete(3)


def filled(count, rows=1, size=None, **arguments):
    """A buffer of ``count`` steps: observation k, reward k, in every row's own tens."""
    buffer = PrioritizedReplayBuffer((size or count) * rows, OBS, ACT, "cpu", rows, **arguments)
    for step in range(count):
        number = step + 10.0 * np.arange(rows)
        obs = np.stack([number, number], 1).astype(np.float32)
        infos = [{"TimeLimit.truncated": step == 1}] * rows
        buffer.add(obs, obs + 0.5, np.arange(rows) % 3, number, np.full(rows, step in (1, 2)), infos)
    return buffer


@pytest.mark.parametrize("rows", [1, 2])
def test_transitions_are_drawn_in_proportion_to_their_priority(rows):
    buffer = filled(4, rows, alpha=0.5)
    count = 4 * rows
    errors = np.arange(count) - 2.0
    buffer.update(np.arange(count), errors)
    expected = (np.abs(errors) + SMALLEST) ** 0.5
    np.random.seed(0)
    drawn = np.bincount(np.concatenate([buffer.draw(16, 1.0)[0] for _ in range(500)]), minlength=count) / 8000
    np.testing.assert_allclose(drawn, expected / expected.sum(), atol=0.02)


def test_a_draw_takes_one_of_each_equal_part():
    buffer = filled(8)
    assert sorted(buffer.draw(8, 1.0)[0]) == list(range(8))  # equal priorities, as many parts as transitions


@pytest.mark.parametrize("rows", [1, 2])
def test_without_an_exponent_draws_are_even(rows):
    buffer = filled(4, rows, size=9, alpha=0.0)
    buffer.update(np.arange(4 * rows), np.arange(4.0 * rows))
    np.random.seed(0)
    found, weights = buffer.draw(8000, 1.0)
    np.testing.assert_allclose(np.bincount(found) / 8000, np.full(4 * rows, 1 / (4 * rows)), atol=0.02)
    assert (weights == 1).all() and weights.dtype == np.float32
    assert set(buffer.transitions(found).rewards[:, 0].tolist()) == {
        k + 10.0 * row for k in range(4) for row in range(rows)
    }


def test_weights_correct_the_draws_and_none_is_above_one():
    buffer = filled(4, alpha=1.0)
    buffer.update(np.arange(4), np.array([1.0, 2.0, 4.0, 8.0]))
    found, weights = buffer.draw(64, 0.5)
    priorities = np.array([1.0, 2.0, 4.0, 8.0])[found]
    np.testing.assert_allclose(weights, ((4 * priorities / 15) / (4 * 1 / 15)) ** -0.5, rtol=1e-5)
    assert weights.dtype == np.float32 and weights.max() == 1
    assert (buffer.draw(8, 0.0)[1] == 1).all()


def test_a_new_transition_has_the_highest_priority_so_far():
    buffer = filled(3, size=4, alpha=1.0)
    buffer.update(np.array([0, 1]), np.array([5.0, 0.5]))
    obs = np.zeros((1, 2), np.float32)
    for _ in range(2):  # the second takes the place of the oldest one
        buffer.add(obs, obs, np.array([0]), np.zeros(1), np.zeros(1), [{}])
    np.testing.assert_allclose(buffer.priorities, [5, 0.5, 1, 5], rtol=1e-5)
    buffer.reset()
    assert buffer.size() == 0


def test_transitions_are_those_that_were_added():
    data = filled(4, rows=2).transitions(np.array([0, 3, 4, 7]))  # steps 0, 1, 2, 3 of rows 0, 1, 0, 1
    numbers = torch.tensor([0.0, 11.0, 2.0, 13.0])
    assert torch.equal(data.observations, torch.stack([numbers, numbers], 1))
    assert torch.equal(data.next_observations, data.observations + 0.5)
    assert torch.equal(data.rewards[:, 0], numbers) and torch.equal(data.actions[:, 0], torch.tensor([0, 1, 0, 1]))
    assert torch.equal(data.dones[:, 0], torch.tensor([0.0, 0.0, 1.0, 0.0]))  # step 1 ended by the clock


# noise on parameters


def test_noise_is_on_linear_layers_only_and_of_its_standard_deviation():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(30, 60), nn.LayerNorm(60), nn.ReLU(), nn.Linear(60, 2))
    noise = ParameterNoise(net)
    noise.std.fill_(0.5)
    noise.perturb()
    for own, true in zip(noise.acting, net, strict=True):
        for moved, weight in zip(own.parameters(), true.parameters(), strict=True):
            if isinstance(true, nn.LayerNorm):
                assert torch.equal(moved, weight)
            elif weight.numel() > 1000:
                assert float((moved - weight).detach().std()) == pytest.approx(0.5, rel=0.1)
    before = noise.acting[0].weight.clone()
    noise.adapt(torch.randn(4, 30), 0.5)
    assert torch.equal(noise.acting[0].weight, before)  # the policy that acts stays until the episode ends


def test_noise_grows_while_it_is_weaker_than_eps_greedy_and_shrinks_while_it_is_stronger():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(32, 3)
    for rate, start, sign in ((1.0, 0.01, 1), (0.0, 0.01, -1), (0.1, 5.0, -1)):
        noise = ParameterNoise(net)
        noise.std.fill_(start)
        noise.adapt(x, rate)
        assert float(noise.std) == pytest.approx(start * 1.01**sign, rel=1e-6)


def test_noise_settles_where_the_divergence_is_that_of_eps_greedy():
    torch.manual_seed(0)
    net, x, rate = nn.Linear(3, 4), torch.randn(64, 3), 0.2
    noise = ParameterNoise(net)
    for _ in range(700):
        noise.adapt(x, rate)
    plain, found = torch.log_softmax(net(x), 1).detach(), []
    for _ in range(200):
        noise.perturb()
        noisy = torch.log_softmax(noise.acting(x), 1).detach()
        found.append(float((plain.exp() * (plain - noisy)).sum(1).mean()))
    assert float(np.median(found)) == pytest.approx(-np.log(1 - rate + rate / 4), rel=0.4)
