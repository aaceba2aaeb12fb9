"""Linear bounds on a network's outputs over a box, propagated backward from them: CROWN (Zhang, Weng et al. 2018).

Combinations of outputs are written as combinations of what the last layer takes, of what the layer before takes, and so
on to the input, where a box bounds them exactly. An affine layer does that without loss
(:mod:`adv_wrappers.bounds.affine`); an activation function is replaced by a line below or above it
(:mod:`adv_wrappers.bounds.relaxations`), whichever the sign of its coefficient asks for. What outputs have in common
cancels on the way, which interval bounds, layer by layer, cannot see.

Lines need bounds on what every activation function takes. Interval bounds make one pass back enough. Full CROWN bounds
hidden neurons in the same way, one layer after the other, and only those whose lines they would change: those that may
be on either side of a bend. It starts from the rows of the weight of the layer before. Everywhere the tighter one of
linear and interval bounds is kept, so that no bound is looser than that of :func:`adv_wrappers.bounds.interval`.

As interval bounds do, these hold in exact arithmetic; nothing is rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from adv_wrappers.bounds.affine import check_width, is_affine, pull_back, runs, times
from adv_wrappers.bounds.interval import Box, PlacedLayer, check_box, check_spec, combined, layers_in, through
from adv_wrappers.bounds.relaxations import Choice, Lines, first_choice, is_relaxed, lines, loose
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.layers import ActionValue, Clip, Normalize

Intermediate = Literal["interval", "crown"]
MOST_AT_ONCE = 2**20  # coefficients of the rows that are propagated together, so that they stay in a cache
RATE = 0.1  # of Adam, on numbers from 0 to 1


def crown(
    module: nn.Module, low: Tensor, high: Tensor, spec: Tensor | None = None, intermediate: Intermediate = "interval",
    refine: int = 0,
) -> Box:  # fmt: skip
    """Bounds ``(low, high)`` on ``module(x)`` for every ``x`` with ``low <= x <= high``, by linear relaxations.

    Differentiable with respect to weights and box. Layers whose rule is an interval rule alone (max pooling, softplus)
    end the way back: bounds are linear in what they answer.

    Args:
        module: as :func:`adv_wrappers.bounds.interval` takes it, of one input.
        low, high: float tensors ``[B, *S]``, finite.
        spec: rows of linear combinations of the outputs ``[B, K]`` to bound in their place, ``[M, K]`` or
            ``[B, M, K]``; bounds are then ``[B, M]``.
        intermediate: bounds on what activation functions take: ``"interval"``, or ``"crown"`` for linear ones
            (full CROWN), tighter and much more work.
        refine: how often the lines are optimised by Adam, for every bound by itself; with ``"crown"`` also those that
            hidden neurons are bounded with. Every step is sound, and the best one counts.

    Raises:
        VictimError: for a layer without bounds, naming it and the layers that have them.
        ValueRangeError: for boxes and specifications that are none, and settings that there are not.

    >>> import torch
    >>> from torch import nn
    >>> from adv_wrappers.bounds import crown, interval
    >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    >>> with torch.no_grad():  # relu(x + 1) - relu(x), without the bias: relu(x) - relu(x)
    ...     _ = net[0].weight.fill_(1.0), net[2].weight.copy_(torch.tensor([[1.0, -1.0]]))
    >>> box = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    >>> [bound.item() for bound in interval(net, *box)], [bound.item() for bound in crown(net, *box)]
    ([-1.0, 1.0], [0.0, 0.0])
    """
    if intermediate not in get_args(Intermediate):
        raise ValueRangeError(f"intermediate must be 'interval' or 'crown', got {intermediate!r}")
    if isinstance(refine, bool) or not isinstance(refine, int) or refine < 0:
        raise ValueRangeError(f"refine must be a number of steps of at least 0, got {refine!r}")
    if not isinstance(low, Tensor) or not isinstance(high, Tensor):
        raise ValueRangeError(f"a box has two float tensors as ends, got {type(low).__name__}")
    check_box(low, high)
    if spec is not None:
        check_spec(spec, low)
    if refine and torch.is_inference_mode_enabled():  # whose tensors have no gradient
        with torch.inference_mode(False), torch.no_grad():
            return crown(
                module, low.clone(), high.clone(), None if spec is None else spec.clone(), intermediate, refine
            )
    layers, after = _split(layers_in(module)), list[PlacedLayer]()
    while spec is None and layers and is_relaxed(layers[-1].layer):  # it rises: bounds on what it takes bound it
        after.insert(0, layers.pop())
    net = RelaxedNetwork(layers, low, high, refine if intermediate == "crown" else None)
    if spec is None:
        return through(after, *net.tightened(None, refine))
    rows = spec[None] if spec.dim() == 2 else spec
    check_width(rows, math.prod(net.shape))
    rows, offset, steps = rows.unflatten(-1, net.shape), rows.new_zeros(()), net.steps
    while isinstance(last := steps[-1], AffineStep):
        rows, more = pull_back(last.layer, rows, last.shape)
        offset, steps = offset + more, steps[:-1]
    box = last.after if isinstance(last, CurveStep) else (last.low, last.high)
    least, most = combined(rows.flatten(2), offset, *box)
    if isinstance(last, CurveStep):
        linear = bounds(steps, rows, offset, refine)
        least, most = torch.maximum(least, linear[0]), torch.minimum(most, linear[1])
    return torch.minimum(least, most), torch.maximum(least, most)  # of a point, rounding may make them cross


@dataclass
class BoxStep:
    """Where the way back ends: a box ``[B, *S]`` around the value."""

    low: Tensor
    high: Tensor


@dataclass
class AffineStep:
    """An affine layer and the shape of a row of what it takes."""

    layer: nn.Module
    shape: tuple[int, ...]


@dataclass
class CurveStep:
    """An activation function.

    Attributes:
        low, high: the box of what it takes, ``[B, *S]``.
        after: the box of what it answers.
        lines: for the first choice of tangents, ``[B, 1, *S]``.
    """

    layer: nn.Module
    low: Tensor
    high: Tensor
    after: Box
    lines: MeanLines


Step = BoxStep | AffineStep | CurveStep
Choices = dict[int, Choice]  # by the place of a step; [B, M, *S]


class RelaxedNetwork:
    """The layers of a network as steps of bound propagation, and the box of the last value.

    Args:
        layers: from :func:`adv_wrappers.bounds.interval.layers_in`, without clipping normalisers.
        low, high: the box ``[B, *S]`` at the input.
        hidden: None for interval bounds on what activation functions take; a number for linear ones, whose lines are
            optimised in so many steps.

    Attributes:
        steps: in the order of the layers; the first is a box.
        low, high: the box of the last value.
    """

    def __init__(self, layers: Sequence[PlacedLayer], low: Tensor, high: Tensor, hidden: int | None) -> None:
        self.steps: list[Step] = [BoxStep(low, high)]
        self.low, self.high = low, high
        for placed in layers:
            self._add(placed, hidden)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a row of the last value."""
        return tuple(self.low.shape[1:])

    def _add(self, placed: PlacedLayer, hidden: int | None) -> None:
        layer = placed.layer
        if not is_relaxed(layer):
            step = AffineStep(layer, self.shape) if is_affine(layer) else None
            self.low, self.high = through([placed], self.low, self.high)
            self.steps = [BoxStep(self.low, self.high)] if step is None else [*self.steps, step]
            return
        if hidden is not None and any(isinstance(step, CurveStep) for step in self.steps):
            self.low, self.high = self.tightened(loose(layer, self.low, self.high), hidden)
        low, high = self.low, self.high
        after = through([placed], low, high)
        first = MeanLines.of(lines(layer, low, high, first_choice(layer, low, high)))
        self.steps.append(CurveStep(layer, low, high, after, MeanLines(*(line[:, None] for line in first))))
        self.low, self.high = after

    def tightened(self, where: Tensor | None, refine: int) -> Box:
        """The box of the last value, with linear bounds where they are asked for.

        Args:
            where: bool ``[B, *S]``; None for everywhere.
            refine: steps of optimisation.
        """
        low, high = self.low.flatten(1), self.high.flatten(1)
        last, steps, index = self.steps[-1], self.steps, None
        if where is not None:
            most = int(where.sum(tuple(range(1, where.dim()))).max())
            if most == 0:
                return self.low, self.high
            if most < low.shape[1]:  # as many of every row; those beyond its own are bounded anew in vain
                index = where.flatten(1).to(torch.uint8).topk(most, 1).indices
        count = low.shape[1] if index is None else index.shape[1]
        found = list[Box]()
        size = self._at_once()
        for start in range(0, count, size):
            part = None if index is None else index[:, start : start + size]
            if isinstance(last, AffineStep) and isinstance(last.layer, nn.Linear) and len(last.shape) == 1:
                # an identity matrix times the weight is the weight
                chosen = slice(start, start + size) if part is None else part
                weight, bias = last.layer.weight[chosen], last.layer.bias
                rows = weight if part is not None else weight[None]
                offset = low.new_zeros(()) if bias is None else bias[chosen]
                steps = self.steps[:-1]
            else:
                if part is None:
                    part = torch.arange(start, min(start + size, count), device=low.device)[None]
                rows = low.new_zeros(*part.shape, low.shape[1]).scatter_(2, part[..., None], 1.0)
                rows, offset = rows.unflatten(-1, self.shape), low.new_zeros(())
            found.append(bounds(steps, rows, offset, refine))
        least, most_ = (torch.cat(bounds, 1) for bounds in zip(*found, strict=True))
        if index is not None:
            least, most_ = low.scatter(1, index, least), high.scatter(1, index, most_)
        least, most_ = torch.maximum(least, low), torch.minimum(most_, high)
        crossed = least > most_  # by rounding
        least, most_ = torch.where(crossed, low, least), torch.where(crossed, high, most_)
        return least.view_as(self.low), most_.view_as(self.high)

    def _at_once(self) -> int:
        """How many rows are propagated together."""
        shapes = [step.shape for step in self.steps if isinstance(step, AffineStep)]
        widest = max(math.prod(shape) for shape in [*shapes, self.shape])
        return max(1, MOST_AT_ONCE // (2 * len(self.low) * widest))


def bounds(steps: Sequence[Step], rows: Tensor, offset: Tensor, refine: int) -> Box:
    """Linear bounds ``[B, M]`` on ``rows @ x + offset`` of the value behind the steps.

    Args:
        steps: the first is a box.
        rows: the combinations, ``[B or 1, M, *S]``.
        offset: ``[B or 1, M]``, or one number.
        refine: steps of optimisation.
    """
    choices = _optimised(steps, rows, refine) if refine else {}
    least, opposite = lower_bounds(steps, rows, choices).chunk(2, 1)
    return least + offset, offset - opposite


class MeanLines(NamedTuple):
    """The mean of the two lines of a function, and half of the lower minus the upper one.

    What bounds ``a f(x)`` from below is then ``a slope + |a| slope_apart`` times x, whatever the sign of ``a``.
    """

    slope: Tensor
    slope_apart: Tensor
    offset: Tensor
    offset_apart: Tensor

    @classmethod
    def of(cls, found: Lines) -> MeanLines:
        """Those of two lines."""
        under, under_offset, over, over_offset = found
        return cls(
            (under + over) / 2, (under - over) / 2, (under_offset + over_offset) / 2, (under_offset - over_offset) / 2
        )


def lower_bounds(steps: Sequence[Step], rows: Tensor, choices: Choices) -> Tensor:
    """Lower bounds ``[B, 2 M]`` on rows and on minus the rows, of the value behind the steps.

    Args:
        steps: the first is a box.
        rows: the combinations, ``[B or 1, M, *S]``.
        choices: tangents of activation functions, for those that do not take their first choice, ``[B, 2 M, *S]``.
    """
    total, both = rows.new_zeros(()), False
    for place in range(len(steps) - 1, 0, -1):
        step = steps[place]
        if isinstance(step, AffineStep):
            rows, offset = pull_back(step.layer, rows, step.shape)
            total = total + offset
            continue
        assert isinstance(step, CurveStep)
        size = rows.abs()
        found = step.lines
        if place in choices:
            found = MeanLines.of(lines(step.layer, step.low[:, None], step.high[:, None], choices[place]))
            if not both:
                rows, size, both = torch.cat([rows, -rows], 1), torch.cat([size, size], 1), True
                total = torch.cat([total, -total], -1) if total.dim() else total
        total = _signed(total + _products(rows, found.offset), _products(size, found.offset_apart), both)
        rows = _signed(rows * found.slope, size * found.slope_apart, both)
        both = True
    first = steps[0]
    assert isinstance(first, BoxStep)
    low, high = first.low.flatten(1), first.high.flatten(1)
    rows = rows.flatten(2)
    middle = torch.lerp(low, high, 0.5)
    return _signed(times(rows, middle) + total, times(rows.abs(), middle - high), both)


def _signed(one: Tensor, other: Tensor, both: bool) -> Tensor:
    """``one + other``, and behind it ``other - one`` along axis 1 unless there are both already."""
    if both:
        return one + other
    sign = one.new_tensor([1.0, -1.0]).view(2, *[1] * (one.dim() - 1))
    return torch.addcmul(other[:, None], one[:, None], sign).flatten(1, 2)


def _products(rows: Tensor, offsets: Tensor) -> Tensor:
    """``rows [B or 1, M, *S]`` times offsets ``[B, M or 1, *S]``, summed over S."""
    if offsets.shape[1] == 1:
        return times(rows.flatten(2), offsets.flatten(1))
    return (rows * offsets).flatten(2).sum(-1)


def _optimised(steps: Sequence[Step], rows: Tensor, count: int) -> Choices:
    """The tangents that gave the best bounds in ``count`` steps of Adam, for every row by itself."""
    places, numbers, rows = list[tuple[int, bool]](), list[Tensor](), rows.detach()
    for place, step in enumerate(steps):
        if isinstance(step, CurveStep):
            shape = len(step.low), 2 * rows.shape[1], *step.low.shape[1:]
            for upper, first in enumerate(first_choice(step.layer, step.low.detach(), step.high.detach())):
                if first is not None:
                    places.append((place, bool(upper)))
                    numbers.append(first[:, None].expand(shape).clone())

    def choices(numbers: Sequence[Tensor]) -> Choices:
        found = dict(zip(places, numbers, strict=True))
        return {place: Choice(found.get((place, False)), found.get((place, True))) for place, _ in places}

    if not numbers:
        return {}
    best, kept = lower_bounds(steps, rows, choices(numbers)).detach(), list(numbers)
    first_moments, second_moments = ([torch.zeros_like(number) for number in numbers] for _ in range(2))
    for i in range(1, count + 1):
        with torch.enable_grad():
            free = [number.requires_grad_() for number in numbers]
            total = lower_bounds(steps, rows, choices(free)).sum()
            slopes = torch.autograd.grad(total, free, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            numbers = []
            for number, slope, m, v in zip(free, slopes, first_moments, second_moments, strict=True):
                m.lerp_(slope, 0.1)
                v.lerp_(slope.square(), 0.001)
                ahead = (m / (1 - 0.9**i)) / ((v / (1 - 0.999**i)).sqrt() + 1e-8)
                numbers.append((number + RATE * ahead).clamp(0, 1))
            bounds = lower_bounds(steps, rows, choices(numbers))
            better = bounds > best
            best = torch.where(better, bounds, best)
            kept = [
                torch.where(better.view(*better.shape, *[1] * (old.dim() - 2)), number, old)
                for number, old in zip(numbers, kept, strict=True)
            ]
    return choices([number.detach() for number in kept])


def _split(layers: Sequence[PlacedLayer]) -> list[PlacedLayer]:
    """Layers, with a normaliser that clips as one that does not and a clip."""
    found = list[PlacedLayer]()
    for path, layer in layers:
        if isinstance(layer, ActionValue):
            raise VictimError(f"crown takes networks of one input, got {layer} of two: interval bounds take those")
        if runs(layer, Normalize) and isinstance(layer, Normalize) and layer.clip is not None:
            plain = Normalize(layer.mean, layer.std)
            found += [PlacedLayer(path, plain), PlacedLayer(path, Clip(-layer.clip, layer.clip))]
        else:
            found.append(PlacedLayer(path, layer))
    return found
