"""Functions of every element by itself.

Where a function is convex, the chord between its two ends lies above it and every tangent below; where it is concave,
the other way round. Of the tangents of a neuron any may be taken; here it is the one that encloses the least area.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.operations.linear_bounds import (
    Bounds,
    BoundStep,
    Lines,
    MeanLines,
    Total,
    Values,
    chord_slope,
    products,
    signed,
)
from adv_wrappers.networks.operations.operation import Elementwise, LayerOperation, Memory, Operation, register

# overloads, not packets: resolving one at every call costs more than a small layer
_aten = torch.ops.aten
_relu_backward = _aten.threshold_backward.grad_input
_elu_backward = _aten.elu_backward.grad_input
_leaky_relu_backward = _aten.leaky_relu_backward.grad_input
_hardtanh_backward = _aten.hardtanh_backward.grad_input
_softplus_backward = _aten.softplus_backward.grad_input


class Relaxed(Operation):
    """A function of every element by itself that has a line below it and one above, or what has lines like one."""

    def has_lines(self) -> bool:
        """Whether it has, with the settings of its layer."""
        return True

    def tight_at_end(self) -> bool:
        return self.has_lines()

    def loose(self, low: Tensor, high: Tensor) -> Tensor:
        """Where lines differ from the function, bool: there tighter bounds on its input make tighter lines.

        By default wherever there is an interval, as of a function that is straight nowhere.
        """
        return low < high

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """Lines between ``low`` and ``high``, ``[..., *S]``, which gradients go through."""
        raise NotImplementedError

    def relax(self, values: Values, sources: tuple[int, ...]) -> tuple[BoundStep | None, Bounds | None]:
        if not self.has_lines():
            return None, None
        return CurveStep.of(sources, self.lines(*values.box(sources[0], self.loose))), None


@dataclass
class CurveStep(BoundStep):
    """A function of every element by itself, or an operation that has lines like one.

    Attributes:
        sources: the number of the value that it takes.
        lines: in the box of that value, ``[B, 1, *S]``.
    """

    sources: tuple[int, ...]
    lines: MeanLines

    @classmethod
    def of(cls, sources: tuple[int, ...], found: Lines) -> CurveStep:
        """That of a function whose lines are ``[B, *S]``."""
        return cls(sources, MeanLines(*(line[:, None] for line in MeanLines.of(found))))

    def pull(self, rows: Tensor, both: bool, total: Total) -> tuple[Sequence[Tensor], bool]:
        # the line below it where a coefficient is positive, that above it where it is negative
        lines, size = self.lines, rows.abs()
        total.add(products(rows, lines.offset), products(size, lines.offset_apart), both)
        join = torch.add if both else signed
        return [join(rows * lines.slope, size * lines.slope_apart)], True


class FromOutput(Elementwise):
    """A function whose slope follows from its value, which is kept for :meth:`backward`."""

    def activated(self, x: Tensor, in_place: bool) -> Tensor:
        """Its value, written over ``x`` if that is asked for."""
        raise NotImplementedError

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        memory.kept = y = self.activated(x, memory.in_place)
        return y


class FromInput(Elementwise):
    """A function whose slope follows from its input, which is kept for :meth:`backward`."""

    frees_output = True

    def activated(self, x: Tensor) -> Tensor:
        """Its value, without the calls of a layer around it."""
        return self(x)

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        memory.kept = x
        return self.activated(x)


class Bent(Relaxed, FromOutput, LayerOperation):
    """Two straight lines that meet in 0: a slope below, and 1 above."""

    monotone = True

    @property
    def below(self) -> float:
        """The slope below 0."""
        return 0.0

    def loose(self, low: Tensor, high: Tensor) -> Tensor:
        return (low < 0) & (high > 0)

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        slope = self.below
        below, above = low.clamp(max=0), high.clamp(min=0)
        chord = above / (above - below).clamp(min=torch.finfo(low.dtype).tiny)  # 0 or 1 where nothing bends
        under = torch.where((low < 0) & (high > 0), (high > -low).to(low.dtype), chord)
        offset = -chord * below
        if slope:  # slope x + (1 - slope) relu(x)
            chord = slope + (1 - slope) * chord
            under = slope + (1 - slope) * under
            offset = (1 - slope) * offset
        return Lines(under, torch.zeros_like(chord), chord, offset)


@register
class ReLU(Bent):
    """The positive part."""

    layers = (nn.ReLU,)
    kind = "relu"
    onnx = "Relu"
    calls = (functional.relu, torch.relu, "relu")

    @classmethod
    def traced(cls, inplace: bool = False) -> nn.Module:
        return nn.ReLU()  # whether it writes over its input makes no difference

    def activated(self, x: Tensor, in_place: bool) -> Tensor:
        return x.relu_() if in_place else x.relu()

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _relu_backward(g, memory.kept, 0, grad_input=g)  # type: ignore[no-any-return]


@register
class LeakyReLU(Bent):
    """The positive part, and a share of the negative one."""

    layers = (nn.LeakyReLU,)
    kind = "leaky_relu"
    onnx = "LeakyRelu"
    defaults: ClassVar = {"negative_slope": 0.01}
    calls = (functional.leaky_relu,)

    @property
    def below(self) -> float:
        slope: float = self.layer.negative_slope
        return slope

    def has_gradient(self) -> bool:
        return self.below >= 0

    def activated(self, x: Tensor, in_place: bool) -> Tensor:
        return functional.leaky_relu(x, self.below, in_place)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _leaky_relu_backward(g, memory.kept, self.below, True, grad_input=g)  # type: ignore[no-any-return]

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        _check_rises(self.layer, self.below)
        return super().interval(low, high)

    def has_lines(self) -> bool:
        return 0 <= self.below <= 1


@register
class ELU(Relaxed, FromOutput, LayerOperation):
    """The positive part, and ``alpha (exp(x) - 1)`` below 0: convex up to an alpha of 1."""

    monotone = True
    layers = (nn.ELU,)
    kind = "elu"
    onnx = "Elu"
    defaults: ClassVar = {"alpha": 1.0}
    calls = (functional.elu,)

    def has_gradient(self) -> bool:
        return bool(self.layer.alpha >= 0)  # else the slope does not follow from the output

    def activated(self, x: Tensor, in_place: bool) -> Tensor:
        return functional.elu(x, self.layer.alpha, in_place)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _elu_backward(g, self.layer.alpha, 1, 1, True, memory.kept, grad_input=g)  # type: ignore[no-any-return]

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        _check_rises(self.layer, self.layer.alpha)
        return super().interval(low, high)

    def has_lines(self) -> bool:
        return bool(0 <= self.layer.alpha <= 1)  # convex

    def loose(self, low: Tensor, high: Tensor) -> Tensor:
        return (low < 0) & (low < high)

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        # below lies the tangent in the middle, which encloses the least area; above lies the chord
        at_low, middle = self.activated(low, False), (low + high) / 2
        slope = torch.where(middle < 0, self.layer.alpha * middle.clamp(max=0).exp(), 1.0)
        offset = self.activated(middle, False) - slope * middle
        chord = chord_slope(low, high, at_low, self.activated(high, False))
        rise = torch.where(low < 0, chord.clamp(0, 1), 1.0)
        return Lines(slope, offset, rise, at_low - rise * low)


def _check_rises(layer: nn.Module, slope: float) -> None:
    if slope < 0:
        raise VictimError(f"interval bounds have no rule for {layer}: it falls below 0, expected a slope of at least 0")


@register
class Softplus(FromInput, LayerOperation):
    """``log(1 + exp(beta x)) / beta``.

    Torch goes over to the identity where ``beta x > threshold``, which is a step down, and large for a small one.
    """

    layers = (nn.Softplus,)
    kind = "softplus"
    onnx = "Softplus"
    defaults: ClassVar = {"beta": 1.0, "threshold": 20.0}
    calls = (functional.softplus,)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _softplus_backward(g, memory.kept, self.layer.beta, self.layer.threshold, grad_input=g)  # type: ignore[no-any-return]

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        beta, threshold = self.layer.beta, self.layer.threshold
        if beta <= 0:
            raise VictimError(f"interval bounds have no rule for {self.layer}: expected beta above 0")
        # beyond the threshold torch is linear, and falls by a little where it begins: both sides of that count
        crosses = (low * beta <= threshold) & (high * beta > threshold)
        step = threshold / beta
        before = math.log1p(math.exp(-abs(threshold))) / beta + max(step, 0.0)
        least, most = self(low), self(high)
        return torch.where(crosses, least.clamp(max=step), least), torch.where(crosses, most.clamp(min=before), most)


class Clamp(Relaxed):
    """``clamp(x, least, most)``: convex around the lower bend, concave around the upper one."""

    monotone = True

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the most, infinite where there is none."""
        raise NotImplementedError

    def loose(self, low: Tensor, high: Tensor) -> Tensor:
        least, most = self.ends
        return ((low < least) & (high > least)) | ((low < most) & (high > most))

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        (least, most), tiny = self.ends, torch.finfo(low.dtype).tiny
        first, last = low.clamp(least, most), high.clamp(least, most)
        rise = chord_slope(low, high, first, last).clamp(0, 1)
        bends_low, bends_high = (low < least) & (high > least), (low < most) & (high > most)
        # around the lower bend, lines through it: flat, or as steep as they stay below the function up to the end
        up_to = ((last - least) / (high - least).clamp(min=tiny)).clamp(0, 1)
        lower_slope = torch.where(bends_low, torch.where(high - least > least - low, up_to, 0.0), rise)
        lower_offset = torch.where(bends_low, least - lower_slope * least, first - rise * low)
        down_to = ((most - first) / (most - low).clamp(min=tiny)).clamp(0, 1)
        upper_slope = torch.where(bends_high, torch.where(most - low > high - most, down_to, 0.0), rise)
        upper_offset = torch.where(bends_high, most - upper_slope * most, first - rise * low)
        # with one bend alone the function is concave, and the chord lies below it, or convex, and the chord lies above
        # it
        if not math.isfinite(least):
            lower_slope, lower_offset = rise.expand_as(upper_slope), (first - rise * low).expand_as(upper_offset)
        if not math.isfinite(most):
            upper_slope, upper_offset = rise.expand_as(lower_slope), (first - rise * low).expand_as(lower_offset)
        return Lines(lower_slope, lower_offset, upper_slope, upper_offset)


@register
class Hardtanh(Clamp, FromOutput, LayerOperation):
    """A clamp whose gradient is 0 at its ends."""

    layers = (nn.Hardtanh,)
    kind = "hardtanh"
    defaults: ClassVar = {"min_val": -1.0, "max_val": 1.0}
    calls = (functional.hardtanh,)

    @property
    def ends(self) -> tuple[float, float]:
        return self.layer.min_val, self.layer.max_val

    def activated(self, x: Tensor, in_place: bool) -> Tensor:
        return functional.hardtanh(x, *self.ends, in_place)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _hardtanh_backward(g, memory.kept, *self.ends, grad_input=g)  # type: ignore[no-any-return]
