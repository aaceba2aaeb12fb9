"""Chains: plain feed-forward networks whose gradient with respect to the input is written out, without autograd.

A chain runs a ``Sequential`` of known layers and keeps just what the way back needs. It calls the very kernels that
autograd would, so the result is the same, but no graph is built, no gradient of a weight is considered, and small
networks spend half the time (``benchmarks/attacks.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# overloads, not packets: resolving one at every call costs more than a small layer
_tanh_backward: Any = torch.ops.aten.tanh_backward.grad_input
_relu_backward: Any = torch.ops.aten.threshold_backward.grad_input
_clip_backward: Any = torch.ops.aten.hardtanh_backward.default
_conv_backward: Any = torch.ops.aten.convolution_backward.default


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


def chain_of(module: nn.Module) -> Chain | None:
    """The chain of a module, or None if it holds a layer that is not written out here."""
    layers = list(_flat(module))
    for layer in layers:
        if type(layer) not in _KNOWN or layer._forward_hooks or layer._forward_pre_hooks:
            return None
        if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
            return None
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
            return None
    return Chain(layers)


class Chain:
    """Forward and backward over a list of layers; weights are read from the modules at every call."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self.layers = [layer for layer in layers if not isinstance(layer, nn.Identity)]

    @torch.no_grad()
    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Output ``[B, K]`` and what :meth:`backward` needs."""
        tape: list[Any] = []
        for i, layer in enumerate(self.layers):
            if isinstance(layer, nn.Linear):
                x = functional.linear(x, layer.weight, layer.bias)
                tape.append(None)
            elif isinstance(layer, (nn.Tanh, nn.ReLU)):
                fresh = i > 0 and isinstance(self.layers[i - 1], (nn.Linear, nn.Conv2d))
                if isinstance(layer, nn.Tanh):
                    x = x.tanh_() if fresh else x.tanh()
                else:
                    x = x.relu_() if fresh else x.relu()
                tape.append(x)
            elif isinstance(layer, nn.Conv2d):
                tape.append(x)
                x = functional.conv2d(
                    x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups
                )
            elif isinstance(layer, nn.Flatten):
                tape.append(x.shape)
                x = x.flatten(1)
            elif isinstance(layer, Normalize):
                x = (x - layer.mean).div_(layer.std)
                tape.append(x)
                if layer.clip is not None:
                    x = x.clamp(-layer.clip, layer.clip)
            else:
                tape.append(x.shape[-1])
                x = layer(x)
        return x, tape

    @torch.no_grad()
    def backward(self, g: Tensor, tape: list[Any]) -> Tensor:
        """Gradient with respect to the input, from the gradient ``g`` with respect to the output."""
        own = False  # whether g is memory of this call, to be written over
        for layer, kept in zip(reversed(self.layers), reversed(tape), strict=True):
            if isinstance(layer, nn.Linear):
                g, own = g @ layer.weight, True
            elif isinstance(layer, nn.Tanh):
                g, own = _tanh_backward(g, kept, grad_input=g if own else torch.empty_like(g)), True
            elif isinstance(layer, nn.ReLU):
                g, own = _relu_backward(g, kept, 0, grad_input=g if own else torch.empty_like(g)), True
            elif isinstance(layer, nn.Conv2d):
                own = True
                g = _conv_backward(
                    g, kept, layer.weight, None, layer.stride, layer.padding, layer.dilation,
                    False, [0, 0], layer.groups, [True, False, False],
                )[0]  # fmt: skip
            elif isinstance(layer, nn.Flatten):
                g = g.reshape(kept)
            elif isinstance(layer, Normalize):
                if layer.clip is not None:
                    g = _clip_backward(g, kept, -layer.clip, layer.clip)
                g, own = g / layer.std, True
            else:
                g = g[..., :kept]
        return g
