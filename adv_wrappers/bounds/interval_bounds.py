"""Interval bound propagation (Gowal et al. 2018, section 3): a box in, a box around every possible output out.

A box is a pair of tensors ``low <= high`` of one shape, batch first. Linear layers and convolutions take its centre
and radius, ``W c + b`` and ``|W| r``: two passes where the four products of positive and negative parts are the same
bound. Layers that rise in every input take the two ends. All of it is differentiable with respect to weights and box.

Rules of other layers: GELU and SiLU fall up to their least value and rise from there. A product takes the least and
the largest of the products of the ends. Layer normalisation is in :mod:`.layer_norm`.

Bounds hold in exact arithmetic: nothing is rounded outwards, so an output may leave its box by the rounding of the
pass itself. A point (``low == high``) gives the forward pass to the bit, but for layer and batch normalisation, which
compute it in another order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.affine import RowsByValue, Shape, check_width, flat, pull_back, runs, takes_vectors, times
from adv_wrappers.bounds.layer_norm import Centred, Standardized, parts_of
from adv_wrappers.bounds.relaxations import least_point
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.graph import (
    Arithmetic,
    GraphNetwork,
    Join,
    Mean,
    Node,
    NodeLayer,
    Permute,
    Reshape,
    Slice,
    chain,
    does_nothing,
    factor_and_offset,
    has_statistics,
    hooked,
)
from adv_wrappers.networks.layers import ActionValue, AppendLogStd, Clip, Normalize, QuantileMean, TwoLogits
from adv_wrappers.networks.tracing import OutputForm, UnknownCall, nearly_equal, trace

# ----------------------------------------------------------------------------------------------------------------------
# Which layers have interval bounds, and the graph of a network that is made of them.
#
# Bounds are computed on the graph that gradients are computed on too (:mod:`adv_wrappers.networks.graph`): layers, and
# what a ``forward`` does with several values. Here is the table of rules; the rules themselves
# are below.
# ----------------------------------------------------------------------------------------------------------------------


Bounds = tuple[Tensor, Tensor]
Ends = Tensor | tuple[Tensor, ...]  # of a box, for a layer of one input or of several
Rule = Callable[[Any, Any, Any], Bounds]  # a layer of its own type, and both ends
R = TypeVar("R", bound=Rule)

_RULES: dict[type, Rule] = {}
_FOUND: dict[type, Rule | None] = {}  # what was found for types, since it is looked for in every call


def rule(*kinds: type) -> Callable[[R], R]:
    """Give layers of these types a rule ``(layer, low, high) -> (low, high)``; also for subclasses with their forward.

    A layer of several inputs gets tuples of ends. :func:`.crown` takes a layer that has this rule alone by its box.

    Raises:
        ValueRangeError: for a type that has a rule.
    """

    def add(function: R) -> R:
        for kind in kinds:
            if kind in _RULES:
                raise ValueRangeError(f"{kind.__name__} has a rule already: {_RULES[kind]}")
            _RULES[kind] = function
        _FOUND.clear()
        return function

    return add


def monotone(*kinds: type) -> None:
    """Register layers each of whose outputs falls with none of the inputs: their bounds are their values at the ends.

    Clamps, activations, pooling, normalisers that divide by something positive, putting a constant beside the input.
    """
    rule(*kinds)(monotone_rule)


def monotone_rule(layer: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Bounds:
    """The rule of layers that are :func:`monotone`."""
    if getattr(layer, "inplace", False):
        low, high = low.clone(), high.clone()
    return layer(low), layer(high)


def known() -> tuple[str, ...]:
    """Names of the layers that have a rule, sorted."""
    kinds = [kind for kind in _RULES if issubclass(kind, nn.Module)]
    return tuple(sorted(kind.__name__ for kind in (*kinds, nn.Sequential)))


def rule_of(layer: NodeLayer) -> Rule:
    """The rule of a layer that has one."""
    found = _rule_of_type(type(layer))
    assert found is not None
    return found


def has_rule(layer: nn.Module) -> bool:
    """Whether there is a rule for a layer, and nothing that changes what it answers."""
    return _rule_of_type(type(layer)) is not None and "forward" not in vars(layer) and not hooked(layer)


def _rule_of_type(kind: type) -> Rule | None:
    """The rule of a type, or of the one whose forward it has."""
    if kind not in _FOUND:
        forward, bases = getattr(kind, "forward", None), [base for base in kind.__mro__ if base in _RULES]
        same = (base for base in bases if getattr(base, "forward", None) is forward)
        _FOUND[kind] = next((_RULES[base] for base in same), None)
    return _FOUND[kind]


def nodes_in(module: nn.Module, x: Tensor | tuple[Tensor, ...]) -> list[Node]:
    """The graph of a module, each of whose nodes has a rule.

    Args:
        module: as :func:`adv_wrappers.bounds.interval_bounds` takes it.
        x: what it takes, ``[B, *S]``, at which the graph is compared with it; a module of several inputs has a rule of
            its own.

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


