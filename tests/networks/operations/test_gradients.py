"""The gradients of layers against autograd."""

from __future__ import annotations

import torch
from torch import nn

from adv_wrappers.networks.input_gradient import graph_of
from adv_wrappers.networks.policy_layers import AppendLogStd, Clip, Normalize, QuantileMean, TwoLogits
from tests.every_case import every_case
from tests.networks.autograd import check_gradient

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
    "pool": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.MaxPool2d(3, 2, 1), nn.ELU(), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(),
        nn.LayerNorm(12, elementwise_affine=False), nn.Linear(12, 3),
    ),
    "quantiles of two logits": lambda: nn.Sequential(nn.Linear(4, 6), nn.SiLU(), QuantileMean(3), TwoLogits()),
    "clipped first": lambda: nn.Sequential(Clip(-0.5, 0.5), nn.LayerNorm(4), nn.Linear(4, 3)),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3)).eval(),
}  # fmt: skip
ACTIVATIONS = [
    nn.Tanh(), nn.ReLU(), nn.ELU(), nn.ELU(0.5), nn.LeakyReLU(0.2), nn.LeakyReLU(0.0), nn.Sigmoid(),
    nn.Hardtanh(-0.6, 0.8), nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.Softplus(2.0, 1.0),
    Clip(-0.7, 0.8), Clip(-0.4), Clip(None, 0.4),
]  # fmt: skip
for layer in ACTIVATIONS:  # behind a linear layer, where most work in place, behind a normalisation, first and last
    NETS[str(layer) + str(vars(layer) if isinstance(layer, Clip) else "")] = lambda layer=layer: nn.Sequential(
        layer, nn.Linear(4, 8), layer, nn.LayerNorm(8, bias=False), layer, layer, nn.Linear(8, 9), layer
    )
PICTURES = ("cnn", "pool")


@every_case("name", NETS)
def test_input_gradient_is_autograd(name):
    torch.manual_seed(0)
    net = NETS[name]().double().requires_grad_(False)
    weight = {k: v.clone() for k, v in net.state_dict().items()}
    shape = (2, 10, 10) if name in PICTURES else (4,)
    check_gradient(graph_of(net), net, lambda rows: torch.randn(rows, *shape, dtype=torch.float64), 1e-12)
    assert all(torch.equal(v, weight[k]) for k, v in net.state_dict().items())


def test_many_rows_take_a_tanh_by_sigmoids():
    torch.manual_seed(0)
    net = NETS["mlp"]().requires_grad_(False)
    x = 20 * torch.randn(4096, 4)
    slope = torch.randn(4096, 3)
    (expected,) = torch.autograd.grad((net(x.requires_grad_()) * slope).sum(), x)
    seen = []
    found = graph_of(net).input_gradient(lambda params: seen.append(params.clone()) or slope)(x.detach())
    assert (seen[0] - net(x)).abs().max() < 2e-6 and (found - expected).abs().max() < 2e-6


def test_a_clip_has_a_slope_at_its_ends():
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([[-0.1, 0.3, 0.30001, -0.2]], dtype=dtype)
        gradient = graph_of(nn.Sequential(Clip(-0.1, 0.3))).input_gradient(torch.ones_like)
        assert gradient(x).tolist() == [[1, 1, 0, 0]]
