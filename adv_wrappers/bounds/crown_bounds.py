"""Linear bounds on a network's outputs over a box, propagated backward from them: CROWN (Zhang, Weng et al. 2018).

Combinations of outputs are written as combinations of what the last layer takes, of what the layer before takes, and so
on to the input, where a box bounds them exactly. An affine layer does that without loss; an activation function is
replaced by a line below or above it, whichever the sign of its coefficient asks for. What outputs have in common
cancels on the way, which interval bounds, layer by layer, cannot see. In a graph, what combinations of a value several
layers ask for is added up (Xu et al. 2020, section 3.2).

How each operation is bounded by lines is in :mod:`adv_wrappers.networks.operations`. The tighter one counts of linear
bounds that go through max pooling and of those that end at the boxes of its windows.

Lines need bounds on what every activation function takes. Interval bounds make one pass back enough. Full CROWN bounds
hidden neurons in the same way, one layer after the other, and only those whose lines they would change: those that may
be on either side of a bend. It starts from the rows of the weight of the layer before. Everywhere the tighter one of
linear and interval bounds is kept, so that no bound is looser than that of
:func:`adv_wrappers.bounds.interval_bounds`.

As interval bounds do, these hold in exact arithmetic; nothing is rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from adv_wrappers.bounds.interval_bounds import (
    as_rows,
    box_through,
    check_box,
    check_spec,
    combined,
    nodes_in,
    pulled_back,
)
from adv_wrappers.networks.graph import Node
from adv_wrappers.networks.operations.linear_bounds import (
    Bounds,
    BoundStep,
    BoxStep,
    RowsByValue,
    Total,
    flat,
    with_opposite,
)
from adv_wrappers.networks.operations.operation import AffineStep
from adv_wrappers.utils.checks import check_choice

Intermediate = Literal["interval", "crown"]
_AT_ONCE = 2**20  # coefficients of the rows that are propagated together, so that they stay in a cache


def crown(
    module: nn.Module,
    low: Tensor,
    high: Tensor,
    spec: Tensor | None = None,
    intermediate: Intermediate = "interval",
) -> Bounds:
    """Bounds ``(low, high)`` on ``module(x)`` for every ``x`` with ``low <= x <= high``, by linear relaxations.

    Differentiable with respect to weights and box. Layers whose rule is an interval rule alone (softplus) end the
    way back: bounds are linear in what they answer.

    Args:
        module: as :func:`adv_wrappers.bounds.interval_bounds` takes it.
        low, high: float tensors ``[B, *S]``, finite.
        spec: rows of linear combinations of the outputs ``[B, K]`` to bound in their place, ``[M, K]`` or
            ``[B, M, K]``; bounds are then ``[B, M]``.
        intermediate: bounds on what activation functions take: ``"interval"``, or ``"crown"`` for linear ones
            (full CROWN), tighter and much more work.

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
    check_box(low, high)
    if spec is not None:
        check_spec(spec, low)
    nodes = _split(nodes_in(module, low))
    # functions of each element at the end need no lines: without a specification they are left to intervals
    after = 0 if spec is not None else _elementwise_end(nodes)
    net = RelaxedNetwork(nodes[: len(nodes) - after], low, high, intermediate == "crown")
    if spec is None:
        box = net.tightened(len(net.steps) - 1, None)
        for node in nodes[len(nodes) - after :]:  # element by element: bounds on what they take bound them
            box = node.operation.interval(*box)
        return box
    # the rows of a specification go back without loss as far as layers are affine; there they are bounded by the boxes
    # of what they meet, and from there to the input by lines, and the tighter one counts
    affine = [node if isinstance(step, AffineStep) else None for node, step in zip(nodes, net.steps[1:], strict=True)]
    shapes = [tuple(box[0].shape[1:]) for box in net.boxes]
    rows, offset = pulled_back(affine, {len(nodes): as_rows(spec, shapes[-1])}, shapes)
    least, most = combined(rows, offset, net.boxes)
    if not all(isinstance(net.steps[number], BoxStep) for number in rows):
        linear = linear_bounds(net.steps, rows, offset)
        least, most = torch.maximum(least, linear[0]), torch.minimum(most, linear[1])
    return torch.minimum(least, most), torch.maximum(least, most)  # of a point, rounding may make them cross


