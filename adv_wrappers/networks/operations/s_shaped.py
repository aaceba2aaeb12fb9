"""Tanh and sigmoid: convex below 0, concave above.

Above the concave part lie its tangents, from the one on that passes the lower end; where the function is convex, or
convex for long enough, the chord. Lines below are those above, turned by half a circle.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.networks.operations.activations import FromOutput, Relaxed
from adv_wrappers.networks.operations.linear_bounds import Lines, bisected, chord_slope, share_of
from adv_wrappers.networks.operations.operation import LayerOperation, Memory, register

_REACH, _PER_UNIT = 32, 256
_SIGMOIDS = 2048  # from so many numbers on a tanh is computed as a sigmoid
_MINUS_ONE = torch.tensor(-1.0)  # on the host, where it is a number to every device's kernels
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input


@register
class Tanh(Relaxed, FromOutput, LayerOperation):
    """The hyperbolic tangent."""

    monotone = True
    layers = (nn.Tanh,)
    kind = "tanh"
    onnx = "Tanh"
    calls = (functional.tanh, torch.tanh, "tanh")

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        # a sigmoid takes a quarter of the time of a tanh, and is as exact to within 2e-7 of its range
        if memory.in_place and x.numel() >= _SIGMOIDS and x.is_cpu and x.dtype in _EXACT:
            x.add_(x).sigmoid_()  # tanh(x) = 2 sigmoid(2 x) - 1
            torch.add(_MINUS_ONE, x, alpha=2, out=x)
        else:
            x = x.tanh_() if memory.in_place else x.tanh()
        memory.kept = x
        return x

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _tanh_backward(g, memory.kept, grad_input=g)  # type: ignore[no-any-return]

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        return _lines_of_tanh(low, high)


_EXACT = (torch.float32, torch.float64)


@register
class Sigmoid(Relaxed, FromOutput, LayerOperation):
    """The logistic function, ``(1 + tanh(x / 2)) / 2``."""

    monotone = True
    layers = (nn.Sigmoid,)
    kind = "sigmoid"
    onnx = "Sigmoid"
    calls = (functional.sigmoid, torch.sigmoid, "sigmoid")

    def activated(self, x: Tensor, in_place: bool) -> Tensor:
        return x.sigmoid_() if in_place else x.sigmoid()

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _sigmoid_backward(g, memory.kept, grad_input=g)  # type: ignore[no-any-return]

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        slope, offset, upper_slope, upper_offset = _lines_of_tanh(low / 2, high / 2)
        return Lines(slope / 4, (offset + 1) / 2, upper_slope / 4, (upper_offset + 1) / 2)


def _lines_of_tanh(low: Tensor, high: Tensor) -> Lines:
    """Convex below 0, concave above; lines below are those above, turned by half a circle."""
    at_low, at_high = low.tanh(), high.tanh()
    rise = chord_slope(low, high, at_low, at_high).clamp(0, 1)
    upper = _line_above_tanh(low, high, at_low, at_high, rise)
    slope, offset = _line_above_tanh(-high, -low, -at_high, -at_low, rise)
    return Lines(slope, -offset, *upper)


def _line_above_tanh(low: Tensor, high: Tensor, at_low: Tensor, at_high: Tensor, rise: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and offset of a line above tanh: a tangent where it is concave, or the chord where that lies above."""
    # a chord to high lies above where tanh is steeper than it at high: all of it convex, or convex for long enough
    chord = (1 - at_high.square()) * (high - low) >= at_high - at_low
    chord &= low < 0
    # the tangent nearest to the middle encloses the least area
    first = _first_tangent(low)
    touch = first + share_of((low + high) / 2, first, high) * (torch.maximum(high, first) - first)
    at_touch = touch.tanh()
    slope = 1 - at_touch.square()
    offset = at_touch - slope * touch
    far = low < -_REACH  # where the table ends: a constant
    slope = torch.where(chord, rise, torch.where(far & (high > 0), 0.0, slope))
    offset = torch.where(chord, at_low - rise * low, torch.where(far & (high > 0), at_high, offset))
    return slope, offset


def _first_tangent(low: Tensor) -> Tensor:
    """From where on tangents of tanh lie above it: where it is concave, and they pass above ``(low, tanh(low))``.

    Below 0 the next one of a table: the first such point falls with ``low``, and every later one is one too.
    """
    place = ((low.detach() + _REACH) * _PER_UNIT).floor().clamp(0, _REACH * _PER_UNIT).long()
    return torch.where(low >= 0, low, _table(low.dtype, low.device)[place])


@functools.lru_cache
def _table(dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        low = torch.linspace(-_REACH, 0, _REACH * _PER_UNIT + 1, dtype=torch.float64)

        def misses(at: Tensor) -> Tensor:
            return at.tanh() + (1 - at.tanh().square()) * (low - at) < low.tanh()

        first = bisected(misses, torch.zeros_like(low), torch.full_like(low, 8.0))[1]
        return (first * (1 + 1e-6) + 1e-9).to(device, dtype)
