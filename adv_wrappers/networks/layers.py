"""Layers that torch does not have: normalisers, heads of policies, encodings of discrete observations.

Every layer that a network here is made of is one of torch's or one of these, so that :mod:`.serialization` can write it
down, :mod:`.input_gradient` can go through it, and
:mod:`adv_wrappers.bounds.interval_bounds` can bound it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Normalize(nn.Module):
    """``clip((x - mean) / std, -clip, clip)``, the observation rule of normalised agents; ``clip=None`` for none."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, clip: float | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.clip = clip

    def extra_repr(self) -> str:
        return f"clip={self.clip}"

    def forward(self, x: Tensor) -> Tensor:
        y = (x - self.mean) / self.std
        return y if self.clip is None else y.clamp(-self.clip, self.clip)


def dtype_to_normalize(mean: Tensor, std: Tensor) -> torch.dtype:
    """The dtype in which ``(x - mean) / std`` is told to 1e-5: float64 where observations lie far from zero."""
    rounded = mean.double().abs() / std.double() * torch.finfo(torch.float32).eps / 2
    whole = bool((std.float() > 0).all())  # else it is damaged, and in float32 the victim's answers show it
    return torch.float64 if whole and bool((rounded > 1e-5).any()) else torch.float32


class Clip(nn.Module):
    """``clamp(x, low, high)``, whose gradient is 1 at the ends, where that of ``nn.Hardtanh`` is 0."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        super().__init__()
        self.low, self.high = low, high

    def extra_repr(self) -> str:
        return f"low={self.low}, high={self.high}"

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, self.low, self.high)


class AppendLogStd(nn.Module):
    """Puts an observation-independent log standard deviation beside the mean: ``[B, D] -> [B, 2 D]``."""

    def __init__(self, log_std: Tensor) -> None:
        super().__init__()
        self.log_std = nn.Parameter(log_std.reshape(1, -1), requires_grad=False)

    def forward(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


class OneHot(nn.Module):
    """Whole numbers ``[B]`` or ``[B, D]`` to one-hot vectors side by side; no gradient goes through."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes

    def extra_repr(self) -> str:
        return f"sizes={self.sizes}"

    def forward(self, x: Tensor) -> Tensor:
        parts = x.reshape(len(x), len(self.sizes)).unbind(1)
        hot = [functional.one_hot(p.long(), n) for p, n in zip(parts, self.sizes, strict=True)]
        return torch.cat(hot, 1).to(x.dtype)


class TwoLogits(nn.Module):
    """Logits of bits to logits of (0, 1) side by side, ``[B, D] -> [B, 2 D]``."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(x), x], -1).flatten(1)


class QuantileMean(nn.Module):
    """Quantiles of Q-values to Q-values, ``[B, quantiles * A] -> [B, A]``."""

    def __init__(self, quantiles: int) -> None:
        super().__init__()
        self.quantiles = quantiles

    def extra_repr(self) -> str:
        return f"quantiles={self.quantiles}"

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.quantiles, -1).mean(1)


class MeanAndLogStd(nn.Module):
    """SAC's two heads, ``[B, 2 D]`` before the tanh; the log-std within SB3's bounds."""

    def __init__(self, mean: nn.Module, log_std: nn.Module) -> None:
        super().__init__()
        self.mean, self.log_std = mean, log_std

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.mean(x), self.log_std(x).clamp(-20, 2)], -1)


class GSDE(nn.Module):
    """The heads of generalised state-dependent exploration (Raffin et al. 2020), ``[B, 2 D]`` before any tanh.

    Its noise is ``latent @ W`` with independent Gaussian numbers in ``W``, so that at one state, over all draws of
    ``W``, an action is Gaussian with the variance ``latent^2 @ std^2``.

    Args:
        mean: the layer of the mean ``[B, D]``.
        log_std: of ``W``, ``[L, D]``, or ``[L, 1]`` for all actions alike.
        expln: whether standard deviations grow by a logarithm where ``log_std`` is above 0 (``use_expln`` of SB3).
        clip: what the mean is clipped to, or None.
    """

    epsilon = 1e-6  # added to the variance, as in SB3

    def __init__(self, mean: nn.Module, log_std: Tensor, expln: bool = False, clip: float | None = None) -> None:
        super().__init__()
        self.mean, self.expln, self.clip = mean, expln, clip
        self.log_std = nn.Parameter(log_std, requires_grad=False)

    def extra_repr(self) -> str:
        return f"expln={self.expln}, clip={self.clip}"

    def forward(self, latent: Tensor) -> Tensor:
        mean = self.mean(latent) if self.clip is None else self.mean(latent).clamp(-self.clip, self.clip)
        std = self.log_std.exp()
        if self.expln:
            std = torch.where(self.log_std > 0, (self.log_std.clamp(min=0) + self.epsilon).log1p() + 1, std)
        variance = latent.square() @ std.square() + self.epsilon
        return torch.cat([mean, (variance.log() / 2).expand_as(mean)], -1)


class ActionValue(nn.Module):
    """The value of a state and a continuous action, ``net([normalise(obs), act])``, ``[B]``."""

    def __init__(self, normalise: nn.Module, net: nn.Module) -> None:
        super().__init__()
        self.normalise, self.net = normalise, net

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        out: Tensor = self.net(torch.cat([self.normalise(obs), act], -1))
        return out.squeeze(-1)


class Critics(nn.Module):
    """The answers of all critics at native actions, side by side; differentiable in both arguments.

    Args:
        features: what the critics see of an observation.
        heads: the critics, which take that and an action in [-1, 1] side by side.
        low, high: the ends of the box of native actions.
    """

    low: Tensor
    high: Tensor

    def __init__(self, features: nn.Module, heads: Iterable[nn.Module], low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.features, self.heads = features, nn.ModuleList(heads)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def answers(self, obs: Any, act: Tensor) -> Tensor:
        """What every critic says, ``[B, critics]``, or ``[B, critics * quantiles]``."""
        scaled = 2 * (act - self.low) / (self.high - self.low) - 1
        x = torch.cat([self.features(obs), scaled.flatten(1)], -1)
        return torch.cat([head(x) for head in self.heads], -1)


class MinimumCritic(Critics):
    """The least of the critics at native actions, ``[B]``: what SAC, TD3, DDPG and CrossQ improve their actors by."""

    def forward(self, obs: Any, act: Tensor) -> Tensor:
        return self.answers(obs, act).amin(-1)


class QuantileMeanCritic(Critics):
    """The mean over the quantiles of all critics, ``[B]``: what TQC improves its actor by, nothing truncated."""

    def forward(self, obs: Any, act: Tensor) -> Tensor:
        return self.answers(obs, act).mean(-1)


def mean_over_quantiles(last: nn.Linear, quantiles: int) -> nn.Linear:
    """The layer whose outputs ``[A]`` are the means of outputs ``[quantiles * A]``: a mean is linear."""
    actions = last.out_features // quantiles
    layer = nn.Linear(last.in_features, actions, device="meta")
    for name in ("weight", "bias"):
        whole = getattr(last, name).detach()
        mean = whole.double().view(quantiles, actions, *whole.shape[1:]).mean(0)
        setattr(layer, name, nn.Parameter(mean.to(whole.dtype), requires_grad=False))
    return layer
