"""Gradients of a loss with respect to a network's input, written out operation by operation, without autograd.

An attack computes K times the gradient of one loss at inputs of one shape. No graph is built for that, no gradient of
a weight is considered, and linear layers and activations write over the same memory in every step. Small networks spend
half the time (``benchmarks/attacks.py``). How each operation is computed is in
:mod:`adv_wrappers.networks.operations`, and the layout that convolutions prefer in :mod:`.strided_convolution`.

Whoever gets a gradient may write over it. Where a value is taken by several operations, the gradient with respect to it
is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from adv_wrappers.networks.graph import Node, chain, layers_of
from adv_wrappers.networks.operations.lookup import has_gradient
from adv_wrappers.networks.operations.operation import Memory, Operation, changed
from adv_wrappers.networks.strided_convolution import SpaceToDepth, picture_layout, rearranged
from adv_wrappers.networks.tracing import OutputForm, UnknownCall, nearly_equal, trace

OutputGradient = Callable[[Tensor], Tensor]  # of a loss: the network's output [B, K] to the gradient there, [B, K]
Use = tuple[Operation, Memory, Any, int]  # of an operation, and the numbers of the values that it takes and gives


class LayerGraph:
    """A network whose input gradient is written out; weights are read when an :class:`InputGradient` is first used.

    Args:
        nodes: the layers, each after those whose output it takes.
        frozen: promises that weights never change, so that what is made of them is made once.

    Attributes:
        nodes: the layers.
        is_chain: whether each takes what the one before it gives.
    """

    def __init__(self, nodes: Sequence[Node], frozen: bool = False) -> None:
        self.nodes, self.frozen = list(nodes), frozen
        operations = [node.operation for node in self.nodes]
        uses = [source for node in self.nodes for source in node.inputs]
        self._uses: list[tuple[Operation, tuple[bool, bool, bool], Any, int]] = []
        outer = {0}  # values with respect to which the gradient may be the memory that the attack gets
        for i, (node, operation) in enumerate(zip(self.nodes, operations, strict=True)):
            first = node.inputs[0]
            # memory that an operation may write over: what it takes, where nothing else does, and gradients within the
            # network
            alone = first > 0 and uses.count(first) == 1 and operations[first - 1].frees_output
            inner = outer.isdisjoint(node.inputs)
            if not inner and not operation.copies_gradient:
                outer.add(i + 1)
            flags = alone, i == len(nodes) - 1, inner
            self._uses.append((operation, flags, node.inputs if operation.several else first, i + 1))
        self.is_chain = all(source == number - 1 for *_, source, number in self._uses)
        self.copies_gradient = bool(operations) and operations[-1].copies_gradient
        self._prepared: list[Any] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_prepared": None}

    def uses(self, x: Tensor) -> list[Use]:
        """The operations, with memory of one's own for inputs like ``x``."""
        prepared = self._prepared
        if prepared is None:
            prepared = [operation.prepared() for operation, *_ in self._uses]
            # what a CUDA graph uses must be made within, and what is made for a mode is of no use outside
            if self.frozen and x.is_cpu and not is_in_torch_dispatch_mode():
                self._prepared = prepared
        return [
            (operation, Memory(*flags, weights), source, number)
            for (operation, flags, source, number), weights in zip(self._uses, prepared, strict=True)
        ]

    def input_gradient(self, output_gradient: OutputGradient) -> InputGradient:
        """``x -> d loss(params(x)).sum() / dx`` from the gradient of the loss with respect to the parameters.

        Args:
            output_gradient: parameters ``[B, K]`` to the gradient of the loss there.
        """
        return InputGradient(self, output_gradient)


def graph_of(module: nn.Module, frozen: bool = False) -> LayerGraph | None:
    """The graph of a network, or None if it holds what is not written out.

    Args:
        module: takes one tensor.
        frozen: promises that neither its weights nor its layers ever change.
    """
    layers = _chain_of(module)
    return None if layers is None else LayerGraph(chain(layers), frozen)


