"""The graph of layers that a class computes, found by running its ``forward`` with a stand-in for the input.

A trace is of one run, so it holds only for a ``forward`` that does the same at every input. What depends on values, on
Python state that it changes itself, or on anything that is not known has no graph, and is left to autograd. What was
found is compared with the module itself (:func:`agrees`), since a trace says nothing of ``no_grad``, of ``autocast``,
or of what runs outside torch.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, fx, nn

from adv_wrappers.networks.graph import Node, changed, does_nothing, known
from adv_wrappers.networks.graph_builder import GraphBuilder, UnknownCall
from adv_wrappers.networks.tracing import OneThreadTracer, copy_around

_FLOATS = {torch.float32, torch.float64}


def traced(module: nn.Module, answer: str = "tensor") -> list[Node] | None:
    """The graph of a module that never changes, or None where it holds what is not written out.

    Args:
        module: takes one tensor; further arguments are left at their defaults. It is not changed.
        answer: what it returns, see :meth:`GraphBuilder.build`.
    """
    try:
        return trace(module, answer)
    except UnknownCall:
        return None


def trace(
    module: nn.Module, answer: str = "tensor", is_layer: Callable[[nn.Module], bool] = known, follows: bool = False
) -> list[Node]:
    """The graph of a module.

    Args:
        module, answer: as of :func:`traced`.
        is_layer, follows: as of :class:`GraphBuilder`.

    Raises:
        UnknownCall: for a module that has none, naming what is not known.
    """
    if any(changed(each) for each in module.modules()):
        raise UnknownCall("a hook, or a forward that was replaced")
    if other := {p.dtype for p in module.parameters()} - _FLOATS:
        raise UnknownCall(f"weights of {', '.join(map(str, other))}")
    try:
        own = copy_around(module, is_layer)
        before = _state(own)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            graphs = [_GraphTracer(is_layer).trace(own, _defaults(own)) for _ in range(2)]
        if _state(own) != before or _listing(graphs[0]) != _listing(graphs[1]):
            raise UnknownCall("a forward that depends on what it did before")
        return GraphBuilder(own, graphs[0], is_layer, follows).build(answer)
    except UnknownCall:
        raise
    except Exception as error:  # a forward may raise anything when its input is no tensor
        raise UnknownCall(f"a forward that does not run with a stand-in for its input ({error!s:.200})") from error


class HasInputGradient(Protocol):
    """What :func:`agrees` asks of a graph."""

    def input_gradient(self, output_gradient: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """From the gradient of a loss at the output to that at the input."""


def agrees(graph: HasInputGradient, params: Callable[[Tensor], Tensor], inputs: Callable[[int], Tensor]) -> bool:
    """Whether a graph computes what a module does, and its gradient what autograd does, at random inputs.

    Rounding may move an element to the other side of a kink, where its gradient is another one. So gradients must be
    equal at one of three batches, and outputs at all.

    Args:
        graph: the graph of the module.
        params: the module's parameters ``[B, K]`` at inputs.
        inputs: a number of rows to as many inputs.
    """
    try:
        found = [_outputs_and_gradients_agree(graph, params, inputs(rows)) for rows in (2, 3)]
        if not any(gradients for _, gradients in found):
            found.append(_outputs_and_gradients_agree(graph, params, inputs(4)))
    except Exception:  # of a graph that is not that of the module
        return False
    return all(outputs for outputs, _ in found) and any(gradients for _, gradients in found)


def _outputs_and_gradients_agree(
    graph: HasInputGradient, params: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[bool, bool]:
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        expected = params(leaf)
        slope = torch.linspace(0, expected.numel(), expected.numel()).cos().to(expected).view_as(expected)
        (gradient,) = torch.autograd.grad(expected, leaf, slope)
    seen: list[Tensor] = []
    found = graph.input_gradient(lambda output: seen.append(output.clone()) or slope)(x.clone())  # type: ignore[func-returns-value]
    # gradients that are zero everywhere say nothing
    return close(seen[0], expected.detach()), bool(gradient.any()) and close(found, gradient)


def close(found: Tensor, expected: Tensor) -> bool:
    """Whether two computations of the same finite numbers differ by their rounding alone."""
    if found.shape != expected.shape or found.dtype != expected.dtype or not expected.isfinite().all():
        return False
    most = 1e-5 if expected.dtype == torch.float32 else 1e-10  # ten times what rounding was seen to do
    return bool((found - expected).abs().max() <= most * expected.abs().max())


class _GraphProxy(fx.Proxy):
    """A stand-in that records ``x += y`` as what it is, where that of torch records ``x = x + y``."""

    def _written(self, how: Callable[[object, object], object], other: object) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", how, (self, other), {})

    def __iadd__(self, other: object) -> fx.Proxy:
        return self._written(operator.iadd, other)

    def __isub__(self, other: object) -> fx.Proxy:
        return self._written(operator.isub, other)

    def __imul__(self, other: object) -> fx.Proxy:
        return self._written(operator.imul, other)

    def __itruediv__(self, other: object) -> fx.Proxy:
        return self._written(operator.itruediv, other)


class _GraphTracer(OneThreadTracer):
    """Looks into every module but those that may be nodes, and those of torch."""

    proxy_buffer_attributes = True

    def __init__(self, is_layer: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self._is_layer = is_layer

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _GraphProxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return changed(m) or self._is_layer(m) or does_nothing(m) or super().is_leaf_module(m, module_qualified_name)


def _defaults(module: nn.Module) -> dict[str, object] | None:
    """The arguments of a forward beside the first, which are left at their defaults."""
    parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    found = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    return found or None


def _state(module: nn.Module) -> list[object]:
    """What the modules in a module hold at this moment, told by identity, and how many elements lists have."""
    found: list[object] = []
    for each in module.modules():
        for name, value in vars(each).items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            found += [(name, key, id(item)) for key, item in inner]
            if isinstance(value, (list, set)):
                found.append((name, len(value)))
    return found


def _listing(graph: fx.Graph) -> list[str]:
    return [str((node.op, str(node.target), node.args, node.kwargs)) for node in graph.nodes]
