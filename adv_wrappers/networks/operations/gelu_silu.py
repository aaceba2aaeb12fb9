"""GELU (Hendrycks and Gimpel 2016) and SiLU, which fall up to one point, where they are least, and rise from there.

Both are ``x / 2 + g(x)`` with an even ``g``: ``x erf(x / sqrt(2)) / 2``, and ``x tanh(p(x)) / 2`` with ``p(x) = x / 2``
for SiLU and a cubic ``p`` for GELU's approximation. ``g`` is convex between two bends ``-k`` and ``k`` and concave
beyond, with ``0 <= g(x) <= |x| / 2``. So lines of ``g``, turned by a half, are lines of these, and by symmetry those of
intervals whose middle is at least 0 are all that is needed:

- Above, where the interval holds 0, lies the chord: its slope is at most 1/2, and beyond ``k`` that of ``g`` is larger.
  Elsewhere it does as long as ``g`` is at least as steep as it at the upper end; and if not, every tangent of the
  concave part does that passes above the lower end, as for tanh.
- Below lie the tangents of the convex part that pass below both ends. The one in 0 always does, and which others is a
  table; where ``g`` is at the lower end as steep as the chord, or all concave, it is the chord.
"""

from __future__ import annotations

import functools
import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.networks.operations.activations import FromInput, Relaxed
from adv_wrappers.networks.operations.linear_bounds import Bounds, Lines, bisected, chord_slope, share_of
from adv_wrappers.networks.operations.operation import LayerOperation, Memory, register

_REACH, _PER_UNIT = 32, 256
_silu_backward = torch.ops.aten.silu_backward.grad_input
_gelu_backward = torch.ops.aten.gelu_backward.grad_input


class Gated(Relaxed, FromInput, LayerOperation):
    """``x`` times a function that rises from 0 to 1: it falls to where it is least, and rises from there."""

    steepest = 1.13

    @property
    def even(self) -> Even:
        """Its difference from ``x / 2``."""
        raise NotImplementedError

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        bottom = -self.even.half
        crosses = (low < bottom) & (high > bottom)
        at_low, at_high = self.at_ends(low, high)
        least = torch.where(crosses, self(low.new_tensor(bottom)), torch.minimum(at_low, at_high))
        return least, torch.maximum(at_low, at_high)

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        return self.even.lines(low, high)


@register
class SiLU(Gated):
    """``x sigmoid(x)``."""

    layers = (nn.SiLU,)
    kind = "silu"
    calls = (functional.silu,)

    @property
    def even(self) -> Even:
        return even_part("silu")

    def activated(self, x: Tensor) -> Tensor:
        return functional.silu(x)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _silu_backward(g, memory.kept, grad_input=g)  # type: ignore[no-any-return]


@register
class GELU(Gated):
    """``x`` times the probability that a normal number is below it, or an approximation of that by a tanh."""

    layers = (nn.GELU,)
    kind = "gelu"
    onnx = "Gelu"
    defaults: ClassVar = {"approximate": "none"}
    calls = (functional.gelu,)

    @property
    def even(self) -> Even:
        return even_part(f"gelu, {self.layer.approximate}")

    def activated(self, x: Tensor) -> Tensor:
        return functional.gelu(x, approximate=self.layer.approximate)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return _gelu_backward(g, memory.kept, approximate=self.layer.approximate, grad_input=g)  # type: ignore[no-any-return]