def _chain_of(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a ``Sequential`` whose gradients are all written out, without those that do nothing; or None."""
    return None if any(changed(each) for each in module.modules()) else layers_of(module, has_gradient)


def traced_graph(
    module: nn.Module, answer: OutputForm, params: Callable[[Tensor], Tensor], inputs: Callable[[int], Tensor]
) -> LayerGraph | None:
    """The graph of a frozen class, or None where it holds what is not written out, or does not agree with the class.

    Args:
        module: takes one tensor, and never changes.
        answer: what it returns.
        params: observations ``[B, *S]`` to the parameters ``[B, K]`` that are made of what it returns.
        inputs: a number of rows to random observations.
    """
    try:
        nodes = trace(module, has_gradient, answer)
    except UnknownCall:
        return None
    graph = LayerGraph(nodes, frozen=True)
    return graph if agrees(graph, params, inputs) else None


def agrees(graph: LayerGraph, params: Callable[[Tensor], Tensor], inputs: Callable[[int], Tensor]) -> bool:
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


def _outputs_and_gradients_agree(graph: LayerGraph, params: Callable[[Tensor], Tensor], x: Tensor) -> tuple[bool, bool]:
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        expected = params(leaf)
        slope = torch.linspace(0, expected.numel(), expected.numel()).cos().to(expected).view_as(expected)
        (gradient,) = torch.autograd.grad(expected, leaf, slope)
    seen: list[Tensor] = []
    found = graph.input_gradient(lambda output: seen.append(output.clone()) or slope)(x.clone())  # type: ignore[func-returns-value]
    # gradients that are zero everywhere say nothing
    return nearly_equal(seen[0], expected.detach()), bool(gradient.any()) and nearly_equal(found, gradient)


def followed(module: nn.Module, graph: LayerGraph | None) -> LayerGraph | None:
    """The graph of a module that is trained elsewhere as it is now: ``graph`` if its layers are still the same."""
    layers = _chain_of(module)
    if layers is None:
        return None
    same = graph is not None and [node.layer for node in graph.nodes] == layers
    return graph if same else LayerGraph(chain(layers))


class InputGradient:
    """``x -> d loss(params(x)).sum() / dx``, for the steps of one attack.

    Args:
        graph: the network.
        output_gradient: parameters ``[B, K]`` to the gradient of the loss with respect to them.

    Attributes:
        overwritable: what a call returns is memory of its own, which the attack may write over.
    """

    overwritable = True

    def __init__(self, graph: LayerGraph, output_gradient: OutputGradient) -> None:
        self.graph, self.output_gradient = graph, output_gradient
        self._rows: tuple[int, torch.dtype] | None = None  # what the memory is made for
        self._forward: list[Use] = []
        self._backward: list[Use] = []

    def rearranged(self, x: Tensor) -> tuple[SpaceToDepth, InputGradient] | None:
        """How observations like ``x`` ``[B, *S]`` are rearranged, and their gradient so; None where it does not pay.

        On a processor it does. What convolutions cost on other devices nobody has measured.
        """
        image = x.dim() == 4 and x.device.type == "cpu"
        layout = picture_layout(self.graph.nodes, tuple(x.shape[1:])) if image else None
        if layout is None:
            return None
        return layout, InputGradient(LayerGraph(rearranged(self.graph.nodes, layout)), self.output_gradient)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # checked first, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return self(x)
        if (x.size(0), x.dtype) != self._rows:
            self._forget(x)
        if not self.graph.is_chain:
            return self._through_graph(x)
        # a chain: forwards, the gradient of the loss with respect to the output, and backwards
        for operation, memory, _, _ in self._forward:
            x = operation.run(x, memory)
        g = self.output_gradient(x)
        if not self.graph.copies_gradient:
            g = g.clone()
        for operation, memory, _, _ in self._backward:
            g = operation.backward(g, memory)
        return g

    def _forget(self, x: Tensor) -> None:
        """Make memory anew: inputs like ``x`` come next."""
        self._rows = len(x), x.dtype
        self._forward = self.graph.uses(x)
        self._backward = self._forward[::-1]

    def _through_graph(self, x: Tensor) -> Tensor:
        values = [x]
        for operation, memory, source, _ in self._forward:
            taken = tuple([values[i] for i in source]) if operation.several else values[source]
            values.append(operation.run(taken, memory))
        g = self.output_gradient(values[-1])
        # backwards: the gradients of all that take a value are added up
        gradients: list[Tensor | None] = [None] * len(values)
        gradients[-1] = g if self.graph.copies_gradient else g.clone()
        for operation, memory, source, number in self._backward:
            found = operation.backward(gradients[number], memory)  # type: ignore[arg-type]  # what takes it came before
            for i, part in zip(source, found, strict=True) if operation.several else ((source, found),):
                before = gradients[i]
                gradients[i] = part if before is None else before.add_(part)
        assert gradients[0] is not None
        return gradients[0]