class RelaxedNetwork:
    """The values of a network: steps of bound propagation, and boxes.

    Args:
        nodes: from :func:`.nodes_in`, without clipping normalisers and layer normalisation.
        low, high: the box ``[B, *S]`` at the input.
        full: whether what activation functions take has linear bounds, and not those of intervals.

    Attributes:
        steps: how every value is made; the first is the input.
        boxes: of all values, ``[B, *S]``.
    """

    def __init__(self, nodes: Sequence[Node], low: Tensor, high: Tensor, full: bool) -> None:
        self.steps: list[BoundStep] = [BoxStep(low, high)]
        self.boxes: list[Bounds] = [(low, high)]
        self._full = full
        self._loses = [False]  # whether interval bounds of a value forget what linear ones know
        for node in nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        step, box = node.operation.relax(self, node.inputs)
        box = box_through(node, self.boxes) if box is None else box
        self.boxes.append(box)
        self.steps.append(BoxStep(*box) if step is None else step)
        loses = node.operation.several or any(self._loses[source] for source in node.inputs)
        self._loses.append(step is not None and (loses or not isinstance(step, AffineStep)))

    def box(self, number: int, where: Callable[[Tensor, Tensor], Tensor] | None = None) -> Bounds:
        """The box of a value, with linear bounds ``where`` they pay by that box, if they are asked for."""
        if where is not None and self._full and self._loses[number]:
            self.boxes[number] = self.tightened(number, where(*self.boxes[number]))
        return self.boxes[number]

    def bound(self, number: int, rows: Tensor, offset: Tensor) -> Bounds:
        """Linear bounds on combinations of the elements of a value, plus an offset."""
        return linear_bounds(self.steps, {number: rows}, offset)

    def tightened(self, number: int, where: Tensor | None) -> Bounds:
        """The box of a value, with linear bounds where they are asked for.

        Args:
            number: of the value.
            where: bool ``[B, *S]``; None for everywhere.
        """
        box, step = self.boxes[number], self.steps[number]
        low, high = (flat(end, 1) for end in box)
        # the neurons that are asked for, as many of every row
        index = None
        if where is not None:
            most = int(where.sum(tuple(range(1, where.dim()))).max())
            if most == 0:
                return box
            if most < low.shape[1]:  # as many of every row; those beyond its own are bounded anew in vain
                index = where.flatten(1).to(torch.uint8).topk(most, 1).indices
        count = low.shape[1] if index is None else index.shape[1]
        # linear bounds on each of them, on as many at once as fit into memory
        found = list[Bounds]()
        size = self._at_once(number)
        for begin in range(0, count, size):
            part = None if index is None else index[:, begin : begin + size]
            chosen = slice(begin, begin + size) if part is None else part
            # behind an affine layer a neuron is a row of its weight, elsewhere a row of the identity
            known = step.operation.rows_of(chosen, step.shapes[0]) if isinstance(step, AffineStep) else None
            if known is not None:
                start, offset = {step.sources[0]: known[0]}, known[1]
            else:
                if part is None:
                    part = torch.arange(begin, min(begin + size, count), device=low.device)[None]
                rows = low.new_zeros(*part.shape, low.shape[1]).scatter_(2, part[..., None], 1.0)
                start, offset = {number: rows.reshape(*part.shape, *box[0].shape[1:])}, low.new_zeros(())
            found.append(linear_bounds(self.steps, start, offset))
        least, most_ = (torch.cat(bounds, 1) for bounds in zip(*found, strict=True))
        if index is not None:
            least, most_ = low.scatter(1, index, least), high.scatter(1, index, most_)
        # never looser than the box that was known
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
        return max(1, _AT_ONCE // (2 * len(self.boxes[0][0]) * widest))


def linear_bounds(steps: Sequence[BoundStep], rows: RowsByValue, offset: Tensor) -> Bounds:
    """Linear bounds ``[B, M]`` on combinations of values, plus an offset.

    Args:
        steps: of all values.
        rows: the combinations, ``[B or 1, M, *S]`` by the number of a value.
        offset: ``[B or 1, M]``, or one number.
    """
    found = lower_bounds(steps, rows)
    if any(steps[number].after is not None for number in _needed(steps, rows)):
        # what comes before a window may be bounded more tightly by its box than by lines
        ended = [step if step.after is None else BoxStep(*step.after) for step in steps]
        found = torch.maximum(found, lower_bounds(ended, rows))
    least, opposite = found.chunk(2, 1)
    return least + offset, offset - opposite


def lower_bounds(steps: Sequence[BoundStep], rows: RowsByValue) -> Tensor:
    """Lower bounds ``[B, 2 M]`` on combinations of values, and on minus them.

    Args:
        steps: of all values.
        rows: the combinations, ``[B or 1, M, *S]`` by the number of a value.
    """
    held = {number: (each, False) for number, each in rows.items()}  # and whether minus the rows stand behind them
    total = Total(next(iter(rows.values())).new_zeros(()))

    # add rows to those that other layers have pulled back to the same value
    def pull(number: int, more: Tensor, both: bool) -> None:
        if number in held:
            each, split = held[number]
            if split != both:
                each, more = (each if split else with_opposite(each)), (more if both else with_opposite(more))
            more, both = each + more, split or both
        held[number] = more, both

    # from the last value back to the input: rows of a value become rows of what its layer takes
    for number in range(max(held), -1, -1):
        if number not in held:
            continue
        pulled, both = steps[number].pull(*held.pop(number), total)
        for source, part in zip(steps[number].sources, pulled, strict=True):
            pull(source, part, both)
    return total()


def _needed(steps: Sequence[BoundStep], rows: RowsByValue) -> set[int]:
    """The numbers of the values that combinations depend on."""
    found = set(rows)
    for number in range(max(found), -1, -1):
        if number in found:
            found.update(steps[number].sources)
    return found


def _elementwise_end(nodes: Sequence[Node]) -> int:
    """How many of the last nodes follow one another and are bounded by the boxes of what they take."""
    count = 0
    # from the end, as long as each takes what the one before it gives
    for i in range(len(nodes) - 1, -1, -1):
        if nodes[i].inputs != (i,) or not nodes[i].operation.tight_at_end():
            break
        count += 1
    return count


def _split(nodes: Sequence[Node]) -> list[Node]:
    """Nodes in their parts: a normaliser that clips as one that does not and a clip, for example."""
    found, number = list[Node](), [0]
    for node in nodes:
        inputs = tuple(number[i] for i in node.inputs)
        for part in node.operation.parts():
            found.append(Node(part, inputs))
            inputs = (len(found),)
        number.append(len(found))
    return found