def _nodes(module: nn.Module, x: Tensor | tuple[Tensor, ...], answer: OutputForm, follows: bool) -> list[Node]:
    if type(module) is GraphNetwork:
        return module.nodes
    placed = list(_in_sequence(module, ""))
    path, layer = next(((path, each) for path, each in placed if not has_rule(each)), ("", None))
    if layer is None:
        return chain([each for _, each in placed if not does_nothing(each)])
    what = f"layer {path} ({layer})" if path else str(layer)
    if hooked(layer):
        raise VictimError(f"bounds have no rule for {what:.300}: a hook may change what it answers")
    try:
        if isinstance(x, Tensor):
            nodes = trace(module, has_rule, answer, follows)
            _check_agreement(module, nodes, x, answer)
            return nodes
    except UnknownCall as error:
        what = str(error)
    raise VictimError(f"bounds have no rule for {what:.300}: known: {', '.join(known())}; bounds.rule adds one")


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


def _in_sequence(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of a ``Sequential``, nested as one likes, and where they are; any other module is one itself."""
    if runs(module, nn.Sequential) and not hooked(module):
        for name, child in module._modules.items():  # children() leaves out the second use of a shared layer
            assert child is not None
            yield from _in_sequence(child, f"{path}.{name}" if path else name)
    else:
        yield path, module


Boxes = Mapping[int, Bounds] | Sequence[Bounds]  # by the number of a value


def interval(module: nn.Module, low: Ends, high: Ends, spec: Tensor | None = None) -> Bounds:
    """Bounds ``(low, high)`` on ``module(x)`` for every ``x`` with ``low <= x <= high``.

    Args:
        module: a layer of :func:`.known`, a ``Sequential`` of them, nested as you like, or a class whose ``forward``
            applies them to its input, and adds, multiplies, joins, reshapes and selects what they answer (see
            :mod:`adv_wrappers.networks.graph`).
        low, high: float tensors ``[B, *S]``, finite; for a module of several inputs, tuples of them.
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
    rows = check_spec(spec, low)
    linear = [node if takes_vectors(node.layer) else None for node in nodes]
    kept = {len(nodes)}  # the values that rows are pulled back to
    for i in range(len(nodes), 0, -1):
        if i in kept and (node := linear[i - 1]) is not None:
            kept.update(node.inputs)
    skipped = _skipped(nodes, linear)
    boxes = boxes_of(nodes, low, high, kept, skipped)
    shapes = _shapes(nodes, boxes, kept)
    return combined(*pulled_back(linear, {len(nodes): as_rows(rows, shapes[len(nodes)])}, shapes), boxes)


def boxes_of(
    nodes: Sequence[Node], low: Ends, high: Ends, kept: Container[int], skipped: Container[int] = ()
) -> dict[int, Bounds]:
    """The boxes of values, by their number.

    Args:
        nodes: from :func:`.nodes_in`.
        low, high: ends of the input's box.
        kept: the numbers of the values that are asked for. Others are forgotten behind the last node that takes them:
            memory that is used again is quicker.
        skipped: the numbers of the values that nobody needs.
    """
    boxes = {0: cast(Bounds, (low, high))}  # layers answer with one tensor
    last = {source: i for i, node in enumerate(nodes) if i + 1 not in skipped for source in node.inputs}
    for i, node in enumerate(nodes):
        if i + 1 not in skipped:
            boxes[i + 1] = box_through(node, boxes)
            for source in node.inputs:
                if last[source] == i and source not in kept:
                    boxes.pop(source, None)
    return boxes


def box_through(node: Node, boxes: Boxes) -> Bounds:
    """The box of what a node answers, from the boxes of the values before it."""
    if len(node.inputs) == 1:
        low, high = boxes[node.inputs[0]]
        return rule_of(node.layer)(node.layer, low, high)
    lows, highs = zip(*(boxes[i] for i in node.inputs), strict=True)
    return rule_of(node.layer)(node.layer, lows, highs)


def _skipped(nodes: Sequence[Node], linear: Sequence[Node | None]) -> set[int]:
    """The values of linear nodes that only other such nodes take: a specification is multiplied into them."""
    found = {i + 1 for i, node in enumerate(linear) if node is not None}
    for i in range(len(nodes), 0, -1):
        if i not in found:
            found.difference_update(nodes[i - 1].inputs)
    return found


def _shapes(nodes: Sequence[Node], boxes: Mapping[int, Bounds], kept: Container[int]) -> dict[int, Shape]:
    """The shapes of rows of kept values."""
    shapes = {number: tuple(box[0].shape[1:]) for number, box in boxes.items()}
    for i, node in enumerate(nodes, 1):
        if i in shapes or i not in kept:
            continue
        if isinstance(node.layer, nn.Linear):
            shapes[i] = *shapes[node.inputs[0]][:-1], node.layer.out_features
        else:
            with torch.no_grad():
                answer = node.layer(*(boxes[min(boxes)][0].new_zeros(1, *shapes[each]) for each in node.inputs))
            shapes[i] = tuple(answer.shape[1:])
    return shapes


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
    for i in range(max(rows), 0, -1):
        if i not in rows or (node := nodes[i - 1]) is None:
            continue
        pulled, more = pull_back(node.layer, rows.pop(i), [shapes[source] for source in node.inputs])
        offset = more if offset is None else offset + more
        for source, each in zip(node.inputs, pulled, strict=True):
            rows[source] = rows[source] + each if source in rows else each
    return rows, next(iter(rows.values())).new_zeros(()) if offset is None else offset


def combined(rows: RowsByValue, offset: Tensor, boxes: Boxes) -> Bounds:
    """Bounds ``[B, M]`` on combinations of values in their boxes, plus an offset."""
    radius: Tensor | None = None
    for number, each in rows.items():
        middle, spread = _centre_and_radius(*(flat(end, 1) for end in boxes[number]))
        row = flat(each, 2)
        offset = times(row, middle) + offset
        more = times(row.abs(), spread)
        radius = more if radius is None else radius + more
    assert radius is not None
    return offset - radius, offset + radius


def _centre_and_radius(low: Tensor, high: Tensor) -> Bounds:
    centre = torch.lerp(low, high, 0.5)
    return centre, high - centre


def joined(*parts: Bounds | Tensor) -> Bounds:
    """Boxes ``(low, high)`` and fixed tensors side by side along the last axis, as one box.

    >>> import torch
    >>> from adv_wrappers.bounds import joined
    >>> low, high = joined(torch.zeros(1, 2), (torch.zeros(1, 1), torch.ones(1, 1)))
    >>> low.tolist(), high.tolist()
    ([[0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]])
    """
    pairs = [(part, part) if isinstance(part, Tensor) else part for part in parts]
    return torch.cat([low for low, _ in pairs], -1), torch.cat([high for _, high in pairs], -1)


def check_box(low: object, high: object) -> None:
    """Raise :class:`ValueRangeError` unless these are the ends of boxes, as :func:`interval` takes them."""
    if isinstance(low, tuple) and isinstance(high, tuple) and len(low) == len(high):
        for pair in zip(low, high, strict=True):
            check_box(*pair)
        return
    low, high = _float_tensor(low), _float_tensor(high)
    if low.shape != high.shape or low.dtype != high.dtype:
        shapes = f"{low.dtype} {tuple(low.shape)} and {high.dtype} {tuple(high.shape)}"
        raise ValueRangeError(f"the ends of a box have one shape and dtype, got {shapes}")
    if low.device.type == "cpu" and not (low <= high).all():  # elsewhere, looking would wait for the device
        raise ValueRangeError("a box has low <= high everywhere, and no NaN")


def check_spec(spec: object, low: Ends) -> Tensor:
    """A specification for boxes with these ends; :class:`ValueRangeError` for what is none."""
    first = low if isinstance(low, Tensor) else low[0]
    fits = isinstance(spec, Tensor) and (spec.dim() == 2 or (spec.dim() == 3 and len(spec) in (1, len(first))))
    if not isinstance(spec, Tensor) or not fits or spec.dtype != first.dtype:
        got = f"{spec.dtype} {tuple(spec.shape)}" if isinstance(spec, Tensor) else type(spec).__name__
        raise ValueRangeError(
            f"a specification is a tensor [M, K] or [{len(first)}, M, K] of {first.dtype}, as the box is, got {got}"
        )
    return spec


def _float_tensor(end: object) -> Tensor:
    if not isinstance(end, Tensor) or not end.is_floating_point():
        raise ValueRangeError(f"a box has two float tensors as ends, got {getattr(end, 'dtype', type(end))}")
    return end


monotone(
    nn.Tanh,
    nn.ReLU,
    nn.Sigmoid,
    nn.Hardtanh,
    nn.Identity,
    nn.Flatten,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.MaxPool2d,
    Normalize,
    Clip,
    AppendLogStd,
    TwoLogits,
    QuantileMean,
)


@rule(nn.LeakyReLU, nn.ELU)
def _bent(layer: nn.LeakyReLU | nn.ELU, low: Tensor, high: Tensor) -> Bounds:
    slope = layer.negative_slope if isinstance(layer, nn.LeakyReLU) else layer.alpha
    if slope < 0:
        raise VictimError(f"interval bounds have no rule for {layer}: it falls below 0, expected a slope of at least 0")
    return monotone_rule(layer, low, high)


@rule(nn.Softplus)
def _softplus(layer: nn.Softplus, low: Tensor, high: Tensor) -> Bounds:
    """Torch goes over to the identity where ``beta x > threshold``, which is a step down, and large for a small one."""
    beta, threshold = layer.beta, layer.threshold
    if beta <= 0:
        raise VictimError(f"interval bounds have no rule for {layer}: expected beta above 0")
    crosses = (low * beta <= threshold) & (high * beta > threshold)
    step = threshold / beta
    before = math.log1p(math.exp(-abs(threshold))) / beta + max(step, 0.0)
    least, most = layer(low), layer(high)
    return torch.where(crosses, least.clamp(max=step), least), torch.where(crosses, most.clamp(min=before), most)


@rule(nn.Linear)
def _linear(layer: nn.Linear, low: Tensor, high: Tensor) -> Bounds:
    middle, spread = _centre_and_radius(low, high)
    centre = functional.linear(middle, layer.weight, layer.bias)
    radius = functional.linear(spread, layer.weight.abs())
    return centre - radius, centre + radius


@rule(nn.Conv2d)
def _conv2d(layer: nn.Conv2d, low: Tensor, high: Tensor) -> Bounds:
    if layer.padding_mode != "zeros":
        raise VictimError(f"interval bounds have no rule for {layer}: expected padding_mode='zeros'")
    conv = functools.partial(
        functional.conv2d, stride=layer.stride, padding=layer.padding, dilation=layer.dilation, groups=layer.groups
    )
    middle, spread = _centre_and_radius(low, high)
    centre = conv(middle, layer.weight, layer.bias)
    radius = conv(spread, layer.weight.abs())
    return centre - radius, centre + radius


@rule(ActionValue)
def _action_value(layer: ActionValue, low: tuple[Tensor, Tensor], high: tuple[Tensor, Tensor]) -> Bounds:
    """``(obs, act)`` at both ends; a fixed part has the same ends."""
    seen = interval(layer.normalise, low[0], high[0])
    least, most = interval(layer.net, *joined(seen, (low[1], high[1])))
    return least.squeeze(-1), most.squeeze(-1)


@rule(nn.GELU, nn.SiLU)
def _gated(layer: nn.GELU | nn.SiLU, low: Tensor, high: Tensor) -> Bounds:
    """They fall up to one point, where they are least, and rise from there."""
    bottom = least_point(layer)
    crosses = (low < bottom) & (high > bottom)
    at_low, at_high = monotone_rule(layer, low, high)
    least = torch.where(crosses, layer(low.new_tensor(bottom)), torch.minimum(at_low, at_high))
    return least, torch.maximum(at_low, at_high)


@rule(nn.Dropout, nn.Dropout2d)
def _dropout(layer: nn.Module, low: Tensor, high: Tensor) -> Bounds:
    if layer.training:
        raise VictimError(f"interval bounds have no rule for {layer} in training mode: call .eval()")
    return low, high


@rule(nn.BatchNorm1d, nn.BatchNorm2d)
def _batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d, low: Tensor, high: Tensor) -> Bounds:
    if not has_statistics(layer):
        raise VictimError(f"interval bounds have no rule for {layer} in training mode: call .eval()")
    factor, offset = factor_and_offset(layer, low.dim())
    at_low, at_high = low * factor + offset, high * factor + offset
    return torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)


