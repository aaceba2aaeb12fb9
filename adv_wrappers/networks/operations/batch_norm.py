"""Batch normalisation once a network is trained: a factor and an offset for every channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.operations.linear_bounds import Bounds, largest
from adv_wrappers.networks.operations.operation import LayerOperation, Memory, register


@register
class BatchNorm(LayerOperation):
    """A batch normalisation that normalises by statistics of its own."""

    layers = (nn.BatchNorm1d, nn.BatchNorm2d)
    frees_output = True
    copies_gradient = True

    def has_gradient(self) -> bool:
        return not self.layer.training and self.layer.running_mean is not None

    def factor_and_offset(self, dimensions: int) -> tuple[Tensor, Tensor]:
        """What it multiplies every channel by, and then adds to it.

        Args:
            dimensions: those of its input, ``[B, C]`` or ``[B, C, ...]``, with which both broadcast.
        """
        layer = self.layer
        factor = (layer.running_var + layer.eps).rsqrt()
        factor = factor if layer.weight is None else factor * layer.weight
        offset = -layer.running_mean * factor
        offset = offset if layer.bias is None else offset + layer.bias
        shape = -1, *[1] * (dimensions - 2)
        return factor.view(shape), offset.view(shape)

    def prepared(self) -> Any:
        return self.factor_and_offset(2)

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        factor, offset = (each.view(-1, *[1] * (x.dim() - 2)) for each in memory.weights)
        memory.kept = factor
        value: Tensor = (x * factor).add_(offset)
        return value

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        factor: Tensor = memory.kept
        return g * factor

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        if not self.has_gradient():
            raise VictimError(f"interval bounds have no rule for {self.layer} in training mode: call .eval()")
        factor, offset = self.factor_and_offset(low.dim())
        at_low, at_high = low * factor + offset, high * factor + offset
        return torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)

    def is_affine(self) -> bool:
        return True

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        size = largest(*boxes[0])
        factor, offset = self.factor_and_offset(size.dim())
        return variances[0] * factor.square() + (eps * (size * factor.abs() + offset.abs())).square()
