"""Layer normalisation in boxes: a mean that is taken away, which is linear, and a division by the deviation.

``y = (x - mean(x)) / sqrt(var(x) + eps)``, then a factor and an offset for every element. The first part,
``z = x - mean(x)``, is linear (:class:`Centred`), so linear bounds go through it without loss. Then the variance of n
elements is the mean of their squares, of which one is the element's own (:class:`Standardized`):

    y_i = z_i / sqrt((z_i^2 + r_i) / n + eps),    r_i = sum of z_j^2 over j other than i.

This rises with ``z_i``, and its absolute value falls with ``r_i``. So the ends of ``z_i`` and of ``r_i``, from the
boxes of the others, bound it, far more tightly than a quotient of two boxes, which forgets that a large element makes a
large variance. Centred elements sum to zero, so that ``z_i^2 <= (n - 1) r_i``, and no ``|y_i|`` exceeds
``sqrt(n - 1)``.

For linear bounds, what lies above it is a curve of ``z_i`` alone: for ``z_i >= 0`` the function with the least ``r_i``,
which is concave there, and below 0 that with the largest, which is convex. A line with the slope of the chord between
the ends is raised until it lies above: the curve is above a line of that slope by most at the ends, or where the
concave part is as steep, ``F'(z) = c / (z^2 / n + c)^(3/2)`` with ``c = r / n + eps``. Lines below are those above,
turned by half a circle.

The boxes of the others say little of the variance where elements move together. Around centres ``m_j`` of boxes with
radii ``d_j`` it is ``sum of (2 m_j z_j - m_j^2) / n``, which is linear and so bounded well, plus at most the mean of
``d_j^2`` and at least 0 (:meth:`Standardized.tangent`). With bounds on the variance, ``r_i / n`` is that minus
``z_i^2 / n``. (Shi et al. 2020 verify the normalisation of transformers by relaxations of the square, the
root and the quotient one after the other.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.errors import CardError
from adv_wrappers.networks.operations.activations import CurveStep, Relaxed
from adv_wrappers.networks.operations.arithmetic import Arithmetic
from adv_wrappers.networks.operations.linear_bounds import (
    Bounds,
    BoundStep,
    Lines,
    Shape,
    Values,
    largest,
    takes,
)
from adv_wrappers.networks.operations.operation import LayerOperation, Memory, Operation, register
from adv_wrappers.networks.operations.stored_layer import StoredLayer, WrittenLayer

Variance = tuple[Tensor, Tensor] | None
_norm_backward = torch.ops.aten.native_layer_norm_backward.default


@register
class LayerNorm(LayerOperation):
    """A layer normalisation."""

    layers = (nn.LayerNorm,)
    kind = "layer_norm"
    weighted_calls: ClassVar = {functional.layer_norm: ("input", "normalized_shape", "weight", "bias", "eps")}
    frees_output = True
    copies_gradient = True

    @classmethod
    def around(cls, weights: dict[str, Tensor], **settings: Any) -> nn.Module:
        return nn.LayerNorm(elementwise_affine="weight" in weights, **settings)

    def prepared(self) -> Any:
        return list(self.layer.normalized_shape), self.layer.weight, self.layer.bias, self.layer.eps

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        out, mean, rstd = torch.native_layer_norm(x, *memory.weights)
        memory.kept = x, mean, rstd
        return out

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        (shape, weight, bias, _), (x, mean, rstd) = memory.weights, memory.kept
        out: tuple[Tensor, ...] = _norm_backward(g, x, shape, mean, rstd, weight, bias, [True, False, False])
        return out[0]

    def parts(self) -> list[nn.Module | Operation]:
        return list(self._parts())

    def _parts(self) -> list[Operation]:
        layer, axes = self.layer, len(self.layer.normalized_shape)
        parts: list[Operation] = [Centred(axes), Standardized(axes, layer.eps)]
        if layer.weight is not None:
            parts.append(Arithmetic("multiply", layer.weight))
        if layer.bias is not None:
            parts.append(Arithmetic("add", layer.bias))
        return parts

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        for part in self._parts():
            low, high = part.interval(low, high)
        return low, high

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        (variance,), (box,) = variances, boxes
        for part in self._parts():
            before, box = box, part.interval(*box)
            variance = part.rounding([variance], [before], largest(*box), eps)
        return variance

    def settings(self) -> WrittenLayer:
        layer = self.layer
        if layer.weight is None or layer.bias is None or len(layer.normalized_shape) != 1:
            raise CardError(f"a LayerNorm that is written is over one axis, with weight and bias, got {layer}")
        return {} if layer.eps == 1e-5 else {"eps": layer.eps}

    @classmethod
    def build(cls, stored: StoredLayer) -> nn.Module:
        return stored.filled(nn.LayerNorm, len(stored.take("weight", None)))

    def shape_after(self, shape: Shape) -> Shape:
        takes(shape[-1:], *self.layer.normalized_shape)
        return shape


@dataclass(frozen=True, eq=False)
class Centred(Operation):
    """Elements minus the mean of all in their last ``axes`` axes."""

    axes: int

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        return x - x.mean(_last(self.axes), True)

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        share = 1 / math.prod(low.shape[-self.axes :])
        middle, radius = torch.lerp(low, high, 0.5), (high - low) / 2
        centre = self(middle)
        spread = (1 - 2 * share) * radius + radius.mean(_last(self.axes), True)
        return centre - spread, centre + spread

    def is_affine(self) -> bool:
        return True

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        (variance,) = variances
        return variance + variance.mean(_last(self.axes), True) + (eps * largest(*boxes[0])).square()


@dataclass(frozen=True, eq=False)
class Standardized(Relaxed):
    """Centred elements divided by ``sqrt(variance + eps)``, the variance of all in their last ``axes`` axes."""

    axes: int
    eps: float

    def __call__(self, *values: Tensor) -> Tensor:
        (z,) = values
        return z / (z.square().mean(_last(self.axes), True) + self.eps).sqrt()

    def interval(self, low: Tensor, high: Tensor, variance: Variance = None) -> Bounds:
        """A box around what the centred elements of a box become.

        Args:
            low, high: ends of their box, ``[..., *S]``.
            variance: bounds on the mean of their squares, ``[..., 1, ...]`` along the axes; None for those that follow
                from the box.
        """
        least, most = self._others(low, high, variance)
        n = self._count(low)
        ends = -self._most(-low, least, most, n), self._most(high, least, most, n)
        limit = math.sqrt(n - 1)
        return ends[0].clamp(-limit, limit), ends[1].clamp(-limit, limit)

    def lines(self, low: Tensor, high: Tensor, variance: Variance = None) -> Lines:
        """Its lines; ``variance`` is as of :meth:`interval`."""
        least, most = self._others(low, high, variance)
        n = self._count(low)
        slope, offset = _line_above(low, high, least, most, n)
        lower_slope, lower_offset = _line_above(-high, -low, least, most, n)
        return Lines(lower_slope, -lower_offset, slope, offset)

    def relax(self, values: Values, sources: tuple[int, ...]) -> tuple[BoundStep | None, Bounds | None]:
        low, high = values.box(sources[0], self.loose)
        # the variance between linear bounds from below and above, which its lines depend on
        rows, offset, addition = self.tangent(low, high)
        least, most = values.bound(sources[0], rows, offset)
        shape = (*low.shape[: -self.axes], *[1] * self.axes)
        variance = least.view(shape), torch.maximum(most + addition, least).view(shape)
        found = self.lines(low, high, variance)
        return CurveStep.of(sources, found), self.interval(low, high, variance)

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        nearest = _nearest(*boxes[0]).mean(_last(self.axes), True)
        return variances[0] / (nearest + self.eps) + (eps * after).square()

    def tangent(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The variance as ``rows @ z + offset``, up to what is added at most.

        Args:
            low, high: the box of centred elements ``[B, *S]``.

        Returns:
            Rows ``[B, G, *S]`` for each of G groups of elements, the offset and the addition ``[B, G]``.
        """
        n = self._count(low)
        middle, radius = torch.lerp(low, high, 0.5), (high - low) / 2
        groups = low[0].numel() // n
        one = torch.eye(groups, dtype=low.dtype, device=low.device).view(groups, groups, 1)
        rows = (one * (2 * middle / n).view(-1, 1, groups, n)).reshape(len(low), groups, *low.shape[1:])
        offset, addition = (each.square().view(-1, groups, n).mean(-1) for each in (middle, radius))
        return rows, -offset, addition

    def _count(self, x: Tensor) -> int:
        return math.prod(x.shape[-self.axes :])

    def _others(self, low: Tensor, high: Tensor, variance: Variance) -> tuple[Tensor, Tensor]:
        """The least and the largest ``r / n + eps``."""
        n, tiny = self._count(low), torch.finfo(low.dtype).tiny ** 0.5  # of eps = 0; a smaller one has no gradient
        nearest, farthest = _nearest(low, high), torch.maximum(high, -low).square()
        least, most = (((each.sum(_last(self.axes), True) - each).clamp(min=0)) / n for each in (nearest, farthest))
        if variance is not None:
            least = torch.maximum(least, variance[0] - farthest / n)
            most = torch.maximum(torch.minimum(most, variance[1] - nearest / n), least)
        return (least + self.eps).clamp(min=tiny), (most + self.eps).clamp(min=tiny)

    @staticmethod
    def _most(high: Tensor, least: Tensor, most: Tensor, n: int) -> Tensor:
        return _curve(high, torch.where(high > 0, least, most), n)


