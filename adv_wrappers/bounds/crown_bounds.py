"""Linear bounds on a network's outputs over a box, propagated backward from them: CROWN (Zhang, Weng et al. 2018).

Combinations of outputs are written as combinations of what the last layer takes, of what the layer before takes, and so
on to the input, where a box bounds them exactly. An affine layer does that without loss
(:mod:`adv_wrappers.bounds.affine`); an activation function is replaced by a line below or above
it (:mod:`adv_wrappers.bounds.relaxations`), whichever the sign of its coefficient asks for. What outputs
have in common cancels on the way, which interval bounds, layer by layer, cannot see. In a graph, what combinations of a
value several layers ask for is added up (Xu et al. 2020, section 3.2).

The product of two values with centres ``c`` and radii ``r`` is ``c_y x + c_x y - c_x c_y``, up to ``r_x r_y`` at most:
below it lies the mean of McCormick's two planes, and so above it (McCormick 1976). Below the maximum of a window lies
the element whose lower bound is largest. Above it lies the same, where no other element of the window can exceed that,
and elsewhere the constant that none exceeds (as of Singh et al. 2019); and the tighter one counts of these bounds and
of those that end at the boxes of the windows. Layer normalisation is in :mod:`.layer_norm`.

Lines need bounds on what every activation function takes. Interval bounds make one pass back enough. Full CROWN bounds
hidden neurons in the same way, one layer after the other, and only those whose lines they would change: those that may
be on either side of a bend. It starts from the rows of the weight of the layer before. Everywhere the tighter one of
linear and interval bounds is kept, so that no bound is looser than that of
:func:`adv_wrappers.bounds.interval_bounds`.

As interval bounds do, these hold in exact arithmetic; nothing is rounded outwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.affine import RowsByValue, Shape, broadcast_back, flat, is_affine, pull_back, runs, times
from adv_wrappers.bounds.interval_bounds import (
    Bounds,
    as_rows,
    box_through,
    check_box,
    check_spec,
    combined,
    nodes_in,
    pulled_back,
    rule_of,
)
from adv_wrappers.bounds.layer_norm import Standardized, parts_of
from adv_wrappers.bounds.relaxations import Choice, Lines, first_choice, is_relaxed, lines, loose
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.graph import Arithmetic, Join, Node, NodeLayer
from adv_wrappers.networks.layers import ActionValue, Clip, Normalize
from adv_wrappers.utils.checks import check_choice, check_integer

Intermediate = Literal["interval", "crown"]
MOST_AT_ONCE = 2**20  # coefficients of the rows that are propagated together, so that they stay in a cache
RATE = 0.1  # of Adam, on numbers from 0 to 1


def crown(
    module: nn.Module,
    low: Tensor,
    high: Tensor,
    spec: Tensor | None = None,
    intermediate: Intermediate = "interval",
    refine: int = 0,
    refine_hidden: int | None = None,
) -> Bounds:
    """Bounds ``(low, high)`` on ``module(x)`` for every ``x`` with ``low <= x <= high``, by linear relaxations.

    Differentiable with respect to weights and box. Layers whose rule is an interval rule alone (softplus, ELU, those of
    :func:`.rule`) end the way back: bounds are linear in what they answer.

    Args:
        module: as :func:`adv_wrappers.bounds.interval_bounds` takes it, of one input.
        low, high: float tensors ``[B, *S]``, finite.
        spec: rows of linear combinations of the outputs ``[B, K]`` to bound in their place, ``[M, K]`` or
            ``[B, M, K]``; bounds are then ``[B, M]``.
        intermediate: bounds on what activation functions take: ``"interval"``, or ``"crown"`` for linear ones
            (full CROWN), tighter and much more work.
        refine: how often the lines are optimised by Adam, for every bound by itself. Every step is sound, and the best
            one counts.
        refine_hidden: the same, with ``"crown"``, of the lines that hidden neurons are bounded with; None for as often.
            There are two such bounds for every neuron, and each takes as long as one on an output.

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
    check_choice("intermediate", intermediate, get_args(Intermediate))
    hidden = refine if refine_hidden is None else refine_hidden
    for name, value in (("refine", refine), ("refine_hidden", hidden)):
        check_integer(name, value, 0)
    if not isinstance(low, Tensor) or not isinstance(high, Tensor):
        raise ValueRangeError(f"a box has two float tensors as ends, got {type(low).__name__}")
    check_box(low, high)
    if spec is not None:
        check_spec(spec, low)
    if (refine or hidden) and torch.is_inference_mode_enabled():  # whose tensors have no gradient
        with torch.inference_mode(False), torch.no_grad():
            own = None if spec is None else spec.clone()
            return crown(module, low.clone(), high.clone(), own, intermediate, refine, hidden)
    nodes = _split(nodes_in(module, low))
    after = 0 if spec is not None else _elementwise_end(nodes)
    net = RelaxedNetwork(nodes[: len(nodes) - after], low, high, hidden if intermediate == "crown" else None)
    if spec is None:
        box = net.tightened(len(net.steps) - 1, None, refine)
        for node in nodes[len(nodes) - after :]:  # element by element: bounds on what they take bound them
            box = rule_of(node.layer)(node.layer, *box)
        return box
    affine = [step.node if isinstance(step, AffineStep) else None for step in net.steps[1:]]
    shapes = [tuple(box[0].shape[1:]) for box in net.boxes]
    rows, offset = pulled_back(affine, {len(nodes): as_rows(spec, shapes[-1])}, shapes)
    least, most = combined(rows, offset, net.boxes)
    if not all(isinstance(net.steps[number], BoxStep) for number in rows):
        linear = linear_bounds(net.steps, rows, offset, refine)
        least, most = torch.maximum(least, linear[0]), torch.minimum(most, linear[1])
    return torch.minimum(least, most), torch.maximum(least, most)  # of a point, rounding may make them cross


