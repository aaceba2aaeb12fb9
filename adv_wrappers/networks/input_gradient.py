"""Gradients of a loss with respect to a network's input, written out layer by layer, without autograd.

An attack computes K times the gradient of one loss at inputs of one shape. No graph is built for that, no gradient of
a weight is considered, and what one step wrote, the next writes over: activations and inner gradients are allocated
once an attack, and of a small network whose weights never change once and for all. Small networks spend half the time
(``benchmarks/attacks.py``). Which layers there are, and what is done with several values, is in :mod:`.graph`; how
each is computed is in :mod:`.layer_passes`, and the layout that convolutions prefer in :mod:`.space_to_depth`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from adv_wrappers.networks.graph import Node, chain, chain_of
from adv_wrappers.networks.graph_passes import Passes
from adv_wrappers.networks.space_to_depth import SpaceToDepth, layout_of
from adv_wrappers.networks.tracing import Answer, agrees, traced

OutputGradient = Callable[[Tensor], Tensor]  # of a loss: the network's output [B, K] to the gradient there, [B, K]
MOST_HELD = 2**20  # bytes of the memory that a victim holds between two attacks, for each of two at a time


class LayerGraph:
    """A network whose input gradient is written out; weights are read when an :class:`InputGradient` is made.

    Args:
        nodes: the layers, each after those whose output it takes.
        frozen: promises that weights never change, so that what is made of them is made once.

    Attributes:
        nodes: the layers.
    """

    def __init__(self, nodes: Sequence[Node], frozen: bool = False) -> None:
        self.nodes, self.frozen = list(nodes), frozen
        self._cache: dict[Hashable, Tensor] = {}
        self._idle: dict[Hashable, list[Passes]] = {}
        layers = [node.layer for node in self.nodes if isinstance(node.layer, nn.Module)]
        weights = [weight for layer in layers for weight in layer.parameters()]
        # what a CUDA graph writes to must be made within
        self._keeps = frozen and bool(weights) and all(weight.device.type == "cpu" for weight in weights)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_cache": {}, "_idle": {}}

    def input_gradient(self, output_gradient: OutputGradient, dtype: torch.dtype | None = None) -> InputGradient:
        """``x -> d loss(params(x)).sum() / dx`` from the gradient of the loss with respect to the parameters.

        Args:
            output_gradient: parameters ``[B, K]`` to the gradient of the loss there.
            dtype: what layers compute in, by default that of their weights.
        """
        return InputGradient(self, output_gradient, dtype=dtype)

    def take(self, dtype: torch.dtype | None, layout: SpaceToDepth | None) -> Passes:
        """Passes that nobody else uses; see :meth:`give_back`."""
        reuses = self._reuses()
        if reuses:
            try:
                return self._idle[dtype, layout].pop()
            except (KeyError, IndexError):
                pass
        passes = Passes(self.nodes, layout, dtype, self._cached)
        passes.reusable = reuses
        return passes

    def give_back(self, passes: Passes, dtype: torch.dtype | None, layout: SpaceToDepth | None) -> None:
        """Keep passes for the next attack, and the memory of a small network."""
        if not passes.reusable or not self._reuses():
            return
        idle = self._idle.setdefault((dtype, layout), [])
        if len(idle) < 2:
            passes.release(MOST_HELD)
            idle.append(passes)

    def _reuses(self) -> bool:
        # modes watch what an attack allocates, and tensors made in inference mode are of no use outside
        return self._keeps and not torch.is_inference_mode_enabled() and not is_in_torch_dispatch_mode()

    def _cached(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What ``make`` makes of the weights; of frozen ones once."""
        if not self.frozen:
            return make()
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


def graph_of(module: nn.Module, frozen: bool = False) -> LayerGraph | None:
    """The graph of a network, or None if it holds what is not written out here.

    Args:
        module: takes one tensor.
        frozen: promises that neither its weights nor its layers ever change.
    """
    layers = chain_of(module)
    return None if layers is None else LayerGraph(chain(layers), frozen)


def traced_graph(
    module: nn.Module, answer: Answer, params: Callable[[Tensor], Tensor], inputs: Callable[[int], Tensor]
) -> LayerGraph | None:
    """The graph of a frozen class, or None where it holds what is not written out, or does not agree with the class.

    Args:
        module: takes one tensor, and never changes.
        answer: what it returns.
        params: observations ``[B, *S]`` to the parameters ``[B, K]`` that are made of what it returns.
        inputs: a number of rows to random observations.
    """
    nodes = traced(module, answer)
    if nodes is None or not agrees(LayerGraph(nodes), params, inputs):
        return None
    return LayerGraph(nodes, frozen=True)


def followed(module: nn.Module, graph: LayerGraph | None) -> LayerGraph | None:
    """The graph of a module that is trained elsewhere as it is now: ``graph`` if its layers are still the same."""
    layers = chain_of(module)
    if layers is None:
        return None
    same = graph is not None and [node.layer for node in graph.nodes] == layers
    return graph if same else LayerGraph(chain(layers))


class InputGradient:
    """``x -> d loss(params(x)).sum() / dx``, for the steps of one attack.

    Args:
        graph: the network.
        output_gradient: parameters ``[B, K]`` to the gradient of the loss with respect to them.
        layout: how the input is rearranged; None where it is not.
        dtype: what the layers compute in, by default that of their weights. Input and result keep theirs.

    Attributes:
        overwritable: whether what a call returns is memory of its own, which the attack may write over.
    """

    def __init__(
        self,
        graph: LayerGraph,
        output_gradient: OutputGradient,
        layout: SpaceToDepth | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.graph, self.output_gradient, self.layout, self.dtype = graph, output_gradient, layout, dtype
        self.passes = graph.take(dtype, layout)
        self.overwritable = self.passes.overwritable

    def __del__(self) -> None:
        if (passes := vars(self).get("passes")) is not None:
            self.graph.give_back(passes, self.dtype, self.layout)

    def rearranged(self, x: Tensor) -> tuple[SpaceToDepth, InputGradient] | None:
        """How observations like ``x`` ``[B, *S]`` are rearranged, and their gradient so; None where it does not pay.

        On a processor it does. What convolutions cost on other devices nobody has measured.
        """
        image = x.dim() == 4 and x.device.type == "cpu"
        layout = layout_of(self.graph.nodes, tuple(x.shape[1:]), len(x)) if image else None
        if layout is None:
            return None
        return layout, InputGradient(self.graph, self.output_gradient, layout, self.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # checked first, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return self(x)
        passes, dtype = self.passes, self.dtype
        y = x if dtype is None else x.to(dtype)
        if (len(y), y.dtype) != passes.rows:
            passes.resize(y)
        if passes.chain is None:
            y = passes.forward(y)
        else:
            for each in passes.chain:
                y = each.forward(y)
        # the loss itself is always computed exactly
        g = self.output_gradient(y) if dtype is None else self.output_gradient(y.to(x.dtype)).to(dtype)
        if passes.reversed is None:
            g = passes.backward(g)
        else:
            for each in passes.reversed:
                g = each.backward(g)
        return g if dtype is None else g.to(x.dtype)
