"""The networks that ``benchmarks/attacks.py`` attacks, how, at which batch sizes, and what each may take."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

FEATURES, ACTIONS, FRAMES = 17, 6, (4, 84, 84)


def chain(sizes: tuple[int, ...], *between: Callable[[int], nn.Module]) -> nn.Sequential:
    """Linear layers, and behind every one but the last what ``between`` makes for its width."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(inputs, outputs), *(make(outputs) for make in between)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def mlp() -> nn.Module:
    """17-64-64-6 with tanh."""
    return chain((FEATURES, 64, 64, ACTIONS), lambda _: nn.Tanh())


def wide_mlp() -> nn.Module:
    """376-256-256-17 with tanh, the sizes of Humanoid."""
    return chain((376, 256, 256, 17), lambda _: nn.Tanh())


def elu() -> nn.Module:
    """17-64-64-6 with ELU."""
    return chain((FEATURES, 64, 64, ACTIONS), lambda _: nn.ELU())


def layer_norm() -> nn.Module:
    """17-64-64-6 with layer normalisation and SiLU."""
    return chain((FEATURES, 64, 64, ACTIONS), nn.LayerNorm, lambda _: nn.SiLU())


class MlpClass(nn.Module):
    """17-64-64-6 as a class with ``F.relu``."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(FEATURES, 64), nn.Linear(64, 64), nn.Linear(64, ACTIONS)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.fc1(x))
        x = functional.relu(self.fc2(x))
        return self.fc3(x)


class SimBaBlock(nn.Module):
    """A residual block of Lee et al. 2024: layer normalisation, and four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc2(functional.relu(self.fc1(self.norm(x))))


class SimBa(nn.Module):
    """SimBa (Lee et al. 2024), 17 to 6 by two blocks of 128."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Linear(FEATURES, 128), nn.LayerNorm(128), nn.Linear(128, ACTIONS)
        self.blocks = nn.ModuleList([SimBaBlock(128), SimBaBlock(128)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def cnn() -> nn.Module:
    """The network of Mnih et al. 2015 on 4x84x84."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, ACTIONS),
    )


class CnnClass(nn.Module):
    """The same network as a class."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)
        self.fc, self.head = nn.Linear(3136, 512), nn.Linear(512, ACTIONS)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        x = functional.relu(self.conv3(x))
        return self.head(functional.relu(self.fc(x.flatten(1))))


class ImpalaBlock(nn.Module):
    """A residual block of Espeholt et al. 2018."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(functional.relu(self.conv1(functional.relu(x))))


class Impala(nn.Module):
    """IMPALA's deep network (Espeholt et al. 2018): 16, 32 and 32 channels, max pooling, two residual blocks each.

    Args:
        channels: of every stage.
        side: of the pictures ``[B, 4, side, side]``.
    """

    def __init__(self, channels: tuple[int, ...] = (16, 32, 32), side: int = 84) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise((4, *channels)):
            conv, pool = nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)
            stages.append(nn.Sequential(conv, pool, ImpalaBlock(outputs), ImpalaBlock(outputs)))
            side = (side + 1) // 2
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(256, ACTIONS)
        self.fc = nn.Linear(channels[-1] * side**2, 256)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stages(x)).flatten(1)
        return self.head(functional.relu(self.fc(x)))


class Dueling(nn.Module):
    """A dueling network (Wang et al. 2016), 17 to 6 by two layers of 128."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(FEATURES, 128), nn.Linear(128, 128)
        self.value, self.advantage = nn.Linear(128, 1), nn.Linear(128, ACTIONS)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.fc2(functional.relu(self.fc1(x))))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)


class TD3Actor(nn.Module):
    """The actor of CleanRL's DDPG and TD3, 17 to 6 by two layers of 256."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc_mu = nn.Linear(FEATURES, 256), nn.Linear(256, 256), nn.Linear(256, ACTIONS)
        self.register_buffer("action_scale", torch.linspace(0.5, 2, ACTIONS)[None])
        self.register_buffer("action_bias", torch.linspace(-1, 1, ACTIONS)[None])

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.fc2(functional.relu(self.fc1(x))))
        return torch.tanh(self.fc_mu(x)) * self.action_scale + self.action_bias


class Lstm(nn.Module):
    """An LSTM of 64 over one observation, from a state of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Linear(FEATURES, 64), nn.LSTM(64, 64, batch_first=True)
        self.head = nn.Linear(64, ACTIONS)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(functional.relu(self.embed(x))[:, None])
        return self.head(hidden[:, -1])


class Transformer(nn.Module):
    """A transformer encoder of two layers whose tokens are the 17 features."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.embed, self.places = nn.Linear(1, 32), nn.Parameter(0.1 * torch.randn(FEATURES, 32))
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, ACTIONS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x[..., None]) + self.places).mean(1))


def sac_actor() -> nn.Module:
    """SB3's SAC policy for 17 features and 6 actions, as it is made by default."""
    from stable_baselines3.sac.policies import SACPolicy

    box = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
    return SACPolicy(box, spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32), lambda _: 3e-4)


@dataclass(frozen=True)
class Case:
    """One network under one attack.

    Args:
        make: the network.
        shape: of an observation.
        batches: how many are attacked together, and how many times the floor that may take at most; None for no goal
            beside the other libraries.
        attack: ``pgd`` (ten steps), ``fgsm`` (one step of the full radius), or ``max-diff`` (on continuous actions).
        actions: number of outputs.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batches: Mapping[int, float | None]
    attack: str = "pgd"
    actions: int = ACTIONS


FLAT = (FEATURES,)
CASES = {
    "mlp": Case(mlp, FLAT, {1: 0.6, 64: 0.65, 256: 0.7, 1024: 0.7}),
    "wide-mlp": Case(wide_mlp, (376,), {1: 0.75, 64: 1.0, 256: 1.0, 1024: 1.0}, actions=17),
    "mlp-class": Case(MlpClass, FLAT, {1: 1.2, 64: 0.9}),
    "elu": Case(elu, FLAT, {1: 1.2, 64: 0.9}),
    "layer-norm": Case(layer_norm, FLAT, {1: 1.2, 64: 0.9, 1024: 0.9}),
    "simba": Case(SimBa, FLAT, {1: 1.2, 64: 0.9}),
    "lstm": Case(Lstm, FLAT, {1: 1.15}),
    "transformer": Case(Transformer, FLAT, {1: 1.05}),
    "sac-actor": Case(sac_actor, FLAT, {1: 1.15, 64: 1.15}, attack="max-diff"),
    "mlp-fgsm": Case(mlp, FLAT, {1: 1.0}, attack="fgsm"),
    "cnn-fgsm": Case(cnn, FRAMES, {1: 1.05}, attack="fgsm"),
    "cnn": Case(cnn, FRAMES, {1: 0.8, 8: 0.8, 64: 0.8}),
    "cnn-class": Case(CnnClass, FRAMES, {1: 0.8, 8: 0.8}),
    "impala": Case(Impala, FRAMES, {1: 1.05, 32: 1.05}),
}
