"""Victims as the networks of an agent in training: recurrent ones, and which cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.policy_layers import AppendLogStd, Normalize
from adv_wrappers.networks.recurrent import RecurrentActor, RecurrentValue

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

from sb3_contrib import RecurrentPPO

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.sb3.conversion import load_weights, networks_of_agent, policy_kwargs_of, recurrent_policy_of
from tests.every_case import every_case

OBS, BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(-2.0, 2.0, (1,), np.float32)


def model(**kwargs):
    """RecurrentPPO on Pendulum."""
    return RecurrentPPO(
        "MlpLstmPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu", seed=1, policy_kwargs=kwargs
    )


def same_episode(first, other, value=True, **tolerance):
    """Whether both answer alike at every step of an episode."""
    states = [each.initial_state(4) for each in (first, other)]
    for _ in range(3):
        x = torch.randn(4, 3)
        torch.testing.assert_close(first.params(x, states[0]), other.params(x, states[1]), **tolerance)
        if value:
            torch.testing.assert_close(first.value(x, states[0]), other.value(x, states[1]), **tolerance)
        states = [each.advance(x, state) for each, state in zip((first, other), states, strict=True)]


@pytest.mark.parametrize("shared", [False, True])
def test_an_agent_of_recurrent_ppo_again(shared, tmp_path):
    """From the model and from its card; a shared LSTM is loaded twice."""
    sizes = {"lstm_hidden_size": 6, "n_lstm_layers": 2, "net_arch": {"pi": [5, 4], "vf": []}, "log_std_init": -0.3}
    victim = adv.from_sb3(model(**sizes, shared_lstm=shared, enable_critic_lstm=not shared))
    card = adv.save_card(tmp_path, victim, environment="Pendulum-v1")
    for given in (victim, card):
        parts = networks_of_agent(given)
        made = model(**policy_kwargs_of(parts))
        load_weights(made.policy, parts)
        same_episode(victim, adv.from_sb3(made), rtol=0, atol=0)
    assert not made.policy.shared_lstm and made.policy.lstm_actor.hidden_size == 6


def gaussian_lstm(value=True):
    """A victim with linear layers before its LSTMs."""
    torch.manual_seed(0)
    rule = Normalize(torch.tensor([0.3, -1.0, 0.0]), torch.tensor([2.0, 0.5, 1.0]), 10.0)
    before, own = nn.Sequential(rule, nn.Linear(3, 4)), nn.LSTM(4, 6)
    head = nn.Sequential(nn.Linear(6, 1), AppendLogStd(torch.tensor([-0.7])))
    net = RecurrentActor(nn.Sequential(rule, nn.Linear(3, 4)), nn.LSTM(4, 6), head, (before, own) if value else None)
    start = lambda rows: tuple(torch.zeros(rows, 1, 6) for _ in range(4 if value else 2))  # noqa: E731
    valued = RecurrentValue(before, own, None, nn.Linear(6, 1), True) if value else None
    return adv.from_module(net, OBS, BOX, "gaussian", value=valued, initial_state=start)


@pytest.mark.parametrize("value", [True, False])
def test_an_agent_with_a_linear_layer_before_its_lstm(value):
    victim = gaussian_lstm(value)
    parts = recurrent_policy_of(victim)
    assert parts.normalise is victim.net.features[0] and (parts.value_lstm is None) is not value
    made = model(**policy_kwargs_of(parts))
    load_weights(made.policy, parts)
    found, seen = adv.from_sb3(made), victim.net.features[0]
    found.net.features = nn.Sequential(seen, found.net.features)
    if value:
        found.net.critic[0] = found.value_net.features = nn.Sequential(seen, found.value_net.features)
    same_episode(victim, found, value, rtol=1e-4, atol=1e-6)


def test_the_activation_of_a_value_beside_a_policy_without_hidden_layers():
    net, value = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    parts = networks_of_agent(adv.from_module(net, OBS, spaces.Discrete(2), "logits", value=value))
    assert policy_kwargs_of(parts) == {"net_arch": {"pi": [], "vf": [4]}, "activation_fn": nn.ReLU}
    value[1] = nn.Tanh()
    other = adv.from_module(
        nn.Sequential(*value[:1], nn.ReLU(), nn.Linear(4, 2)), OBS, spaces.Discrete(2), "logits", value=value
    )
    with pytest.raises(
        VictimError, match="one activation in the networks of actions and state value, got relu and tanh"
    ):
        networks_of_agent(other)


class Plain(nn.Module):
    """A recurrent network of another kind."""

    def forward(self, x, state):
        return x[:, :2], state


def of_other_sizes():
    victim = gaussian_lstm()
    victim.value_net.lstm = nn.LSTM(4, 5)
    return victim


def behind_a_layer():
    victim = adv.from_sb3(model(lstm_hidden_size=3))
    victim.net.features = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    return victim


def of_two_activations():
    victim = adv.from_sb3(model(lstm_hidden_size=3, net_arch=[4]))
    victim.value_net.head[1] = nn.ReLU()
    return victim


def with_a_normaliser_behind():
    victim = adv.from_sb3(model(lstm_hidden_size=3))
    victim.net.head = nn.Sequential(Normalize(torch.zeros(3), torch.ones(3)), victim.net.head)
    return victim


@every_case(
    ("made", "message"),
    [
        (lambda: adv.from_module(Plain(), OBS, BOX, "gaussian", initial_state=lambda rows: torch.zeros(rows, 1)),
         r"an agent of RecurrentPPO on observations \[n\]"),
        (lambda: adv.from_sb3(model(enable_critic_lstm=False)), "a state value with an LSTM"),
        (lambda: adv.from_sb3(model(activation_fn=nn.ELU)), "linear layers with tanh or ReLU"),
        (of_other_sizes, "LSTMs of one size"),
        (behind_a_layer, "a normaliser, a linear layer or nothing before the LSTM"),
        (of_two_activations, "one activation in the networks of actions and state value, got relu and tanh"),
        (with_a_normaliser_behind, "linear layers behind the LSTM, got a normaliser"),
    ],
)  # fmt: skip
def test_what_no_recurrent_agent_is_made_of(made, message):
    with pytest.raises(VictimError, match=message):
        networks_of_agent(made())


def test_an_agent_begins_as_a_recurrent_victim_and_keeps_its_normaliser(tmp_path):
    victim = gaussian_lstm()
    card = adv.save_card(tmp_path / "a", victim, environment="Pendulum-v1")
    still = {"num_envs": 2, "checks": 1, "episodes": 1, "settings": {"n_steps": 8, "n_epochs": 1, "learning_rate": 0.0}}
    found = train_agent("Pendulum-v1", None, steps=16, algorithm="recurrent-ppo", victim=card, **still).victim
    same_episode(card, found, rtol=1e-4, atol=1e-5)
    assert torch.equal(found.scale, card.scale)
