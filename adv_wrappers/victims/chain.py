"""Chains: plain feed-forward networks whose gradient with respect to the input is written out, without autograd.

A chain is a ``Sequential`` of known layers; :mod:`adv_wrappers.victims.walk` goes through it and back, keeping just
what the way back needs. No graph is built, no gradient of a weight is considered, and small networks spend half the
time (``benchmarks/attacks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.victims.walk import Walk


class Normalize(nn.Module):
    """``clip((x - mean) / std, -clip, clip)``, the observation rule of normalised agents; ``clip=None`` for none."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, clip: float | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        y = (x - self.mean) / self.std
        return y if self.clip is None else y.clamp(-self.clip, self.clip)


class AppendLogStd(nn.Module):
    """Puts an observation-independent log standard deviation beside the mean: ``[B, D] -> [B, 2 D]``."""

    def __init__(self, log_std: Tensor) -> None:
        super().__init__()
        self.log_std = nn.Parameter(log_std.reshape(1, -1), requires_grad=False)

    def forward(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


_KNOWN = (nn.Linear, nn.Conv2d, nn.Tanh, nn.ReLU, nn.Flatten, nn.Identity, Normalize, AppendLogStd)


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    # iterating a Sequential and not its children(), which leave out the second use of one shared activation
    if type(module) is nn.Sequential and not (module._forward_hooks or module._forward_pre_hooks):
        for child in module:
            yield from _flat(child)
    else:
        yield module


def chain_of(module: nn.Module, frozen: bool = False) -> Chain | None:
    """The chain of a module, or None if it holds a layer that is not written out here.

    ``frozen`` promises that its weights never change, so what is made of them is made once.
    """
    layers = list(_flat(module))
    for layer in layers:
        if type(layer) not in _KNOWN or layer._forward_hooks or layer._forward_pre_hooks:
            return None
        if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
            return None
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
            return None
    return Chain(layers, frozen)


class Chain:
    """A list of layers that a walk can be made of; weights are read from the modules when it is made."""

    def __init__(self, layers: list[nn.Module], frozen: bool = False) -> None:
        self.layers = [layer for layer in layers if not isinstance(layer, nn.Identity)]
        self._made: dict[Hashable, Tensor] | None = {} if frozen else None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": None if self._made is None else {}}

    def walk(self, slope: Callable[[Tensor], Tensor], dtype: torch.dtype | None = None) -> Walk:
        """``x -> d loss(params(x)).sum() / dx`` from ``slope``, the gradient of the loss at parameters ``[B, K]``.

        ``dtype`` is what layers compute in, by default that of their weights.
        """
        return Walk(self.layers, slope, dtype=dtype, make=self.make)

    def make(self, key: Hashable, function: Callable[[], Tensor]) -> Tensor:
        """What ``function`` makes of the weights; of frozen ones once."""
        if self._made is None:
            return function()
        if key not in self._made:
            self._made[key] = function()
        return self._made[key]
