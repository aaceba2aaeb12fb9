"""DQN with prioritised replay and parameter-space noise: its errors and gradients, and a tiny problem."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.training.sb3.prioritized_dqn import SMALLEST, LayerNormQPolicy, PrioritizedDQN
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
