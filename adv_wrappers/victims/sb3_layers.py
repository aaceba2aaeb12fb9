"""Layers that a Stable-Baselines3 policy needs beside torch's own. Imports nothing of SB3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.victims.recurrent import Leaves, lstm_step


class OneHot(nn.Module):
    """Whole numbers ``[B]`` or ``[B, D]`` to one-hot vectors side by side; no gradient goes through."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        parts = x.reshape(len(x), len(self.sizes)).unbind(1)
        hot = [nn.functional.one_hot(p.long(), n) for p, n in zip(parts, self.sizes, strict=True)]
        return torch.cat(hot, 1).to(x.dtype)


class EveryKey(nn.Module):
    """One module a key of a dictionary of observations."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.keys, self.parts = tuple(parts), nn.ModuleList(parts.values())

    def forward(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {key: part(obs[key]) for key, part in zip(self.keys, self.parts, strict=True)}


class Method(nn.Module):
    """A method of a module, as a module."""

    def __init__(self, owner: nn.Module, name: str) -> None:
        super().__init__()
        self.owner, self.name = owner, name

    def forward(self, x: Tensor) -> Any:
        return getattr(self.owner, self.name)(x)


class MeanAndLogStd(nn.Module):
    """SAC's two heads, ``[B, 2 D]`` before the tanh; the log-std within SB3's bounds."""

    def __init__(self, mean: nn.Module, log_std: nn.Module) -> None:
        super().__init__()
        self.mean, self.log_std = mean, log_std

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.mean(x), self.log_std(x).clamp(-20, 2)], -1)


class TwoLogits(nn.Module):
    """Logits of bits to logits of (0, 1) side by side, ``[B, D] -> [B, 2 D]``."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(x), x], -1).flatten(1)


class QuantileMean(nn.Module):
    """``[B, quantiles * A] -> [B, A]``."""

    def __init__(self, quantiles: int) -> None:
        super().__init__()
        self.quantiles = quantiles

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.quantiles, -1).mean(1)


class MinimumCritic(nn.Module):
    """The least of the critics at native actions, ``[B]``; differentiable in both arguments."""

    low: Tensor
    high: Tensor

    def __init__(self, features: nn.Module, heads: list[nn.Module], box: spaces.Box) -> None:
        super().__init__()
        self.features, self.heads = features, nn.ModuleList(heads)
        self.register_buffer("low", torch.as_tensor(box.low))
        self.register_buffer("high", torch.as_tensor(box.high))

    def forward(self, obs: Any, act: Tensor) -> Tensor:
        scaled = 2 * (act - self.low) / (self.high - self.low) - 1
        x = torch.cat([self.features(obs), scaled.flatten(1)], -1)
        return torch.cat([head(x) for head in self.heads], -1).amin(-1)


class RecurrentActor(nn.Module):
    """RecurrentPPO's actor; state ``(h, c)`` of the actor, then of the critic if it has its own, ``[B, layers, H]``."""

    def __init__(
        self, features: nn.Module, lstm: nn.LSTM, head: nn.Module, critic: tuple[nn.Module, nn.LSTM] | None
    ) -> None:
        super().__init__()
        self.features, self.lstm, self.head = features, lstm, head
        self.critic = nn.ModuleList(critic or [])

    def forward(self, obs: Any, state: Leaves) -> tuple[Tensor, Leaves]:
        """Parameters at ``obs``, and the state as it came."""
        return self.head(lstm_step(self.lstm, self.features(obs), *state[:2])[0]), state

    def advance(self, obs: Any, state: Leaves) -> Leaves:
        """The state after acting on ``obs``."""
        new: Leaves = lstm_step(self.lstm, self.features(obs), *state[:2])[1:]
        if len(self.critic):
            features, lstm = self.critic
            assert isinstance(lstm, nn.LSTM)
            new += lstm_step(lstm, features(obs), *state[2:])[1:]
        return new


class RecurrentValue(nn.Module):
    """RecurrentPPO's value: of its own LSTM, of the actor's, or of none."""

    def __init__(
        self, features: nn.Module, lstm: nn.LSTM | None, plain: nn.Module | None, head: nn.Module, own: bool
    ) -> None:
        super().__init__()
        self.features, self.lstm, self.plain, self.head, self.own = features, lstm, plain, head, own

    def forward(self, obs: Any, state: Leaves) -> Any:
        x = self.features(obs)
        if self.lstm is not None:
            x = lstm_step(self.lstm, x, *(state[2:] if self.own else state[:2]))[0]
        elif self.plain is not None:
            x = self.plain(x)
        return self.head(x)