def _last(axes: int) -> tuple[int, ...]:
    """The last axes, as numbers from behind."""
    return tuple(range(-axes, 0))


def _nearest(low: Tensor, high: Tensor) -> Tensor:
    """The least squares in a box."""
    return torch.maximum(low, -high).clamp(min=0).square()


def _curve(z: Tensor, others: Tensor, n: int) -> Tensor:
    return z / (z.square() / n + others).sqrt()


def _line_above(low: Tensor, high: Tensor, least: Tensor, most: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Slope and offset of a line above the curve that is largest, ``least`` of the others from 0 on, ``most`` below."""
    tiny = torch.finfo(low.dtype).tiny
    at_low = _curve(low, torch.where(low > 0, least, most), n)
    at_high = _curve(high, torch.where(high > 0, least, most), n)
    slope = ((at_high - at_low) / (high - low).clamp(min=tiny)).clamp(min=0)
    above = torch.maximum(at_low - slope * low, at_high - slope * high)
    with torch.no_grad():  # where the concave part is as steep; the curve's distance to the line has no slope there
        steep = (n * ((least / slope.clamp(min=tiny)).pow(2 / 3) - least)).clamp(min=0).sqrt()
    top = torch.minimum(torch.maximum(steep, low), high)
    return slope, torch.where(high > 0, torch.maximum(above, _curve(top, least, n) - slope * top), above)
