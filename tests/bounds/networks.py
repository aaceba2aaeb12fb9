"""Networks as people write them, which are no layers in a row, and points of boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.networks.policy_layers import AppendLogStd, Clip, Normalize, QuantileMean
from tests.core.helpers import randn
from tests.networks.test_tracing import FORWARDS, PICTURES, Net


class Residual(nn.Module):
    """A residual network with layer normalisation."""

    def __init__(self, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 12), nn.Linear(12, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), act(), nn.Linear(12, 12)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x.relu())


class Dueling(nn.Module):
    """A dueling network (Wang et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.value, self.advantage = nn.Linear(16, 1), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=1, keepdim=True)


class Block(nn.Module):
    """A residual block of IMPALA's network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv0, self.conv1 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv1(functional.relu(self.conv0(functional.relu(x)))) + x


class Impala(nn.Module):
    """The network of Espeholt et al. 2018, as small as it gets: ``[B, 2, side, side]`` to ``[B, 3]``."""

    def __init__(self, channels: tuple[int, ...] = (3, 4), side: int = 8, blocks: int = 1) -> None:
        super().__init__()
        layers, before = list[nn.Module](), 2
        for count in channels:
            layers += [nn.Conv2d(before, count, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
            layers += [Block(count) for _ in range(blocks)]
            before, side = count, (side + 1) // 2
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.ReLU(), nn.Linear(before * side * side, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x / 255.0))


class TD3Actor(nn.Module):
    """The actor of CleanRL's DDPG and TD3."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc_mu = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 2)
        self.register_buffer("action_scale", torch.tensor([[2.0, 0.5]]))
        self.register_buffer("action_bias", torch.tensor([[0.0, -1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.fc2(functional.relu(self.fc1(x))))
        return torch.tanh(self.fc_mu(x)) * self.action_scale + self.action_bias


def normalised(seed: int) -> nn.Module:
    """Statistics of its own for every batch normalisation, and factors of any sign."""
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(16, 8),
        nn.BatchNorm1d(8),
        nn.GELU("tanh"),
        nn.Linear(8, 3),
        nn.LayerNorm(3),
    )
    for i, layer in enumerate(net):
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.running_mean.copy_(randn(layer.num_features, seed=seed + i))
            layer.running_var.copy_(randn(layer.num_features, seed=seed + i + 1).square() + 0.1)
            layer.weight.data.copy_(randn(layer.num_features, seed=seed + i + 2))
    return net


ROW, PICTURE = (4,), (2, 8, 8)
NETS = {
    "residual": (Residual, ROW), "residual, GELU": (lambda: Residual(nn.GELU), ROW), "dueling": (Dueling, ROW),
    "impala": (Impala, PICTURE), "td3": (TD3Actor, ROW), "normalised": (lambda: normalised(0), PICTURE),
    "layer norm of two axes": (lambda: nn.Sequential(nn.LayerNorm([8, 8]), nn.Flatten(), nn.Linear(128, 3)), PICTURE),
    "layer norm without weights": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5, elementwise_affine=False), nn.Linear(5, 3)), ROW,
    ),
    "clip, SiLU": (lambda: nn.Sequential(Normalize(randn(4), randn(4).exp(), 1.0), nn.SiLU(), nn.Linear(4, 3)), ROW),
    "pools": (
        lambda: nn.Sequential(
            nn.MaxPool2d((2, 3), (1, 2), (1, 0), (2, 1), ceil_mode=True), nn.Conv2d(2, 3, 2), nn.ReLU(),
            nn.MaxPool2d(2, 1), nn.Flatten(), nn.LazyLinear(3),
        ), PICTURE,
    ),
    **{
        f"forward: {name}": (lambda forward=forward: Net(forward), ROW)
        for name, forward in FORWARDS.items() if name not in PICTURES
    },
    **{f"forward: {name}": (lambda forward=FORWARDS[name]: Net(forward), (2, 8, 8)) for name in PICTURES},
}  # fmt: skip


def net_of(name: str, seed: int = 0) -> tuple[nn.Module, tuple[int, ...]]:
    """A float64 network in evaluation mode, weights of any size, and the shape of a row of its input."""
    torch.manual_seed(seed)
    make, shape = NETS[name]
    net = make().double().eval()
    if name == "pools":
        net(torch.zeros(1, *shape, dtype=torch.float64))
    for weight in net.parameters():
        weight.data.mul_(0.5 + 1.5 * torch.rand(()))
    return net.requires_grad_(False), shape


CURVES = {
    "relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "leaky": lambda: nn.LeakyReLU(0.3),
    "clamp": lambda: nn.Hardtanh(-0.5, 0.8), "clip": lambda: Clip(None, 0.3), "softplus": nn.Softplus,
    "in place": lambda: nn.ReLU(inplace=True), "elu": lambda: nn.ELU(0.7), "stepped": lambda: nn.Softplus(1.0, 0.5),
}  # fmt: skip


def curve_net(kind: str, curve: str, seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A random float64 net with weights of any size, and the shape of a row of its input."""
    torch.manual_seed(seed)
    act, shape = CURVES[curve], (3,)
    if kind == "plain":
        layers: list[nn.Module] = [nn.Linear(3, 10), act(), nn.Linear(10, 10), act(), nn.Linear(10, 3)]
    elif kind == "heads":
        first = Normalize(randn(3), randn(3).exp(), 1.5), nn.Linear(3, 8), act(), nn.Linear(8, 6)
        layers = [*first, act(), nn.Tanh(), nn.Linear(6, 6), QuantileMean(2), AppendLogStd(randn(3))]
    elif kind == "squashed":
        layers = [nn.Linear(3, 9), act(), nn.Linear(9, 9), act(), nn.Linear(9, 2), nn.Tanh()]
    else:
        shape = (2, 5, 6)
        layers = [nn.Conv2d(2, 3, 3, 2, 1, groups=1), act(), nn.AvgPool2d(2, 1, 1), nn.Conv2d(3, 2, 2, bias=False)]
        layers += [act(), nn.MaxPool2d(2, 1) if seed % 2 else nn.Conv2d(2, 3, 2), act(), nn.Flatten(), nn.LazyLinear(3)]
    net = nn.Sequential(*layers).double()
    net(torch.zeros(1, *shape, dtype=torch.float64))
    for weight in net.parameters():
        weight.data.mul_(0.5 + 2 * torch.rand(()))
    return net.requires_grad_(False), shape


def boxes_of(shape: tuple[int, ...], seed: int, count: int, unit: float = 1.0) -> tuple[Tensor, Tensor]:
    """Boxes of all sizes; some of their sides are points."""
    generator = torch.Generator().manual_seed(seed)
    size = 10 ** (2.5 * torch.rand(count, *[1] * len(shape), dtype=torch.float64, generator=generator) - 2.2)
    centre, spread = randn(count, *shape, seed=seed), size * randn(count, *shape, seed=seed + 1).clamp(min=0)
    return unit * (centre - spread), unit * (centre + spread)


def points_of(low: Tensor, high: Tensor, count: int, seed: int = 0) -> Tensor:
    """Points ``[count, B, *S]`` of boxes, half of them corners."""
    share = torch.rand(count, *low.shape, dtype=low.dtype, generator=torch.Generator().manual_seed(seed))
    share[: count // 2] = share[: count // 2].round()
    return torch.minimum(torch.maximum(low + share * (high - low), low), high)


def bounds_of_squares(layer: nn.Module, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """A rule of one's own, for a layer that squares what it takes."""
    most = torch.maximum(low.square(), high.square())
    return torch.where((low < 0) & (high > 0), 0.0, torch.minimum(low.square(), high.square())), most
