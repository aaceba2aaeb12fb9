"""Denoisers: what they reconstruct, remember and say in their folders."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file

import adv_wrappers as adv
from adv_wrappers.core.value import decode
from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.victims.saved_networks import (
    Denoiser,
    action_feature_count,
    action_features,
    load_denoiser,
)
from tests.every_case import every_case
from tests.victims import helpers

N, K = 3, 2
UNIT = torch.tensor([0.5, 0.1, 0.0])
denoiser = functools.partial(helpers.denoiser, features=N, actions=K, unit=UNIT)


@pytest.mark.parametrize(("levels", "history"), [(0, 0), (0, 2), (3, 0), (3, 2), (1, 1)])
def test_a_reconstruction_stays_in_the_budget_and_a_frozen_feature_as_it_is(levels, history):
    net = denoiser(levels, history).net
    obs = 5 * torch.randn(7, N)
    found = net(obs, net.start(7), torch.randn(4, max(levels - 1, 0), N))
    assert found.shape == (7, N) and ((found - obs).abs() <= UNIT + 1e-6).all()
    assert (found != obs)[:, :2].any()


def test_a_plain_one_takes_away_what_its_network_says():
    net = denoiser(weight=torch.eye(N)).net
    obs = torch.tensor([[0.3, -0.2, 0.7], [9.0, 9.0, 9.0]])
    said = obs / (1 + UNIT.square()).sqrt()
    torch.testing.assert_close(net(obs, None), obs - UNIT * said.clamp(-1, 1))


def test_the_reverse_steps_are_the_posterior_of_ddpm():
    """Against Ho et al. 2020, equations 7 and 15, in the coordinates of alpha_bar."""
    net = denoiser(levels=3).net
    obs, draws = torch.randn(1, N), torch.randn(1, 2, N)
    sigma = net.levels
    bar = 1 / (1 + sigma.square())  # of x / sqrt(bar) = x_0 + sigma * noise
    before = torch.cat([torch.ones(1), bar[:-1]])
    alpha, unit = bar / before, UNIT
    x = obs * bar[-1].sqrt()
    for i in (2, 1, 0):
        said = net.noise(x / bar[i].sqrt(), None, torch.tensor([i]))
        clean = (x - (1 - bar[i]).sqrt() * unit * said) / bar[i].sqrt()
        beta = 1 - alpha[i]
        mean = (before[i].sqrt() * beta * clean + alpha[i].sqrt() * (1 - before[i]) * x) / (1 - bar[i])
        spread = (beta * (1 - before[i]) / (1 - bar[i])).sqrt()
        x = mean + (spread * unit * draws[:, i - 1] if i else 0)
    torch.testing.assert_close(net(obs, None, draws), torch.clamp(x, obs - unit, obs + unit))


def test_draws_are_averaged_row_by_row():
    net = denoiser(levels=3, history=2).net
    obs, draws, past = torch.randn(5, N), torch.randn(4, 2, N), net.start(5)
    whole = net(obs, past, draws)
    for i in range(5):
        alone = net(obs[i : i + 1], tuple(leaf[i : i + 1] for leaf in past), draws)
        torch.testing.assert_close(whole[i : i + 1], alone)


def test_what_is_remembered():
    net = denoiser(history=2).net
    past = net.start(1)
    told = net.condition(past)
    assert told.shape == (1, 2 * N + 2 + K) and not told.any()
    first, second = torch.ones(1, N), 2 * torch.ones(1, N)
    past = net.push(past, first, torch.tensor([[1.0, 0.0]]))
    assert net.condition(past)[0].tolist() == [0, 0, 0, 1, 1, 1, 0, 1, 1, 0]
    past = net.push(net.push(past, second, torch.tensor([[0.0, 1.0]])), first, torch.tensor([[0.5, 0.5]]))
    assert net.condition(past)[0].tolist() == [2, 2, 2, 1, 1, 1, 1, 1, 0.5, 0.5]
    assert denoiser().net.condition(past) is None


@pytest.mark.parametrize(("levels", "history"), [(0, 0), (3, 2)])
def test_a_folder_holds_the_same_denoiser(levels, history, tmp_path):
    made = denoiser(levels, history)
    saved = made.save(tmp_path)
    obs = torch.randn(4, N)
    assert torch.equal(saved.net(obs, saved.net.start(4)), made.net(obs, made.net.start(4)))
    assert (saved.history, saved.diffusion) == (history, levels > 0)
    assert load_denoiser(str(tmp_path)) == saved == load_denoiser(f"card:{tmp_path}") and load_denoiser(saved) is saved
    assert decode(json.loads(json.dumps(saved.to_dict()))) == saved
    assert saved.net_like(obs.double()).mean.dtype == torch.float64


@every_case(
    ("network", "tensors", "match"),
    [
        ({"history": 101}, {}, "history must be an integer from 0 to 100"),
        ({"features": 4}, {}, r"expected mean of shape \(4,\)"),
        ({"history": 0}, {}, r"does not take \(6,\)"),
        ({}, {"more": torch.ones(1)}, "weights that this network does not have"),
    ],
)
def test_a_malformed_folder_is_refused(network, tensors, match, tmp_path):
    denoiser(3, 2).save(tmp_path)
    card = json.loads((tmp_path / "card.json").read_text())
    card["network"] |= network
    stored = load_file(tmp_path / "weights.safetensors") | tensors
    save_file(stored, tmp_path / "weights.safetensors")
    import hashlib

    card["weights_sha256"] = hashlib.sha256((tmp_path / "weights.safetensors").read_bytes()).hexdigest()
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(CardError, match=match):
        Denoiser(str(tmp_path))


def test_victims_that_do_not_fit():
    net = torch.nn.Linear(N, 4)
    seen = spaces.Box(-9, 9, (N,))
    other = adv.from_module(net, seen, spaces.Discrete(4), "q")
    denoiser().check(other)
    with pytest.raises(VictimError, match="actions of 2 numbers, those of this victim have 4"):
        denoiser(history=1).check(other)
    with pytest.raises(VictimError, match=r"observations of shape \(3,\)"):
        denoiser().check(adv.load_victim("zoo:cartpole-dqn"))


def test_actions_as_numbers():
    assert action_feature_count(spaces.Discrete(3, start=2)) == 3 and action_feature_count(spaces.Box(-1, 1, (2,))) == 2
    assert action_features(spaces.Discrete(3, start=2), torch.tensor([2, 4])).tolist() == [[1, 0, 0], [0, 0, 1]]
    act = torch.randn(4, 2)
    assert action_features(spaces.Box(-1, 1, (2,)), act) is act
    with pytest.raises(VictimError, match="one choice, or a Box"):
        action_feature_count(spaces.MultiDiscrete(np.array([2, 2])))