@dataclass
class BoxStep:
    """Where the way back ends: a box ``[B, *S]`` around the value."""

    low: Tensor
    high: Tensor


@dataclass
class AffineStep:
    """An affine layer, and the shapes of rows of what it takes."""

    node: Node
    shapes: list[Shape]


@dataclass
class CurveStep:
    """A function of every element by itself, or a layer that has lines like one.

    Attributes:
        layer: the function.
        source: the number of the value that it takes.
        low, high: the box of that value, ``[B, *S]``.
        lines: for the first choice of tangents, ``[B, 1, *S]``.
    """

    layer: NodeLayer
    source: int
    low: Tensor
    high: Tensor
    lines: MeanLines


@dataclass
class ProductStep:
    """The product of two values, and their boxes."""

    sources: tuple[int, int]
    boxes: tuple[Bounds, Bounds]


@dataclass
class PoolStep:
    """Max pooling.

    Attributes:
        source: the number of the value that it takes.
        shape: of a row of that.
        place: the element with the largest lower bound of every window, int64 ``[B, 1, C, H' W']``, as a number within
            its channel.
        most: what no element exceeds; 0 where that element is the largest for certain, ``[B, 1, C, H' W']``.
        certain: bool, where it is.
        after: the box of the value that it answers.
    """

    source: int
    shape: Shape
    place: Tensor
    most: Tensor
    certain: Tensor
    after: Bounds


BoundStep = BoxStep | AffineStep | CurveStep | ProductStep | PoolStep
Choices = dict[int, Choice]  # by the number of a value; [B, M, *S]


