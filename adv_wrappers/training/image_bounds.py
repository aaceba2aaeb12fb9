"""Interval bounds through convolutions for a loss: those of :mod:`adv_wrappers.bounds.interval` in half of the time.

What is carried from layer to layer is the centre of the box and its radius, and not its ends, of which bfloat16 would
make one number where the box is small. The box is a cube around the picture that the ends of the grey scale do not cut:
so the radius behind the first convolution, the largest layer, is one number a channel. It is wider at most.

Convolutions compute in bfloat16. Bounds are right to three digits, which does for a loss and not for a certificate.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.interval_rules import Bounds
from adv_wrappers.networks.layers import Normalize


def image_bounds(layers: Sequence[nn.Module], x: Tensor, radius: float, spec: Tensor) -> Bounds:
    """Bounds ``[B, M]`` on linear combinations of the outputs in cubes of ``radius`` around pictures ``x``.

    Args:
        layers: a :class:`Normalize` of one number, convolutions and linear layers with a ReLU between, a ``Flatten``.
        x: pictures ``[B, C, H, W]`` in the units of the space.
        radius: half of a side of the cube, in these units.
        spec: rows of linear combinations ``[M, K]`` or ``[B, M, K]``, multiplied into the last layer.
    """
    first, conv, *hidden, last = layers
    assert isinstance(first, Normalize) and isinstance(conv, nn.Conv2d) and isinstance(last, nn.Linear)
    dtype = torch.bfloat16
    pixels = first(x).to(dtype, memory_format=torch.channels_last)
    centre = _apply(conv, pixels, conv.weight, conv.bias)
    total = conv.weight.abs().sum((1, 2, 3)) * (radius / first.std)
    spread = total.view(1, -1, 1, 1)
    for layer in hidden:
        if isinstance(layer, nn.ReLU):
            low, high = torch.relu(centre - spread), torch.relu(centre + spread)
            centre, spread = (low + high) / 2, (high - low) / 2
        elif isinstance(layer, nn.Flatten):
            centre, spread = centre.flatten(1), spread.flatten(1)
        else:
            assert isinstance(layer, (nn.Conv2d, nn.Linear))
            centre = _apply(layer, centre.to(dtype), layer.weight, layer.bias)
            spread = _apply(layer, spread.to(dtype), layer.weight.abs(), None)
    rows = spec @ last.weight  # [M, N] or [B, M, N]
    middle = (rows @ centre[..., None]).squeeze(-1) + spec @ last.bias
    half = (rows.abs() @ spread[..., None]).squeeze(-1)
    return middle - half, middle + half


def _apply(layer: nn.Conv2d | nn.Linear, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A layer in the dtype of ``x``, with other weights; float32."""
    weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
    if isinstance(layer, nn.Linear):
        return functional.linear(x, weight, bias).float()
    return functional.conv2d(x, weight, bias, layer.stride).float()
