"""Lines below and above an activation function within an interval, as CROWN takes them (Zhang, Weng et al. 2018).

Where a function is convex, the chord between its two ends lies above it and every tangent below; where it is concave,
the other way round. Of the tangents of a neuron any may be taken, and some make tighter bounds on the network: which
one is a number from 0 to 1, by default the one that encloses the least area, and what
:func:`adv_wrappers.bounds.crown_bounds.crown` optimises when it refines (alpha-CROWN, Xu et al. 2021).

GELU (Hendrycks and Gimpel 2016) and SiLU fall and rise again. Both are ``x / 2 + g(x)`` with an even ``g``:
``x erf(x / sqrt(2)) / 2``, and ``x tanh(p(x)) / 2`` with ``p(x) = x / 2`` for SiLU and a cubic ``p`` for GELU's
approximation. ``g`` is convex between two bends ``-k`` and ``k`` and concave beyond, with ``0 <= g(x) <= |x| / 2``. So
lines of ``g``, turned by a half, are lines of these, and by symmetry those of intervals whose middle is at least 0 are
all that is needed:

- Above, where the interval holds 0, lies the chord: its slope is at most 1/2, and beyond ``k`` that of ``g`` is larger.
  Elsewhere it does as long as ``g`` is at least as steep as it at the upper end; and if not, every tangent of the
  concave part does that passes above the lower end, as for tanh.
- Below lie the tangents of the convex part that pass below both ends. The one in 0 always does, and which others is a
  table; where ``g`` is at the lower end as steep as the chord, or all concave, it is the chord.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from adv_wrappers.bounds.affine import runs
from adv_wrappers.bounds.layer_norm import Standardized
from adv_wrappers.networks.graph import NodeLayer
from adv_wrappers.networks.layers import Clip


class Lines(NamedTuple):
    """``lower_slope x + lower_offset <= f(x) <= upper_slope x + upper_offset``, for every ``x`` in an interval."""

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor


class Choice(NamedTuple):
    """Which tangents are taken, from 0 to 1; None where a function leaves no choice."""

    lower: Tensor | None
    upper: Tensor | None


def is_relaxed(layer: NodeLayer) -> bool:
    """Whether a layer is an activation function that has lines."""
    if isinstance(layer, nn.LeakyReLU) and runs(layer, nn.LeakyReLU):
        return 0 <= layer.negative_slope <= 1
    if isinstance(layer, Standardized):
        return True
    kinds = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.ReLU6, Clip, nn.GELU, nn.SiLU)
    return isinstance(layer, nn.Module) and any(runs(layer, kind) for kind in kinds)


def loose(layer: NodeLayer, low: Tensor, high: Tensor) -> Tensor:
    """Where lines differ from the function, bool: there tighter bounds on its input make tighter lines."""
    if isinstance(layer, (nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, Standardized)):
        return low < high
    if isinstance(layer, (nn.ReLU, nn.LeakyReLU)):
        return (low < 0) & (high > 0)
    least, most = _ends(layer)
    return ((low < least) & (high > least)) | ((low < most) & (high > most))


def first_choice(layer: NodeLayer, low: Tensor, high: Tensor) -> Choice:
    """The tangents that are taken unless others are optimised: those that enclose the least area."""
    if isinstance(layer, (nn.ReLU, nn.LeakyReLU)):
        return Choice((high > -low).to(low.dtype), None)
    if isinstance(layer, (nn.Tanh, nn.Sigmoid)):  # lines of an interval enclose what they are above in its middle
        if isinstance(layer, nn.Sigmoid):
            low, high = low / 2, high / 2
        return Choice(_middle(-high, -low), _middle(low, high))
    if isinstance(layer, (nn.GELU, nn.SiLU)):
        return _even_of(layer).middle(low, high)
    if isinstance(layer, Standardized):
        return Choice(None, None)
    least, most = _ends(layer)
    return Choice((high - least > least - low).to(low.dtype), (most - low > high - most).to(low.dtype))


def lines(layer: NodeLayer, low: Tensor, high: Tensor, choice: Choice) -> Lines:
    """Lines of an activation function between ``low`` and ``high``; sound for every choice from 0 to 1.

    Shapes ``[..., *S]`` broadcast; gradients go through the interval and the choice.
    """
    if isinstance(layer, (nn.ReLU, nn.LeakyReLU)):
        return _relu(layer.negative_slope if isinstance(layer, nn.LeakyReLU) else 0.0, low, high, choice)
    if isinstance(layer, nn.Tanh):
        return _tanh(low, high, choice)
    if isinstance(layer, nn.Sigmoid):  # (1 + tanh(x / 2)) / 2
        slope, offset, upper_slope, upper_offset = _tanh(low / 2, high / 2, choice)
        return Lines(slope / 4, (offset + 1) / 2, upper_slope / 4, (upper_offset + 1) / 2)
    if isinstance(layer, (nn.GELU, nn.SiLU)):
        return _even_of(layer).lines(low, high, choice)
    if isinstance(layer, Standardized):
        return Lines(*layer.lines(low, high))
    return _clip(*_ends(layer), low, high, choice)


def least_point(layer: nn.GELU | nn.SiLU) -> float:
    """Where a layer's function is least."""
    return -_even_of(layer).half


