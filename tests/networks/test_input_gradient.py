"""Input gradients against autograd, the layers that they must refuse, and the same attack laid out otherwise."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from adv_wrappers import Linf, MaxDiff, MinBest, Momentum, Valid, from_module
from adv_wrappers.core.budgets import L2
from adv_wrappers.networks.graph import Node, chain
from adv_wrappers.networks.input_gradient import InputGradient, followed, graph_of
from adv_wrappers.networks.layers import AppendLogStd, Clip, Normalize, QuantileMean, TwoLogits
from adv_wrappers.networks.space_to_depth import SpaceToDepth, space_to_depth
from tests.core.helpers import context

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
    )  # fmt: skip
PICTURES = ("cnn", "pool")


@pytest.mark.parametrize("name", NETS)
def test_input_gradient_is_autograd(name):
    torch.manual_seed(0)
    net = NETS[name]().double().requires_grad_(False)
    weight = {k: v.clone() for k, v in net.state_dict().items()}
    seen, slopes = [], []

    def slope(params):
        seen.append(params.clone())
        slopes.append(torch.randn_like(params))
        return slopes[-1]

    gradient = graph_of(net).input_gradient(slope)
    kept = []
    for rows in (5, 5, 3):  # on used memory, and with another number of rows
        x = torch.randn(rows, *((2, 10, 10) if name in PICTURES else (4,)), dtype=torch.float64)
        before = x.clone()
        kept.append(gradient(x))
        given = slopes[-1].clone()
        torch.testing.assert_close(seen[-1], net(x), rtol=1e-12, atol=1e-12)
        assert torch.equal(x, before) and torch.equal(slopes[-1], given)
        (expected,) = torch.autograd.grad((net(x.requires_grad_()) * given).sum(), x)
        assert expected.abs().max() > 0
        torch.testing.assert_close(kept[-1], expected, rtol=1e-12, atol=1e-12)
    assert gradient.overwritable and kept[0].data_ptr() != kept[1].data_ptr()
    assert all(torch.equal(v, weight[k]) for k, v in net.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NETS)
def test_input_gradient_in_less_precision(name, dtype):
    torch.manual_seed(0)
    net = NETS[name]().requires_grad_(False)
    x = torch.randn(4, *((2, 10, 10) if name in PICTURES else (4,)))
    slope = torch.randn_like(net(x))
    found = graph_of(net).input_gradient(lambda params: slope, None if dtype == torch.float32 else dtype)(x)
    (expected,) = torch.autograd.grad((net(x.requires_grad_()) * slope).sum(), x)
    assert found.dtype == torch.float32
    scale = expected.abs().max() * (1e-5 if dtype == torch.float32 else 0.3)
    assert (found - expected).abs().max() <= scale


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


def test_what_an_output_gradient_returns_is_not_overwritten():
    gradient = graph_of(nn.Sequential(nn.Flatten())).input_gradient(lambda params: params)
    assert not gradient.overwritable


def test_input_gradient_follows_the_weights():
    net = nn.Sequential(nn.Linear(2, 2))
    graph = graph_of(net)
    assert followed(net, graph) is graph
    with torch.no_grad():
        net[0].weight.fill_(3.0)
    assert torch.equal(graph.input_gradient(torch.ones_like)(torch.ones(1, 2)), torch.tensor([[6.0, 6.0]]))
    net[0].weight = nn.Parameter(torch.zeros(2, 2))
    assert torch.equal(graph.input_gradient(torch.ones_like)(torch.ones(1, 2)), torch.zeros(1, 2))
    net[0] = nn.Linear(2, 2)
    assert [node.layer for node in followed(net, graph).nodes] == [net[0]]
    net[0].register_forward_hook(lambda *_: None)
    assert followed(net, graph) is None


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2))
    net.register_forward_hook(lambda module, args, out: out * 2)
    return net


def backward_hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].register_full_backward_hook(lambda module, given, taken: None)
    return net


def other_forward() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].forward = lambda x: x
    return net


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)),
        nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)),
        Doubled(nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), Doubled(nn.Linear(2, 2))),
        hooked(),
        nn.Sequential(nn.Flatten(0), nn.Linear(2, 2)),
        nn.Conv2d(1, 1, 3, padding="same"),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        backward_hooked(),
        other_forward(),
        nn.MaxPool2d(2, return_indices=True),
        nn.ELU(-1.0),
    ],
    ids=[
        "softmax", "dropout", "own forward", "own forward inside", "hook", "flatten", "padding", "parametrised",
        "backward hook", "other forward", "indices", "elu",
    ],
)  # fmt: skip
def test_no_graph(net):
    assert graph_of(net) is None


SHAPE = (2, 12, 16)


def cnn(*before: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *before, nn.Conv2d(2, 6, 8, 4), nn.ReLU(), nn.Conv2d(6, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(10, 3)
    ).double()  # fmt: skip


def test_space_to_depth_has_an_inverse():
    x, layout = torch.arange(2.0 * 2 * 12 * 16).view(2, *SHAPE), SpaceToDepth(4)
    assert layout(x).shape == (2, 32, 3, 4) and layout(x)[1, 0, 0].tolist() == x[1, 0, 0, ::4].tolist()
    assert torch.equal(layout.inverse(layout(x)), x)


def test_rearranged_convolution():
    conv = nn.Conv2d(2, 6, 8, 4).double()
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    layout = space_to_depth([Node(conv, (0,))], SHAPE)
    torch.testing.assert_close(
        functional.conv2d(layout(x), layout(conv.weight), conv.bias), conv(x), rtol=0, atol=1e-12
    )


NORMAL = Normalize(torch.tensor([0.5]), torch.tensor([2.0]))


@pytest.mark.parametrize(
    ("layers", "shape", "pays"),
    [
        ([nn.Conv2d(2, 6, 8, 4)], SHAPE, True),
        ([NORMAL, nn.ReLU(), nn.Conv2d(2, 6, 8, 4)], SHAPE, True),
        ([Normalize(torch.zeros(16), torch.ones(16)), nn.Conv2d(2, 6, 8, 4)], SHAPE, False),
        ([nn.Conv2d(2, 6, 8, 4)], (2, 12, 18), False),
        ([nn.Conv2d(2, 6, 8, 3)], (2, 12, 15), False),
        ([nn.Conv2d(2, 6, 3, 1)], SHAPE, False),
        ([nn.Conv2d(2, 6, 8, 4, padding=2)], SHAPE, False),
        ([nn.Conv2d(2, 6, 8, (4, 2))], SHAPE, False),
        ([nn.Conv2d(2, 6, 2, 4, dilation=4)], SHAPE, False),
        ([nn.Conv2d(16, 6, 8, 4)], (16, 12, 16), False),
        ([nn.Flatten(), nn.Linear(384, 2)], SHAPE, False),
        ([nn.Tanh()], SHAPE, False),
    ],
)
def test_what_is_rearranged(layers, shape, pays):
    assert (space_to_depth(chain(layers), shape) is not None) is pays


@pytest.mark.parametrize("net", [cnn(), cnn(NORMAL)], ids=["plain", "normalised"])
def test_rearranged_gradient(net):
    x, slope = torch.randn(3, *SHAPE, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    gradient = graph_of(net).input_gradient(lambda params: slope)
    layout, rearranged = gradient.rearranged(x)
    torch.testing.assert_close(layout.inverse(rearranged(layout(x))), gradient(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("attack", "budget", "low", "high"),
    [
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Linf(0.1), -1, 1),
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Valid(), -1, 1),
        (lambda v: MinBest(v, steps=4, step=0.3, random_start=True), Linf(3), 0, 255),
        (lambda v: Momentum(v, steps=4, step=0.3), Linf(0.1, scale=2.0), -1, 1),
        (lambda v: MaxDiff(v, steps=4, step=0.3, noise=1.0), Linf(0.1), -1, 1),
    ],
    ids=["pgd", "valid", "grid", "momentum", "langevin"],
)
def test_rearranged_attack(monkeypatch, attack, budget, low, high):
    victim = from_module(cnn(), spaces.Box(low, high, SHAPE), spaces.Discrete(3), "logits")
    grid = high == 255
    x = torch.randint(0, 256, (3, *SHAPE)).double() if grid else torch.rand(3, *SHAPE, dtype=torch.float64)
    made = [context(x, budget, low, high, grid=grid) for _ in range(2)]
    layouts = []
    plain = InputGradient.rearranged
    monkeypatch.setattr(
        InputGradient, "rearranged", lambda gradient, y: layouts.append(plain(gradient, y)) or layouts[-1]
    )
    rearranged = attack(victim)(x, made[0])
    monkeypatch.setattr(InputGradient, "rearranged", lambda gradient, y: None)
    straight = attack(victim)(x, made[1])
    assert layouts[0] is not None and not torch.equal(rearranged, x)
    torch.testing.assert_close(rearranged, straight, rtol=0, atol=1e-9)


def test_what_depends_on_places_is_not_rearranged(monkeypatch):
    victim = from_module(cnn(), spaces.Box(-1, 1, SHAPE), spaces.Discrete(3), "logits")
    monkeypatch.setattr(InputGradient, "rearranged", lambda gradient, y: pytest.fail("rearranged"))
    x = torch.rand(3, *SHAPE, dtype=torch.float64)
    for budget in (L2(0.5), Linf(0.1, scale=tuple([0.5] * 384))):
        assert MinBest(victim)(x, context(x, budget, -1, 1)).shape == x.shape
