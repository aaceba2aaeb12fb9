"""Chains against autograd, and the layers that they must refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adv_wrappers.networks.input_gradient import AppendLogStd, Normalize, chain_of

ACT = nn.Tanh()


def normalize(width: int, clip: float | None = 1.0) -> Normalize:
    return Normalize(torch.linspace(-1, 1, width), torch.linspace(0.2, 2, width), clip)


NETS = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Identity(), nn.Linear(8, 3)),
    "one activation twice": lambda: nn.Sequential(nn.Linear(4, 8), ACT, nn.Linear(8, 8), ACT, nn.Linear(8, 3)),
    "one layer twice": lambda: nn.Sequential(*(layer := [nn.Linear(4, 4)]), nn.Tanh(), *layer),
    "normalised gaussian": lambda: nn.Sequential(
        normalize(4), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2), AppendLogStd(torch.tensor([0.1, -0.3]))
    ),
    "unclipped, activation first": lambda: nn.Sequential(normalize(4, None), nn.ReLU(), nn.Tanh(), nn.Linear(4, 2)),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False), nn.Tanh()),
    "cnn": lambda: nn.Sequential(
        normalize(1, None), nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(4, 4, 2, dilation=2, groups=2),
        nn.Flatten(), nn.ReLU(), nn.Linear(36, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_walk_is_autograd(name):
    torch.manual_seed(0)
    net = NETS[name]().double().requires_grad_(False)
    weight = {k: v.clone() for k, v in net.state_dict().items()}
    seen, slopes = [], []

    def slope(params):
        seen.append(params.clone())
        slopes.append(torch.randn_like(params))
        return slopes[-1]

    walk = chain_of(net).walk(slope)
    kept = []
    for rows in (5, 5, 3):  # on used memory, and with another number of rows
        x = torch.randn(rows, *((2, 10, 10) if name == "cnn" else (4,)), dtype=torch.float64)
        before = x.clone()
        kept.append(walk(x))
        given = slopes[-1].clone()
        torch.testing.assert_close(seen[-1], net(x), rtol=1e-12, atol=1e-12)
        assert torch.equal(x, before) and torch.equal(slopes[-1], given)
        (expected,) = torch.autograd.grad((net(x.requires_grad_()) * given).sum(), x)
        assert expected.abs().max() > 0
        torch.testing.assert_close(kept[-1], expected, rtol=1e-12, atol=1e-12)
    assert walk.spendable and kept[0].data_ptr() != kept[1].data_ptr()
    assert all(torch.equal(v, weight[k]) for k, v in net.state_dict().items())


def test_what_a_slope_returns_is_not_spent():
    walk = chain_of(nn.Sequential(nn.Flatten())).walk(lambda params: params)
    assert not walk.spendable


def test_walk_follows_the_weights():
    net = nn.Sequential(nn.Linear(2, 2))
    chain = chain_of(net)
    with torch.no_grad():
        net[0].weight.fill_(3.0)
    assert torch.equal(chain.walk(torch.ones_like)(torch.ones(1, 2)), torch.tensor([[6.0, 6.0]]))
    net[0].weight = nn.Parameter(torch.zeros(2, 2))
    assert torch.equal(chain.walk(torch.ones_like)(torch.ones(1, 2)), torch.zeros(1, 2))


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2))
    net.register_forward_hook(lambda module, args, out: out * 2)
    return net


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(2, 2), nn.GELU()),
        nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)),
        Doubled(nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), Doubled(nn.Linear(2, 2))),
        hooked(),
        nn.Sequential(nn.Flatten(0), nn.Linear(2, 2)),
        nn.Conv2d(1, 1, 3, padding="same"),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ],
    ids=["gelu", "dropout", "own forward", "own forward inside", "hook", "flatten", "padding", "parametrised"],
)
def test_no_chain(net):
    assert chain_of(net) is None