@rule(nn.LayerNorm)
def _layer_norm(layer: nn.LayerNorm, low: Tensor, high: Tensor) -> Bounds:
    for part in parts_of(layer):
        low, high = rule_of(part)(part, low, high)
    return low, high


@rule(Centred)
def _centred(layer: Centred, low: Tensor, high: Tensor) -> Bounds:
    return layer.box(low, high)


@rule(Standardized)
def _standardized(layer: Standardized, low: Tensor, high: Tensor) -> Bounds:
    return layer.box(low, high)


@rule(Arithmetic)
def _arithmetic(layer: Arithmetic, low: Tensor, high: Tensor) -> Bounds:
    at_low, at_high = layer(low), layer(high)
    _check_rows(layer, at_low, low)
    if layer.how == "add" or (not isinstance(layer.by, Tensor) and layer.by > 0):
        return at_low, at_high
    return torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)


@rule(Join)
def _join(join: Join, low: tuple[Tensor, ...], high: tuple[Tensor, ...]) -> Bounds:
    if isinstance(low, Tensor):  # one value, beside constants
        low, high = (low,), (high,)
    _check_rows(join, *low)
    if join.how == "difference":
        return low[0] - high[1], high[0] - low[1]
    if join.how != "product":
        return join(*low), join(*high)
    products = [x * y for x in (low[0], high[0]) for y in (low[1], high[1])]
    return functools.reduce(torch.minimum, products), functools.reduce(torch.maximum, products)


