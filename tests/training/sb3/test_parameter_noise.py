"""Parameter-space noise: where it is, and how strong it becomes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from adv_wrappers.training.sb3.prioritized_dqn import ParameterNoise


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
