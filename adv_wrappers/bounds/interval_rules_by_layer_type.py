"""Which layers have interval bounds, and the graph of a network that is made of them.

Bounds are computed on the graph that gradients are computed on too (:mod:`adv_wrappers.networks.graph`): layers, and
what a ``forward`` does with several values. Here is the table of rules; the rules themselves are in
:mod:`.interval_bound_propagation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from adv_wrappers.bounds.backward_through_affine_layers import runs
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.graph import GraphNetwork, Node, NodeLayer, chain, does_nothing, hooked
from adv_wrappers.networks.tracing import OutputForm, UnknownCall, nearly_equal, trace

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
        module: as :func:`adv_wrappers.bounds.interval_bound_propagation` takes it.
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
