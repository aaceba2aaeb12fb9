"""Interval bound propagation (Gowal et al. 2018, section 3): a box in, a box around every possible output out.

A box is a pair of tensors ``low <= high`` of one shape, batch first. Linear layers and convolutions take its centre
and radius, ``W c + b`` and ``|W| r``: two passes where the four products of positive and negative parts are the same
bound. Layers that rise in every input take the two ends. All of it is differentiable with respect to weights and box.
How each operation bounds its outputs is in :mod:`adv_wrappers.networks.operations`.

Bounds hold in exact arithmetic: nothing is rounded outwards, so an output may leave its box by the rounding of the
pass itself. A point (``low == high``) gives the forward pass to the bit, but for layer and batch normalisation, which
compute it in another order.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

import torch
from torch import Tensor, nn

from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.graph import GraphNetwork, Node, chain, layers_of
from adv_wrappers.networks.operations.linear_bounds import (
    Bounds,
    RowsByValue,
    Shape,
    centre_and_radius,
    check_width,
    flat,
    times,
)
from adv_wrappers.networks.operations.lookup import operation_type
from adv_wrappers.networks.operations.operation import OPERATIONS, hooked
from adv_wrappers.networks.tracing import OutputForm, UnknownCall, nearly_equal, trace


def known() -> tuple[str, ...]:
    """Names of the layers that have a rule, sorted."""
    kinds = [kind for kind, operation in OPERATIONS.items() if operation.bounded]
    return tuple(sorted(kind.__name__ for kind in (*kinds, nn.Sequential)))


def has_rule(layer: nn.Module) -> bool:
    """Whether there is a rule for a layer, and nothing that changes what it answers."""
    operation = operation_type(layer)
    return operation is not None and operation.bounded and "forward" not in vars(layer) and not hooked(layer)


def nodes_in(module: nn.Module, x: Tensor) -> list[Node]:
    """The graph of a module, each of whose nodes has a rule.

    Args:
        module: as :func:`adv_wrappers.bounds.interval_bounds` takes it.
        x: what it takes, ``[B, *S]``, at which the graph is compared with it.

    Raises:
        VictimError: for a layer without a rule, and a ``forward`` that is not known.
    """
    return _nodes(module, x, "pair", torch.is_grad_enabled())


def graph_network(module: nn.Module, x: Tensor, answer: OutputForm = "pair") -> GraphNetwork:
    """A module as a graph that has bounds.

    To look for it takes longer than bounds on a small network: where they are asked for often, it is made once. Weights
    are shared, so that it follows the module as it is trained.

    Args:
        module: takes one tensor.
        x: what it takes, ``[B, *S]``, at which the graph is compared with it.
        answer: what it returns, see :func:`adv_wrappers.networks.tracing.trace`.

    Raises:
        VictimError: for a layer without a rule, and a ``forward`` that is not known.
    """
    return GraphNetwork(_nodes(module, x, answer, True))


def _nodes(module: nn.Module, x: Tensor, answer: OutputForm, follows: bool) -> list[Node]:
    if type(module) is GraphNetwork:
        return module.nodes
    # layers one after the other are a chain as they are
    if (layers := layers_of(module, has_rule)) is not None:
        return chain(layers)
    # anything else is traced, and the trace compared with the module
    try:
        nodes = trace(module, has_rule, answer, follows)
    except UnknownCall as error:
        text = f"bounds have no rule for {error!s:.300}: known: {', '.join(known())}; a subclass of Operation adds one"
        raise VictimError(text) from error
    _check_agreement(module, nodes, x, answer)
    return nodes


@torch.no_grad()
def _check_agreement(module: nn.Module, nodes: list[Node], x: Tensor, answer: OutputForm) -> None:
    """A trace says nothing of what runs outside torch, and takes for granted what reshapes do."""
    expected = module(x.clone())
    if isinstance(expected, (tuple, list)):
        first = expected[0]
        expected = first if answer == "first" else torch.cat([first, expected[1].expand_as(first)], -1)
    try:
        agrees = not expected.isfinite().all() or nearly_equal(GraphNetwork(nodes)(x.clone()), expected)
    except RuntimeError:  # of shapes that do not fit
        agrees = False
    if not agrees:
        raise VictimError(
            f"bounds are of what torch.fx records of a forward, and this does something else: {module!s:.300}"
        )


Boxes = Mapping[int, Bounds] | Sequence[Bounds]  # by the number of a value


def interval(module: nn.Module, low: Tensor, high: Tensor, spec: Tensor | None = None) -> Bounds:
    """Bounds ``(low, high)`` on ``module(x)`` for every ``x`` with ``low <= x <= high``.

    Args:
        module: a layer of :func:`.known`, a ``Sequential`` of them, nested as you like, or a class whose ``forward``
            applies them to its input, and adds, multiplies, joins, reshapes and selects what they answer (see
            :mod:`adv_wrappers.networks.graph`).
        low, high: float tensors ``[B, *S]``, finite.
        spec: rows of linear combinations of the outputs ``[B, K]`` to bound in their place, ``[M, K]``, or
            ``[B, M, K]`` for other ones in every box; bounds are then ``[B, M]``. They are multiplied into the last
            linear layers, which bounds a difference of outputs more tightly than the difference of their bounds does.

    Raises:
        VictimError: for a layer without a rule, naming it and the layers that have one, and a ``forward`` that is not
            known.
        ValueRangeError: for ends of different shapes or dtypes, a specification that does not fit the outputs, and,
            where they are on the host, for low above high.

    >>> import torch
    >>> from torch import nn
    >>> from adv_wrappers.bounds import interval
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
    >>> low, high = interval(layer, torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    >>> low.item(), high.item()
    (-2.0, 1.0)
    >>> twice = nn.Sequential(layer, nn.Linear(1, 2))  # two outputs that rise and fall together
    >>> with torch.no_grad():
    ...     _ = twice[1].weight.fill_(1.0), twice[1].bias.zero_()
    >>> low, high = interval(twice, torch.zeros(1, 2), torch.ones(1, 2), spec=torch.tensor([[1.0, -1.0]]))
    >>> low.item(), high.item()
    (0.0, 0.0)
    """
    check_box(low, high)
    nodes = nodes_in(module, low)
    if spec is None:
        return boxes_of(nodes, low, high, {len(nodes)})[len(nodes)]
    # a specification is multiplied into the affine layers at the end
    rows = check_spec(spec, low)
    linear = [node if node.operation.takes_rows and node.operation.is_affine() else None for node in nodes]
    kept = {len(nodes)}  # the values that rows are pulled back to
    for i in range(len(nodes), 0, -1):
        if i in kept and (node := linear[i - 1]) is not None:
            kept.update(node.inputs)
    boxes = boxes_of(nodes, low, high, kept)
    shapes = {number: tuple(box[0].shape[1:]) for number, box in boxes.items()}
    return combined(*pulled_back(linear, {len(nodes): as_rows(rows, shapes[len(nodes)])}, shapes), boxes)


def boxes_of(nodes: Sequence[Node], low: Tensor, high: Tensor, kept: Container[int]) -> dict[int, Bounds]:
    """The boxes of values, by their number.

    Args:
        nodes: from :func:`.nodes_in`.
        low, high: ends of the input's box.
        kept: the numbers of the values that are asked for. Others are forgotten behind the last node that takes them:
            memory that is used again is quicker.
    """
    boxes = {0: (low, high)}
    last = {source: i for i, node in enumerate(nodes) for source in node.inputs}
    for i, node in enumerate(nodes):
        boxes[i + 1] = box_through(node, boxes)
        # what nothing takes any more, and nobody has asked for, makes room
        for source in node.inputs:
            if last[source] == i and source not in kept:
                boxes.pop(source, None)
    return boxes


def box_through(node: Node, boxes: Boxes) -> Bounds:
    """The box of what a node answers, from the boxes of the values before it."""
    if node.operation.several:
        return node.operation.interval(*zip(*(boxes[i] for i in node.inputs), strict=True))
    return node.operation.interval(*boxes[node.inputs[0]])


def as_rows(spec: Tensor, shape: Shape) -> Tensor:
    """A specification ``[M, K]`` or ``[B, M, K]`` for values of a shape, ``[B or 1, M, *S]``."""
    check_width(spec, math.prod(shape))
    rows = spec if spec.dim() == 3 else spec[None]
    return rows if len(shape) == 1 else rows.reshape(*rows.shape[:-1], *shape)


def pulled_back(
    nodes: Sequence[Node | None], rows: RowsByValue, shapes: Mapping[int, Shape] | Sequence[Shape]
) -> tuple[RowsByValue, Tensor]:
    """Rows and an offset ``[B or 1, M]``, the same combinations of what linear nodes take.

    Args:
        nodes: None for one that is not linear.
        rows: the combinations.
        shapes: of rows of what linear nodes take.
    """
    rows = dict(rows)
    offset: Tensor | None = None
    # from the last value back: rows of a linear node's result become rows of what it takes
    for i in range(max(rows), 0, -1):
        if i not in rows or (node := nodes[i - 1]) is None:
            continue
        pulled, more = node.operation.pull_back(rows.pop(i), [shapes[source] for source in node.inputs])
        offset = more if offset is None else offset + more
        for source, each in zip(node.inputs, pulled, strict=True):
            rows[source] = rows[source] + each if source in rows else each
    return rows, next(iter(rows.values())).new_zeros(()) if offset is None else offset


def combined(rows: RowsByValue, offset: Tensor, boxes: Boxes) -> Bounds:
    """Bounds ``[B, M]`` on combinations of values in their boxes, plus an offset."""
    radius: Tensor | None = None
    # the centre of a box times the rows, and its radius times their absolute values
    for number, each in rows.items():
        middle, spread = centre_and_radius(*(flat(end, 1) for end in boxes[number]))
        row = flat(each, 2)
        offset = times(row, middle) + offset
        more = times(row.abs(), spread)
        radius = more if radius is None else radius + more
    assert radius is not None
    return offset - radius, offset + radius


def check_box(low: object, high: object) -> None:
    """Raise :class:`ValueRangeError` unless these are the ends of boxes, as :func:`interval` takes them."""
    low, high = _float_tensor(low), _float_tensor(high)
    if low.shape != high.shape or low.dtype != high.dtype:
        shapes = f"{low.dtype} {tuple(low.shape)} and {high.dtype} {tuple(high.shape)}"
        raise ValueRangeError(f"the ends of a box have one shape and dtype, got {shapes}")
    if low.device.type == "cpu" and not (low <= high).all():  # elsewhere, looking would wait for the device
        raise ValueRangeError("a box has low <= high everywhere, and no NaN")


def check_spec(spec: object, low: Tensor) -> Tensor:
    """A specification for boxes with these ends; :class:`ValueRangeError` for what is none."""
    fits = isinstance(spec, Tensor) and (spec.dim() == 2 or (spec.dim() == 3 and len(spec) in (1, len(low))))
    if not isinstance(spec, Tensor) or not fits or spec.dtype != low.dtype:
        got = f"{spec.dtype} {tuple(spec.shape)}" if isinstance(spec, Tensor) else type(spec).__name__
        raise ValueRangeError(
            f"a specification is a tensor [M, K] or [{len(low)}, M, K] of {low.dtype}, as the box is, got {got}"
        )
    return spec


def _float_tensor(end: object) -> Tensor:
    if not isinstance(end, Tensor) or not end.is_floating_point():
        raise ValueRangeError(f"a box has two float tensors as ends, got {getattr(end, 'dtype', type(end))}")
    return end