def _relu(slope: float, low: Tensor, high: Tensor, choice: Choice) -> Lines:
    """``slope`` below 0, and 1 above: convex."""
    assert choice.lower is not None
    below, above = low.clamp(max=0), high.clamp(min=0)
    chord = above / (above - below).clamp(min=torch.finfo(low.dtype).tiny)  # 0 or 1 where nothing bends
    under = torch.where((low < 0) & (high > 0), choice.lower, chord)
    offset = -chord * below
    if slope:  # slope x + (1 - slope) relu(x)
        chord, under, offset = slope + (1 - slope) * chord, slope + (1 - slope) * under, (1 - slope) * offset
    return Lines(under, torch.zeros_like(chord), chord, offset)


def _ends(layer: NodeLayer) -> tuple[float, float]:
    if isinstance(layer, nn.Hardtanh):
        return layer.min_val, layer.max_val
    assert isinstance(layer, Clip)
    return -math.inf if layer.low is None else layer.low, math.inf if layer.high is None else layer.high


def _clip(least: float, most: float, low: Tensor, high: Tensor, choice: Choice) -> Lines:
    """``clamp(x, least, most)``: convex around the lower bend, concave around the upper one."""
    assert choice.lower is not None and choice.upper is not None
    tiny = torch.finfo(low.dtype).tiny
    width = (high - low).clamp(min=tiny)
    first, last = low.clamp(least, most), high.clamp(least, most)
    rise = ((last - first) / width).clamp(0, 1)  # of the chord
    bends_low, bends_high = (low < least) & (high > least), (low < most) & (high > most)
    # around the lower bend, lines through it: as steep as they stay below the function up to the end
    up_to = ((last - least) / (high - least).clamp(min=tiny)).clamp(0, 1)
    lower_slope = torch.where(bends_low, choice.lower * up_to, rise)
    lower_offset = torch.where(bends_low, least - lower_slope * least, first - rise * low)
    down_to = ((most - first) / (most - low).clamp(min=tiny)).clamp(0, 1)
    upper_slope = torch.where(bends_high, choice.upper * down_to, rise)
    upper_offset = torch.where(bends_high, most - upper_slope * most, first - rise * low)
    if not math.isfinite(least):
        lower_slope, lower_offset = rise.expand_as(upper_slope), (first - rise * low).expand_as(upper_offset)
    if not math.isfinite(most):
        upper_slope, upper_offset = rise.expand_as(lower_slope), (first - rise * low).expand_as(lower_offset)
    return Lines(lower_slope, lower_offset, upper_slope, upper_offset)


def _tanh(low: Tensor, high: Tensor, choice: Choice) -> Lines:
    """Convex below 0, concave above; lines below are those above, turned by half a circle."""
    assert choice.lower is not None and choice.upper is not None
    at_low, at_high = low.tanh(), high.tanh()
    rise = ((at_high - at_low) / (high - low).clamp(min=torch.finfo(low.dtype).tiny)).clamp(0, 1)
    upper = _line_above_tanh(low, high, at_low, at_high, rise, choice.upper)
    slope, offset = _line_above_tanh(-high, -low, -at_high, -at_low, rise, choice.lower)
    return Lines(slope, -offset, *upper)