class Even:
    """The even part ``g(x) = f(x) - x / 2`` of GELU or SiLU, and lines of ``f``.

    Attributes:
        bend: from where on ``g`` is concave.
        half: where its slope is 1/2, on the way to the bend: ``f`` is least at minus this.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        with torch.inference_mode(False):
            zero = torch.zeros((), dtype=torch.float64)
            bend = bisected(lambda x: self._bends_up(x) > 0, zero, zero + 4)[0]
            self.bend, self.half = float(bend), float(bisected(lambda x: self.slope(x) < 0.5, zero, bend)[0])

    def value(self, x: Tensor) -> Tensor:
        """``g``."""
        if self.name == "gelu, none":
            return x / 2 * torch.erf(x / math.sqrt(2))
        return x / 2 * self._inner(x)[0].tanh()

    def slope(self, x: Tensor) -> Tensor:
        """``g'``."""
        if self.name == "gelu, none":
            return torch.erf(x / math.sqrt(2)) / 2 + x * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
        inner, slope, _ = self._inner(x)
        at = inner.tanh()
        return at / 2 + x / 2 * slope * (1 - at.square())

    def _bends_up(self, x: Tensor) -> Tensor:
        """What has the sign of ``g''``."""
        if self.name == "gelu, none":
            return 2 - x.square()
        inner, slope, second = self._inner(x)
        return slope + x / 2 * second - x * slope.square() * inner.tanh()

    def _inner(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``p``, ``p'`` and ``p''``."""
        if self.name == "silu":
            return x / 2, torch.full_like(x, 0.5), torch.zeros_like(x)
        factor, cubic = math.sqrt(2 / math.pi), 0.044715
        return factor * (x + cubic * x**3), factor * (1 + 3 * cubic * x.square()), factor * 6 * cubic * x

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """Lines of ``f``."""
        # intervals are turned around 0 so that their middles are at least 0
        turned = low + high < 0
        low, high = torch.where(turned, -high, low), torch.where(turned, -low, high)
        at_low, at_high = self.value(low), self.value(high)
        rise = chord_slope(low, high, at_low, at_high).clamp(-1, 1)
        chord = at_low - rise * low
        # lines of g: the tangents nearest to the middle, or the chord where it bounds g
        middle = (low + high) / 2
        under = self._tangent(middle, *self._below(low, high))
        over = self._tangent(middle, *self._above(low, high))
        concave = (high > self.bend) & (low > 0)
        straight_under = concave & ((low >= self.bend) | (self.slope(low) >= rise))
        straight_over = ~concave | (self.slope(high) >= rise)
        # turned back by the half, and mirrored where the interval was
        found = []
        for straight, (slope, offset) in ((straight_under, under), (straight_over, over)):
            slope = torch.where(straight, rise, slope)
            found += [torch.where(turned, -slope, slope) + 0.5, torch.where(straight, chord, offset)]
        return Lines(*found)

    def _tangent(self, middle: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        touch = first + share_of(middle, first, last) * (last - first)
        slope = self.slope(touch)
        return slope, self.value(touch) - slope * touch

    def _below(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Between which points tangents lie below ``g``."""
        last = torch.minimum(high, self._last_below(high))
        first = torch.maximum(low, -self._last_below(-low))
        return torch.minimum(first, last), last

    def _above(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Between which points tangents lie above ``g``, where it is concave at the upper end and ``low > 0``."""
        place = (low.detach() * _PER_UNIT).floor().clamp(0, _REACH * _PER_UNIT).long()
        first = torch.where(low >= self.bend, low, _even_tables(self.name, low.dtype, low.device)[0][place])
        return first, torch.maximum(high, first)

    def _last_below(self, end: Tensor) -> Tensor:
        """The largest point whose tangent passes below ``g`` at ``end``."""
        place = (end.detach() * _PER_UNIT).ceil().clamp(0, _REACH * _PER_UNIT).long()
        return _even_tables(self.name, end.dtype, end.device)[1][place]


even_part = functools.lru_cache(Even)


@functools.lru_cache
def _even_tables(name: str, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """By the lower end the first tangent above it, and by the upper end the last tangent below it, of a grid."""
    g = even_part(name)
    with torch.inference_mode(False):
        end = torch.linspace(0, _REACH, _REACH * _PER_UNIT + 1, dtype=torch.float64)
        bend, far = torch.full_like(end, g.bend), torch.full_like(end, 40.0)

        def passes(at: Tensor) -> Tensor:
            return g.value(at) + g.slope(at) * (end - at) - g.value(end)

        above = bisected(lambda at: passes(at) < 0, bend, far)[0] * (1 + 1e-6) + 1e-9
        below = bisected(lambda at: passes(at) <= 0, torch.zeros_like(end), torch.minimum(bend, end))[0]
        below = torch.where(end < g.bend, g.bend, below * (1 - 1e-6))
        below[-1] = g.half * (1 - 1e-6)  # for all that lie beyond
        return above.to(device, dtype), below.to(device, dtype)
