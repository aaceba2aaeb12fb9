"""How far a network's own arithmetic may be off: an estimate of rounding errors over a box, for decisions near a tie.

Bounds hold in exact arithmetic, and a network computes in rounded. An error analysis that is certain adds up absolute
values in every layer, and of a deep network says nothing. Here errors are taken as independent of each other (Higham
and Mary 2019): every sum of a layer errs by one machine epsilon of the absolute values that it adds up, errors go
through the next layer by the squares of its weights, and activation functions do not make them larger.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.affine import check_width, is_affine, runs
from adv_wrappers.bounds.interval import PlacedLayer, layers_in, through
from adv_wrappers.networks.layers import AppendLogStd, Normalize, QuantileMean


def rounding(module: nn.Module, low: Tensor, high: Tensor, spec: Tensor, eps: float) -> Tensor:
    """The size ``[B, M]`` of rounding errors of combinations of a network's outputs, anywhere in boxes.

    Args:
        module: as :func:`adv_wrappers.bounds.interval` takes it, of one input.
        low, high: float tensors ``[B, *S]``.
        spec: rows of linear combinations of the outputs, ``[M, K]``.
        eps: the machine epsilon that the network computes with.
    """
    variance = torch.zeros_like(low)
    for placed in layers_in(module):
        size = torch.maximum(-low, high).clamp(min=0)
        low, high = through([placed], low, high)
        variance = _behind(placed, variance, size, torch.maximum(-low, high).clamp(min=0), eps)
    check_width(spec, variance.shape[1])
    return (variance @ spec.square().T).sqrt()


def _behind(placed: PlacedLayer, variance: Tensor, size: Tensor, after: Tensor, eps: float) -> Tensor:
    """Variances behind a layer that takes numbers of at most ``size``, and answers with at most ``after``."""
    layer = placed.layer
    if runs(layer, nn.Linear) or runs(layer, nn.Conv2d):
        sums = _with(layer, torch.abs)(size)
        squares = _with(layer, torch.square, bias=False)(variance)
        return squares + (eps * sums).square()
    if runs(layer, Normalize) and isinstance(layer, Normalize):
        return variance / layer.std.square() + (eps * (size + layer.mean.abs()) / layer.std).square()
    if runs(layer, AppendLogStd):
        return torch.cat([variance, torch.zeros_like(variance)], -1)
    if is_affine(layer) or isinstance(layer, nn.MaxPool2d):  # moves numbers, or takes the mean or the largest of some
        behind: Tensor = layer(variance)
        if isinstance(layer, QuantileMean):
            behind = behind / layer.quantiles + (eps * after).square()
        return behind
    rounded = (eps * after).square()
    return variance + rounded if variance.shape == rounded.shape else rounded * len(variance[0].flatten())


def _with(layer: nn.Module, change: Callable[[Tensor], Tensor], bias: bool = True) -> Callable[[Tensor], Tensor]:
    """A linear layer or convolution with other weights."""
    assert isinstance(layer, (nn.Linear, nn.Conv2d))
    weight = change(layer.weight)
    beside = None if layer.bias is None or not bias else change(layer.bias)
    if isinstance(layer, nn.Linear):
        return lambda x: functional.linear(x, weight, beside)
    conv = layer
    return lambda x: functional.conv2d(x, weight, beside, conv.stride, conv.padding, conv.dilation, conv.groups)