class RelaxedNetwork:
    """The values of a network: steps of bound propagation, and boxes.

    Args:
        nodes: from :func:`.nodes_in`, without clipping normalisers and layer normalisation.
        low, high: the box ``[B, *S]`` at the input.
        hidden: None for interval bounds on what activation functions take; a number for linear ones, whose lines are
            optimised in so many steps.

    Attributes:
        steps: how every value is made; the first is the input.
        boxes: of all values, ``[B, *S]``.
    """

    def __init__(self, nodes: Sequence[Node], low: Tensor, high: Tensor, hidden: int | None) -> None:
        self.steps: list[BoundStep] = [BoxStep(low, high)]
        self.boxes: list[Bounds] = [(low, high)]
        self._loses = [False]  # whether interval bounds of a value forget what linear ones know
        for node in nodes:
            self._add(node, hidden)

    def _add(self, node: Node, hidden: int | None) -> None:
        layer, first = node.layer, node.inputs[0]
        step: BoundStep | None = None
        box: Bounds | None = None
        if is_relaxed(layer):
            self._tighten(first, hidden, functools.partial(loose, layer))
            low, high = self.boxes[first]
            if isinstance(layer, Standardized):
                variance = self._variance(layer, first)
                box, found = layer.box(low, high, variance), MeanLines.of(Lines(*layer.lines(low, high, variance)))
            else:
                box, found = None, MeanLines.of(lines(layer, low, high, first_choice(layer, low, high)))
            step = CurveStep(layer, first, low, high, MeanLines(*(line[:, None] for line in found)))
        elif isinstance(layer, Join) and layer.how == "product":
            for source in set(node.inputs):
                self._tighten(source, hidden, torch.lt)
            second = node.inputs[1]
            step = ProductStep((first, second), (self.boxes[first], self.boxes[second]))
        elif isinstance(layer, nn.MaxPool2d) and runs(layer, nn.MaxPool2d):
            self._tighten(first, hidden, functools.partial(_in_doubt, layer))
            step = _pool_step(layer, first, *self.boxes[first], box_through(node, self.boxes))
        elif is_affine(layer):
            step = AffineStep(node, [tuple(self.boxes[source][0].shape[1:]) for source in node.inputs])
        box = box_through(node, self.boxes) if box is None else box
        self.boxes.append(box)
        self.steps.append(BoxStep(*box) if step is None else step)
        loses = any(self._loses[source] for source in node.inputs) or isinstance(layer, Join)
        self._loses.append(step is not None and (loses or not isinstance(step, AffineStep)))

    def _variance(self, layer: Standardized, number: int) -> Bounds:
        """Linear bounds on the variance of centred elements, the value ``number``."""
        low, high = self.boxes[number]
        rows, offset, addition = layer.tangent(low, high)
        least, most = linear_bounds(self.steps, {number: rows}, offset, 0)
        shape = (*low.shape[: -layer.axes], *[1] * layer.axes)
        return least.view(shape), torch.maximum(most + addition, least).view(shape)

    def _tighten(self, number: int, hidden: int | None, where: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Give a value linear bounds, where that pays by its box and they are asked for."""
        if hidden is not None and self._loses[number]:
            self.boxes[number] = self.tightened(number, where(*self.boxes[number]), hidden)

    def tightened(self, number: int, where: Tensor | None, refine: int) -> Bounds:
        """The box of a value, with linear bounds where they are asked for.

        Args:
            number: of the value.
            where: bool ``[B, *S]``; None for everywhere.
            refine: steps of optimisation.
        """
        box, step = self.boxes[number], self.steps[number]
        low, high = (flat(end, 1) for end in box)
        index = None
        if where is not None:
            most = int(where.sum(tuple(range(1, where.dim()))).max())
            if most == 0:
                return box
            if most < low.shape[1]:  # as many of every row; those beyond its own are bounded anew in vain
                index = where.flatten(1).to(torch.uint8).topk(most, 1).indices
        count = low.shape[1] if index is None else index.shape[1]
        found = list[Bounds]()
        size = self._at_once(number)
        for begin in range(0, count, size):
            part = None if index is None else index[:, begin : begin + size]
            layer = step.node.layer if isinstance(step, AffineStep) else None
            if isinstance(step, AffineStep) and isinstance(layer, nn.Linear) and len(step.shapes[0]) == 1:
                # an identity matrix times the weight is the weight
                chosen = slice(begin, begin + size) if part is None else part
                weight, bias = layer.weight[chosen], layer.bias
                start = {step.node.inputs[0]: weight if part is not None else weight[None]}
                offset = low.new_zeros(()) if bias is None else bias[chosen]
            else:
                if part is None:
                    part = torch.arange(begin, min(begin + size, count), device=low.device)[None]
                rows = low.new_zeros(*part.shape, low.shape[1]).scatter_(2, part[..., None], 1.0)
                start, offset = {number: rows.reshape(*part.shape, *box[0].shape[1:])}, low.new_zeros(())
            found.append(linear_bounds(self.steps, start, offset, refine))
        least, most_ = (torch.cat(bounds, 1) for bounds in zip(*found, strict=True))
        if index is not None:
            least, most_ = low.scatter(1, index, least), high.scatter(1, index, most_)
        least, most_ = torch.maximum(least, low), torch.minimum(most_, high)
        crossed = least > most_  # by rounding
        least, most_ = torch.where(crossed, low, least), torch.where(crossed, high, most_)
        return least.view_as(box[0]), most_.view_as(box[1])

    def _at_once(self, number: int) -> int:
        """How many rows are propagated together."""
        widest = math.prod(self.boxes[number][0].shape[1:])
        for step in self.steps[: number + 1]:
            if isinstance(step, AffineStep):
                widest = max(widest, *(math.prod(shape) for shape in step.shapes))
        return max(1, MOST_AT_ONCE // (2 * len(self.boxes[0][0]) * widest))


def linear_bounds(steps: Sequence[BoundStep], rows: RowsByValue, offset: Tensor, refine: int) -> Bounds:
    """Linear bounds ``[B, M]`` on combinations of values, plus an offset.

    Args:
        steps: of all values.
        rows: the combinations, ``[B or 1, M, *S]`` by the number of a value.
        offset: ``[B or 1, M]``, or one number.
        refine: steps of optimisation.
    """
    choices = _optimised(steps, rows, refine) if refine else {}
    found = lower_bounds(steps, rows, choices)
    if any(isinstance(steps[number], PoolStep) for number in _needed(steps, rows)):
        # what comes before a window may be bounded more tightly by its box than by lines
        ended = [BoxStep(*step.after) if isinstance(step, PoolStep) else step for step in steps]
        found = torch.maximum(found, lower_bounds(ended, rows, choices))
    least, opposite = found.chunk(2, 1)
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


class _Total:
    """Numbers ``[B, M]`` for rows, and ``[B, 2 M]`` for rows and minus them, to be added up."""

    def __init__(self, zero: Tensor) -> None:
        self.zero = self.plain = zero
        self.both: Tensor | None = None

    def add(self, one: Tensor, other: Tensor | None, both: bool) -> None:
        """Add ``one``, which has the sign of the rows, and ``other``, which has one sign for rows and minus them.

        Args:
            one, other: ``[B or 1, M]``, or ``[B or 1, 2 M]``; None for nothing.
            both: whether they are of rows and minus them already.
        """
        if both:
            total = self.split() + one
            self.both = total if other is None else total + other
        elif other is None:
            self.plain = self.plain + one
        elif self.both is None:
            self.both, self.plain = _signed(self.plain + one, other), self.zero
        else:
            self.both = self.both + _signed(one, other)

    def split(self) -> Tensor:
        """``[B, 2 M]``, without what is not split yet if there was something before that is."""
        if self.both is None:
            self.both, self.plain = _both(self.plain) if self.plain.dim() else self.plain, self.zero
        return self.both

    def __call__(self) -> Tensor:
        """All of it, ``[B, 2 M]``."""
        total = self.split()
        return total + _both(self.plain) if self.plain.dim() else total


def lower_bounds(
    steps: Sequence[BoundStep],
    rows: RowsByValue,
    choices: Choices,
    constraints: Callable[[int, Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Lower bounds ``[B, 2 M]`` on combinations of values, and on minus them.

    Args:
        steps: of all values.
        rows: the combinations, ``[B or 1, M, *S]`` by the number of a value.
        choices: tangents of activation functions, for those that do not take their first choice, ``[B, 2 M, *S]``.
        constraints: takes the number of the value of an activation function, the rows of that value and of the one
            that it takes, ``[B, 2 M, *S]`` both, and returns the latter with multipliers of constraints on that value
            added. Every activation function has to be among ``choices`` then.
    """
    held = {number: (each, False) for number, each in rows.items()}  # and whether minus the rows stand behind them
    total = _Total(next(iter(rows.values())).new_zeros(()))

    def pull(number: int, more: Tensor, both: bool) -> None:
        if number in held:
            each, split = held[number]
            if split != both:
                each, more = (each if split else _both(each)), (more if both else _both(more))
            more, both = each + more, split or both
        held[number] = more, both

    for number in range(max(held), -1, -1):
        if number not in held:
            continue
        step, size = steps[number], None
        each, both = held.pop(number)
        if isinstance(step, AffineStep):
            pulled, offset = pull_back(step.node.layer, each, step.shapes)
            if offset.dim():
                total.add(offset, None, both)
            for source, part in zip(step.node.inputs, pulled, strict=True):
                pull(source, part, both)
        elif isinstance(step, CurveStep):
            size, found = each.abs(), step.lines
            if number in choices:
                found = MeanLines.of(lines(step.layer, step.low[:, None], step.high[:, None], choices[number]))
                if not both:
                    each, size, both = _both(each), torch.cat([size, size], 1), True
                    total.split()
            total.add(_products(each, found.offset), _products(size, found.offset_apart), both)
            join, before = torch.add if both else _signed, each
            each = join(each * found.slope, size * found.slope_apart)  # what is no longer needed is not held
            if constraints is not None:
                each = constraints(number, before, each)
            del before
            pull(step.source, each, True)
        elif isinstance(step, ProductStep):
            for source, part in zip(step.sources, _pull_product(step, each, both, total), strict=True):
                pull(source, part, both)
        elif isinstance(step, PoolStep):
            pull(step.source, _pull_pool(step, each if both else _both(each), total), True)
        else:
            low, high, row = flat(step.low, 1), flat(step.high, 1), flat(each, 2)
            middle = torch.lerp(low, high, 0.5)
            total.add(times(row, middle), times(row.abs(), middle - high), both)
    return total()


def _signed(one: Tensor, other: Tensor) -> Tensor:
    """``one + other``, and behind it ``other - one`` along axis 1."""
    sign = one.new_tensor([1.0, -1.0]).view(2, *[1] * (one.dim() - 1))
    return torch.addcmul(other[:, None], one[:, None], sign).flatten(1, 2)


def _both(rows: Tensor) -> Tensor:
    """Rows, and behind them minus the rows, along axis 1."""
    return torch.cat([rows, -rows], 1)


def _products(rows: Tensor, offsets: Tensor) -> Tensor:
    """``rows [B or 1, M, *S]`` times offsets ``[B, M or 1, *S]``, summed over S."""
    if offsets.shape[1] == 1:
        return times(flat(rows, 2), flat(offsets, 1))
    return flat(rows * offsets, 2).sum(-1)


def _optimised(steps: Sequence[BoundStep], rows: RowsByValue, count: int) -> Choices:
    """The tangents that gave the best bounds in ``count`` steps of Adam, for every row by itself."""
    places, numbers = list[tuple[int, bool]](), list[Tensor]()
    rows = {number: each.detach() for number, each in rows.items()}
    most = next(iter(rows.values())).shape[1]
    for place in sorted(_needed(steps, rows)):
        step = steps[place]
        if isinstance(step, CurveStep):
            shape = len(step.low), 2 * most, *step.low.shape[1:]
            for upper, first in enumerate(first_choice(step.layer, step.low.detach(), step.high.detach())):
                if first is not None:
                    places.append((place, bool(upper)))
                    numbers.append(first[:, None].expand(shape).clone())

    def choices(numbers: Sequence[Tensor]) -> Choices:
        found = dict(zip(places, numbers, strict=True))
        return {place: Choice(found.get((place, False)), found.get((place, True))) for place, _ in places}

    if not numbers:
        return {}
    best, kept = numbers[0].new_full(numbers[0].shape[:2], -torch.inf), list(numbers)
    first_moments, second_moments = ([torch.zeros_like(number) for number in numbers] for _ in range(2))

    def keep_better(bounds: Tensor) -> None:
        nonlocal best, kept
        better = bounds > best
        best = torch.where(better, bounds, best)
        kept = [
            torch.where(better.view(*better.shape, *[1] * (old.dim() - 2)), number, old)
            for number, old in zip(numbers, kept, strict=True)
        ]

    for i in range(1, count + 1):
        with torch.enable_grad():
            free = [number.requires_grad_() for number in numbers]
            bounds = lower_bounds(steps, rows, choices(free))
            slopes = torch.autograd.grad(bounds.sum(), free, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            keep_better(bounds)
            numbers = []
            for number, slope, m, v in zip(free, slopes, first_moments, second_moments, strict=True):
                m.lerp_(slope, 0.1)
                v.lerp_(slope.square(), 0.001)
                ahead = (m / (1 - 0.9**i)) / ((v / (1 - 0.999**i)).sqrt() + 1e-8)
                numbers.append((number + RATE * ahead).clamp(0, 1))
    with torch.no_grad():
        keep_better(lower_bounds(steps, rows, choices(numbers)))
    return choices([number.detach() for number in kept])


def _needed(steps: Sequence[BoundStep], rows: RowsByValue) -> set[int]:
    """The numbers of the values that combinations depend on."""
    found = set(rows)
    for number in range(max(found), -1, -1):
        if number in found:
            found.update(_sources(steps[number]))
    return found


def _sources(step: BoundStep) -> Sequence[int]:
    if isinstance(step, BoxStep):
        return ()
    if isinstance(step, AffineStep):
        return step.node.inputs
    return step.sources if isinstance(step, ProductStep) else (step.source,)


def _pull_product(step: ProductStep, rows: Tensor, both: bool, total: _Total) -> list[Tensor]:
    """Rows of a product as rows of both factors."""
    (x, x_radius), (y, y_radius) = ((torch.lerp(low, high, 0.5), (high - low) / 2) for low, high in step.boxes)
    total.add(_products(rows, -(x * y)[:, None]), _products(rows.abs(), -(x_radius * y_radius)[:, None]), both)
    return [broadcast_back(rows * other[:, None], tuple(x.shape[1:])) for x, other in ((x, y), (y, x))]


def _pull_pool(step: PoolStep, rows: Tensor, total: _Total) -> Tensor:
    """Rows of what max pooling answers, and minus them, as rows of what it takes."""
    windows = rows.flatten(3)
    up, down = windows.clamp(min=0), windows.clamp(max=0)
    total.add(flat(down * step.most, 2).sum(-1), None, True)
    of_place = up + down * step.certain
    channels, *sides = step.shape
    place = step.place.expand(*of_place.shape)
    back = rows.new_zeros(*of_place.shape[:2], channels, math.prod(sides)).scatter_add(3, place, of_place)
    return back.view(*back.shape[:3], *sides)


def _pool_step(layer: nn.MaxPool2d, source: int, low: Tensor, high: Tensor, after: Bounds) -> PoolStep:
    least, place, _, _, others = _windows(layer, low, high)
    certain = others <= least
    most = torch.where(certain, 0.0, torch.maximum(others, high.flatten(2).gather(2, place)))
    return PoolStep(source, tuple(low.shape[1:]), place[:, None], most[:, None], certain[:, None], after)


def _in_doubt(layer: nn.MaxPool2d, low: Tensor, high: Tensor) -> Tensor:
    """Which elements tighter bounds may make the largest of their window, or not, ``[B, C, H, W]``."""
    least, _, members, highs, others = _windows(layer, low, high)
    doubt = (others > least)[:, :, None] & (highs > least[:, :, None])
    found = low.new_zeros(*low.shape[:2], 1 + low[0, 0].numel())
    found.scatter_add_(2, (members + 1).expand_as(doubt).flatten(2), doubt.to(low.dtype).flatten(2))
    return (found[:, :, 1:] > 0).view_as(low)


def _windows(layer: nn.MaxPool2d, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Of windows the largest lower bound and whose it is, all elements, their upper bounds, and the others' largest.

    Returns:
        ``[B, C, L]``, int64 ``[B, C, L]``, int64 ``[1, 1, K, L]`` (-1 for padding), ``[B, C, K, L]``, ``[B, C, L]``.
    """
    pool = functools.partial(
        functional.max_pool2d,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        ceil_mode=layer.ceil_mode,
        return_indices=True,
    )
    pooled, places = pool(low)
    least, place, sides = pooled.flatten(2), places.flatten(2), pooled.shape[2:]
    numbers = torch.arange(low[0, 0].numel(), dtype=low.dtype, device=low.device).view(1, 1, *low.shape[2:])
    members = _unfolded(layer, numbers, sides).clamp(min=-1).long()
    highs = _unfolded(layer, high, sides)
    others = highs.masked_fill(members == place[:, :, None], -torch.inf).amax(2)
    return least, place, members, highs, others


def _unfolded(layer: nn.MaxPool2d, x: Tensor, sides: Sequence[int]) -> Tensor:
    """The elements of every window of pictures ``[B, C, H, W]``, ``[B, C, K, L]``, minus infinity for padding.

    Args:
        layer: has the windows.
        x: the pictures.
        sides: how many windows there are, downwards and along.
    """
    kernel, stride, padding, dilation = (
        (each, each) if isinstance(each, int) else tuple(each)
        for each in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    )
    # with ceil_mode, windows reach beyond the padding
    beyond = [s + d * (k - 1) for s, d, k in zip(stride, dilation, kernel, strict=True)]
    around = (padding[1], padding[1] + beyond[1], padding[0], padding[0] + beyond[0])
    found = functional.pad(x, around, value=-torch.inf)
    for axis in (0, 1):
        found = found.unfold(2 + axis, dilation[axis] * (kernel[axis] - 1) + 1, stride[axis])
    found = found[:, :, : sides[0], : sides[1], :: dilation[0], :: dilation[1]]
    return found.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(2, 3)


def _elementwise_end(nodes: Sequence[Node]) -> int:
    """How many of the last nodes follow one another and are activation functions, or arithmetic with constants."""
    count = 0
    for i in range(len(nodes) - 1, -1, -1):
        layer = nodes[i].layer
        if nodes[i].inputs != (i,) or not (is_relaxed(layer) or isinstance(layer, Arithmetic)):
            break
        count += 1
    return count


def _split(nodes: Sequence[Node]) -> list[Node]:
    """Nodes, with a normaliser that clips as one that does not and a clip, and layer normalisation in its parts."""
    found, number = list[Node](), [0]
    for node in nodes:
        layer = node.layer
        parts: list[NodeLayer] = [layer]
        if isinstance(layer, ActionValue):
            raise VictimError(f"crown takes networks of one input, got {layer} of two: interval bounds take those")
        if isinstance(layer, Normalize) and runs(layer, Normalize) and layer.clip is not None:
            parts = [Normalize(layer.mean, layer.std), Clip(-layer.clip, layer.clip)]
        elif isinstance(layer, nn.LayerNorm) and runs(layer, nn.LayerNorm):
            parts = parts_of(layer)
        inputs = tuple(number[i] for i in node.inputs)
        for part in parts:
            found.append(Node(part, inputs))
            inputs = (len(found),)
        number.append(len(found))
    return found
