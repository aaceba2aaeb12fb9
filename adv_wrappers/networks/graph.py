"""Networks as graphs of layers: what a layer takes is the network's input, or what layers before it gave.

A ``Sequential`` is a chain. Residual sums, heads side by side and what else a ``forward`` does with several values are
:class:`.Join` and other operations without a layer. Gradients (:mod:`.input_gradient`) and bounds
(:mod:`adv_wrappers.bounds`) are computed on these graphs, by the :mod:`operations <adv_wrappers.networks.operations>`
of their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from adv_wrappers.networks.operations.lookup import does_nothing, operation_of
from adv_wrappers.networks.operations.operation import NodeLayer, Operation, hooked


@dataclass(frozen=True, eq=False)
class Node:
    """A layer and the numbers of the values that it takes: 0 is the network's input, node i makes value i + 1."""

    layer: NodeLayer
    inputs: tuple[int, ...]

    @cached_property
    def operation(self) -> Operation:
        """The operation of the layer, which has to have one."""
        found = operation_of(self.layer)
        assert found is not None
        return found


def flattened(module: nn.Module) -> Iterator[nn.Module]:
    """The modules in a ``Sequential``, nested as one likes, in order; any other module is one itself."""
    own = isinstance(module, nn.Sequential) and getattr(module.forward, "__func__", None) is nn.Sequential.forward
    if own and not hooked(module):
        for child in module._modules.values():  # children() leaves out the second use of one shared activation
            assert child is not None
            yield from flattened(child)
    else:
        yield module


def layers_of(module: nn.Module, is_layer: Callable[[nn.Module], bool]) -> list[nn.Module] | None:
    """The layers of a ``Sequential`` without those that do nothing; None where one of them is none by ``is_layer``."""
    layers = [layer for layer in flattened(module) if not does_nothing(layer)]
    return layers if all(map(is_layer, layers)) else None


def chain(layers: Sequence[NodeLayer]) -> list[Node]:
    """The graph of layers one after the other."""
    return [Node(layer, (i,)) for i, layer in enumerate(layers)]


def needed(nodes: Sequence[Node], result: int) -> list[Node]:
    """The nodes that the value number ``result`` depends on, numbered anew; it becomes the last value."""
    wanted = {result}
    for i in range(len(nodes) - 1, -1, -1):
        if i + 1 in wanted:
            wanted.update(nodes[i].inputs)
    # those nodes in their order, with new numbers
    number, kept = {0: 0}, list[Node]()
    for i, node in enumerate(nodes):
        if i + 1 in wanted:
            kept.append(Node(node.layer, tuple(number[each] for each in node.inputs)))
            number[i + 1] = len(kept)
    return kept


class GraphNetwork(nn.Module):
    """A graph as a module, ``[B, *S]`` to the last of its values.

    Args:
        nodes: each after those whose output it takes. Layers are shared, not copied.

    Attributes:
        nodes: the nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__()
        self.nodes = list(nodes)
        layers = (node.layer for node in nodes)
        self.layers = nn.ModuleList(dict.fromkeys(layer for layer in layers if isinstance(layer, nn.Module)))

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for node in self.nodes:
            values.append(node.layer(*(values[i] for i in node.inputs)))
        return values[-1]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GraphNetwork:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self.nodes = [
                Node(layer if isinstance(layer := node.layer, nn.Module) else layer.with_tensors(fn), node.inputs)
                for node in self.nodes
            ]
        return self