def _line_above_tanh(
    low: Tensor, high: Tensor, at_low: Tensor, at_high: Tensor, rise: Tensor, choice: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope and offset of a line above tanh: a tangent where it is concave, or the chord where that lies above."""
    # a chord to high lies above where tanh is steeper than it at high: all of it convex, or convex for long enough
    chord = (1 - at_high.square()) * (high - low) >= at_high - at_low
    chord &= low < 0
    first = _first_tangent(low)
    touch = first + choice * (torch.maximum(high, first) - first)
    at_touch = touch.tanh()
    slope = 1 - at_touch.square()
    offset = at_touch - slope * touch
    far = low < -_REACH  # where the table ends: a constant
    slope = torch.where(chord, rise, torch.where(far & (high > 0), 0.0, slope))
    offset = torch.where(chord, at_low - rise * low, torch.where(far & (high > 0), at_high, offset))
    return slope, offset


def _middle(low: Tensor, high: Tensor) -> Tensor:
    """The choice of the tangent of tanh nearest to the middle of those that lie above it."""
    first = _first_tangent(low)
    return (((low + high) / 2 - first) / (high - first).clamp(min=torch.finfo(low.dtype).tiny)).clamp(0, 1)


def _first_tangent(low: Tensor) -> Tensor:
    """From where on tangents of tanh lie above it: where it is concave, and they pass above ``(low, tanh(low))``."""
    return torch.where(low >= 0, low, _tangent_point(low))


_REACH, _PER_UNIT = 32, 256


def _tangent_point(low: Tensor) -> Tensor:
    """A point ``d >= 0`` whose tangent of tanh passes at or above ``(low, tanh(low))``, for ``-32 <= low <= 0``.

    The next one of a table: the first such point falls with ``low``, and every later one is one too.
    """
    place = ((low.detach() + _REACH) * _PER_UNIT).floor().clamp(0, _REACH * _PER_UNIT).long()
    return _table(low.dtype, low.device)[place]


@functools.lru_cache
def _table(dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        low = torch.linspace(-_REACH, 0, _REACH * _PER_UNIT + 1, dtype=torch.float64)
        under, over = torch.zeros_like(low), torch.full_like(low, 8.0)
        for _ in range(60):
            middle = (under + over) / 2
            passes = middle.tanh() + (1 - middle.tanh().square()) * (low - middle) >= low.tanh()
            under, over = torch.where(passes, under, middle), torch.where(passes, middle, over)
        return (over * (1 + 1e-6) + 1e-9).to(device, dtype)


def _even_of(layer: nn.GELU | nn.SiLU) -> _Even:
    return _even("silu" if isinstance(layer, nn.SiLU) else f"gelu, {layer.approximate}")


class _Even:
    """The even part ``g(x) = f(x) - x / 2`` of GELU or SiLU, and lines of ``f``.

    Attributes:
        bend: from where on ``g`` is concave.
        half: where its slope is 1/2, on the way to the bend: ``f`` is least at minus this.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        with torch.inference_mode(False):
            zero = torch.zeros((), dtype=torch.float64)
            bend = _bisected(lambda x: self._bends_up(x) > 0, zero, zero + 4)
            self.bend, self.half = float(bend), float(_bisected(lambda x: self.slope(x) < 0.5, zero, bend))

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

    def middle(self, low: Tensor, high: Tensor) -> Choice:
        """The tangents nearest to the middle."""
        _, low, high = _turned(low, high)
        return Choice(*(_share((low + high) / 2, *ends) for ends in (self._below(low, high), self._above(low, high))))

    def lines(self, low: Tensor, high: Tensor, choice: Choice) -> Lines:
        """Lines of ``f``."""
        assert choice.lower is not None and choice.upper is not None
        turned, low, high = _turned(low, high)
        at_low, at_high = self.value(low), self.value(high)
        rise = ((at_high - at_low) / (high - low).clamp(min=torch.finfo(low.dtype).tiny)).clamp(-1, 1)
        chord = at_low - rise * low
        under = self._tangent(*self._below(low, high), choice.lower)
        over = self._tangent(*self._above(low, high), choice.upper)
        concave = (high > self.bend) & (low > 0)
        straight_under = concave & ((low >= self.bend) | (self.slope(low) >= rise))
        straight_over = ~concave | (self.slope(high) >= rise)
        found = []
        for straight, (slope, offset) in ((straight_under, under), (straight_over, over)):
            slope = torch.where(straight, rise, slope)
            found += [torch.where(turned, -slope, slope) + 0.5, torch.where(straight, chord, offset)]
        return Lines(*found)

    def _tangent(self, first: Tensor, last: Tensor, choice: Tensor) -> tuple[Tensor, Tensor]:
        touch = first + choice * (last - first)
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


_even = functools.lru_cache(_Even)


def _turned(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether intervals are turned around 0, so that their middles are at least 0, and their ends."""
    turned = low + high < 0
    return turned, torch.where(turned, -high, low), torch.where(turned, -low, high)


def _share(point: Tensor, first: Tensor, last: Tensor) -> Tensor:
    return ((point - first) / (last - first).clamp(min=torch.finfo(point.dtype).tiny)).clamp(0, 1)


def _bisected(holds: Callable[[Tensor], Tensor], under: Tensor, over: Tensor) -> Tensor:
    """The largest points for which something holds that does from ``under`` to somewhere below ``over``."""
    for _ in range(60):
        middle = (under + over) / 2
        so = holds(middle)
        under, over = torch.where(so, middle, under), torch.where(so, over, middle)
    return under


@functools.lru_cache
def _even_tables(name: str, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """By the lower end the first tangent above it, and by the upper end the last tangent below it, of a grid."""
    g = _even(name)
    with torch.inference_mode(False):
        end = torch.linspace(0, _REACH, _REACH * _PER_UNIT + 1, dtype=torch.float64)
        bend, far = torch.full_like(end, g.bend), torch.full_like(end, 40.0)

        def passes(at: Tensor) -> Tensor:
            return g.value(at) + g.slope(at) * (end - at) - g.value(end)

        above = _bisected(lambda at: passes(at) < 0, bend, far) * (1 + 1e-6) + 1e-9
        below = _bisected(lambda at: passes(at) <= 0, torch.zeros_like(end), torch.minimum(bend, end))
        below = torch.where(end < g.bend, g.bend, below * (1 - 1e-6))
        below[-1] = g.half * (1 - 1e-6)  # for all that lie beyond
        return above.to(device, dtype), below.to(device, dtype)