@rule(Mean)
def _mean(layer: Mean, low: Tensor, high: Tensor) -> Bounds:
    return _by_rows(layer, low, high, any(axis % low.dim() == 0 for axis in layer.axes))


@rule(Permute)
def _permute(layer: Permute, low: Tensor, high: Tensor) -> Bounds:
    return _by_rows(layer, low, high, layer.axes[0] % low.dim() != 0)


@rule(Slice)
def _part(layer: Slice, low: Tensor, high: Tensor) -> Bounds:
    return _by_rows(layer, low, high, bool(layer.method) and layer.arguments[1] % low.dim() == 0)


@rule(Reshape)
def _reshape(layer: Reshape, low: Tensor, high: Tensor) -> Bounds:
    return _by_rows(layer, low, high, False)


def _by_rows(layer: Mean | Permute | Slice | Reshape, low: Tensor, high: Tensor, mixes: bool) -> Bounds:
    """What moves and averages elements, each row by itself."""
    least, most = layer(low), layer(high)
    if mixes or least.shape[:1] != low.shape[:1]:
        raise VictimError(_MIXED.format(layer))
    return least, most


def _check_rows(layer: Arithmetic | Join, *values: Tensor) -> None:
    """Values that are broadcast have as many axes, of which the first is that of rows."""
    first = values[0]
    if any(each.dim() != first.dim() or len(each) != len(first) for each in values):
        raise VictimError(_MIXED.format(layer))


_MIXED = "bounds are of networks that take every row by itself: {} mixes them"
