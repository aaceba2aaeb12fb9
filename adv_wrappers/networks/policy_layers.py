"""Layers that torch does not have: normalisers, heads of policies, encodings of discrete observations.

Each is its own :class:`~adv_wrappers.networks.operations.operation.Operation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.errors import CardError
from adv_wrappers.networks.operations.activations import Clamp, FromInput
from adv_wrappers.networks.operations.linear import Linear
from adv_wrappers.networks.operations.linear_bounds import Bounds, Shape, flat, largest, takes
from adv_wrappers.networks.operations.operation import Elementwise, Memory, Operation, hooked, register
from adv_wrappers.networks.operations.stored_layer import StoredLayer, WrittenLayer
from adv_wrappers.utils.checks import finite_float

_hardtanh_backward = torch.ops.aten.hardtanh_backward.default
_clip_backward = torch.ops.aten.hardtanh_backward.grad_input


@register
class Normalize(nn.Module, Elementwise):
    """``clip((x - mean) / std, -clip, clip)``, the observation rule of normalised agents; ``clip=None`` for none."""

    monotone = True
    kind = "normalize"
    frees_output = True

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

    def is_uniform(self) -> bool:
        return self.mean.numel() == self.std.numel() == 1

    def prepared(self) -> Any:
        return self.mean, self.std

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        mean, std = memory.weights
        y: Tensor = (x - mean).div_(std)
        memory.kept = y
        return y if self.clip is None else y.clamp(-self.clip, self.clip)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        if self.clip is not None:
            g = _hardtanh_backward(g, memory.kept, -self.clip, self.clip)
        std: Tensor = memory.weights[1]
        return g / std

    def shape_after(self, shape: Shape) -> Shape:
        return tuple(torch.broadcast_shapes(shape, self.mean.shape))

    def parts(self) -> list[nn.Module | Operation]:
        if self.clip is None:
            return [self]
        return [Normalize(self.mean, self.std), Clip(-self.clip, self.clip)]

    def is_affine(self) -> bool:
        return self.clip is None

    def pull_back(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Sequence[Tensor], Tensor]:
        pulled = rows / self.std
        return [pulled], -flat(pulled * self.mean, 2).sum(-1)

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        (variance,), size = variances, largest(*boxes[0])
        return variance / self.std.square() + (eps * (size + self.mean.abs()) / self.std).square()

    def settings(self) -> WrittenLayer:
        return {"clip": self.clip if finite_float(self.clip) is not None else None}  # infinity clips nothing

    @classmethod
    def build(cls, stored: StoredLayer) -> Normalize:
        mean = stored.take("mean").detach()
        std, clip = stored.take("std", *mean.shape).detach(), stored.settings.get("clip")
        return cls(mean, std, **{**stored.settings, "clip": None if clip is None else float(clip)})


def dtype_to_normalize(mean: Tensor, std: Tensor) -> torch.dtype:
    """The dtype in which ``(x - mean) / std`` is told to 1e-5: float64 where observations lie far from zero."""
    rounded = mean.double().abs() / std.double() * torch.finfo(torch.float32).eps / 2
    whole = bool((std.float() > 0).all())  # else it is damaged, and in float32 the victim's answers show it
    return torch.float64 if whole and bool((rounded > 1e-5).any()) else torch.float32


@register
class Clip(nn.Module, Clamp, FromInput):
    """``clamp(x, low, high)``, whose gradient is 1 at the ends, where that of ``nn.Hardtanh`` is 0."""

    kind = "clip"
    defaults: ClassVar = {"low": None, "high": None}
    calls = (torch.clamp, "clamp", torch.clip, "clip")

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        super().__init__()
        self.low, self.high = low, high

    def extra_repr(self) -> str:
        return f"low={self.low}, high={self.high}"

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, self.low, self.high)

    @classmethod
    def traced(cls, min: float | None = None, max: float | None = None) -> nn.Module | None:
        numbers = all(value is None or isinstance(value, (int, float)) for value in (min, max))
        return cls(min, max) if numbers else None

    def activated(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _clip_backward(g, memory.kept, *_beyond(*self.ends, memory.kept.dtype), grad_input=g)  # type: ignore[no-any-return]

    @property
    def ends(self) -> tuple[float, float]:
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high


@lru_cache
def _beyond(low: float, high: float, dtype: torch.dtype) -> tuple[float, float]:
    """The numbers next to these, outside: a clip has a slope at its ends, where ``hardtanh_backward`` has none."""
    below, above = (
        torch.tensor([low, high], dtype=dtype).nextafter(torch.tensor([-math.inf, math.inf], dtype=dtype)).tolist()
    )
    return below, above


@register
class AppendLogStd(nn.Module, Operation):
    """Puts an observation-independent log standard deviation beside the mean: ``[B, D] -> [B, 2 D]``."""

    monotone = True
    kind = "append_log_std"
    takes_rows = True

    def __init__(self, log_std: Tensor) -> None:
        super().__init__()
        self.log_std = nn.Parameter(log_std.reshape(1, -1), requires_grad=False)

    def forward(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return g[..., : memory.kept.shape[-1]]

    def is_affine(self) -> bool:
        return True

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        return torch.cat([variances[0], torch.zeros_like(variances[0])], -1)

    @classmethod
    def build(cls, stored: StoredLayer) -> AppendLogStd:
        return cls(stored.take("log_std", 1, None).detach(), **stored.settings)

    def shape_after(self, shape: Shape) -> Shape:
        takes(shape, self.log_std.shape[1])
        return (2 * self.log_std.shape[1],)


@register
class OneHot(nn.Module, Operation):
    """Whole numbers ``[B]`` or ``[B, D]`` to one-hot vectors side by side; no gradient goes through."""

    kind = "one_hot"
    bounded = False

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes

    def extra_repr(self) -> str:
        return f"sizes={self.sizes}"

    def forward(self, x: Tensor) -> Tensor:
        parts = x.reshape(len(x), len(self.sizes)).unbind(1)
        hot = [functional.one_hot(p.long(), n) for p, n in zip(parts, self.sizes, strict=True)]
        return torch.cat(hot, 1).to(x.dtype)

    def shape_after(self, shape: Shape) -> Shape:
        takes((math.prod(shape),), len(self.sizes))
        return (sum(self.sizes),)

    def settings(self) -> WrittenLayer:
        return {"sizes": list(self.sizes)}

    @classmethod
    def build(cls, stored: StoredLayer) -> OneHot:
        return cls(**{**stored.settings, "sizes": tuple(stored.settings["sizes"])})


@register
class TwoLogits(nn.Module, Operation):
    """Logits of bits to logits of (0, 1) side by side, ``[B, D] -> [B, 2 D]``."""

    monotone = True
    kind = "two_logits"
    takes_rows = True

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(x), x], -1).flatten(1)

    def shape_after(self, shape: Shape) -> Shape:
        return (2 * math.prod(shape),)

    def is_affine(self) -> bool:
        return True


@register
class QuantileMean(nn.Module, Operation):
    """Quantiles of Q-values to Q-values, ``[B, quantiles * A] -> [B, A]``."""

    monotone = True
    kind = "quantile_mean"
    defaults: ClassVar = {"quantiles": None}
    takes_rows = True

    def __init__(self, quantiles: int) -> None:
        super().__init__()
        self.quantiles = quantiles

    def extra_repr(self) -> str:
        return f"quantiles={self.quantiles}"

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.quantiles, -1).mean(1)

    def shape_after(self, shape: Shape) -> Shape:
        actions, left = divmod(math.prod(shape), self.quantiles)
        takes((left,), 0)
        return (actions,)

    def is_affine(self) -> bool:
        return True

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        return self.forward(variances[0]) / self.quantiles + (eps * after).square()


@register
class MeanAndLogStd(nn.Module, Operation):
    """SAC's two heads, ``[B, 2 D]`` before the tanh; the log-std within SB3's bounds."""

    kind = "mean_and_log_std"
    bounded = False

    def __init__(self, mean: nn.Module, log_std: nn.Module) -> None:
        super().__init__()
        self.mean, self.log_std = mean, log_std

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.mean(x), self.log_std(x).clamp(-20, 2)], -1)

    def shape_after(self, shape: Shape) -> Shape:
        (mean,), (log_std,) = (Linear(head).shape_after(shape) for head in (self.mean, self.log_std))
        return (mean + log_std,)

    def settings(self) -> WrittenLayer:
        heads = (self.mean, self.log_std)
        if any(type(head) is not nn.Linear or head.bias is None or hooked(head) for head in heads):
            raise CardError(f"heads of mean and log-std that are written are linear, with biases, got {self}")
        return {}

    @classmethod
    def build(cls, stored: StoredLayer) -> MeanAndLogStd:
        mean = Linear.build(stored.part("mean"))
        log_std = stored.part("log_std").filled(nn.Linear, mean.in_features, mean.out_features)
        return cls(mean, log_std, **stored.settings)


@register
class GSDE(nn.Module, Operation):
    """The heads of generalised state-dependent exploration (Raffin et al. 2020), ``[B, 2 D]`` before any tanh.

    Its noise is ``latent @ W`` with independent Gaussian numbers in ``W``, so that at one state, over all draws of
    ``W``, an action is Gaussian with the variance ``latent^2 @ std^2``.

    Args:
        mean: the layer of the mean ``[B, D]``.
        log_std: of ``W``, ``[L, D]``, or ``[L, 1]`` for all actions alike.
        expln: whether standard deviations grow by a logarithm where ``log_std`` is above 0 (``use_expln`` of SB3).
        clip: what the mean is clipped to, or None.
    """

    kind = "gsde"
    bounded = False
    defaults: ClassVar = {"expln": False, "clip": None}
    epsilon = 1e-6  # added to the variance, as in SB3

    def __init__(self, mean: nn.Module, log_std: Tensor, expln: bool = False, clip: float | None = None) -> None:
        super().__init__()
        self.mean = mean
        self.expln = expln
        self.clip = clip
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

    def shape_after(self, shape: Shape) -> Shape:
        latent, actions = self.log_std.shape
        takes(shape, latent)
        (mean,) = Linear(self.mean).shape_after(shape)
        takes(torch.broadcast_shapes((mean,), (actions,)), mean)
        return (2 * mean,)

    def settings(self) -> WrittenLayer:
        if type(self.mean) is not nn.Linear or self.mean.bias is None or hooked(self.mean):
            raise CardError(f"a head of the mean that is written is linear, with a bias, got {self}")
        return super().settings()

    @classmethod
    def build(cls, stored: StoredLayer) -> GSDE:
        return cls(Linear.build(stored.part("mean")), stored.take("log_std", None, None), **stored.settings)


class PerKey(nn.Module):
    """One module per key of a (nested) dictionary of observations."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.keys, self.parts = tuple(parts), nn.ModuleList(parts.values())

    def extra_repr(self) -> str:
        return f"keys={self.keys}"

    def forward(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        return {key: part(obs[key]) for key, part in zip(self.keys, self.parts, strict=True)}


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
