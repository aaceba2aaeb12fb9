"""Networks as graphs of layers: what a layer takes is the network's input, or what layers before it gave.

A ``Sequential`` is a chain. Residual sums, heads side by side and what else a ``forward`` does with several values are
:class:`Join` and the other operations here, next to the layers of torch and of :mod:`.layers`. Gradients
(:mod:`.input_gradient`) and bounds (:mod:`adv_wrappers.bounds`) are computed on these graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Literal

import torch
from torch import Tensor, nn

SAME_ROWS = -2  # among the sizes of a Reshape: as many as the input has


class Operation:
    """What a forward does with values beside applying layers; called with them, it returns the new one."""

    def __call__(self, *values: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Join(Operation):
    """What is made of several values.

    Attributes:
        how: ``"sum"``, ``"difference"`` and ``"product"`` of two, or ``"concatenate"`` for any number.
        axis: along which values are put side by side.
        constants: tensors between the values that are put side by side, by their place; as many rows as the values.
    """

    how: Literal["sum", "difference", "product", "concatenate"]
    axis: int = -1
    constants: tuple[tuple[int, Tensor], ...] = ()

    def __call__(self, *values: Tensor) -> Tensor:
        if self.how == "concatenate":
            return torch.cat(self.with_constants(values), self.axis)
        x, y = values
        return x + y if self.how == "sum" else x - y if self.how == "difference" else x * y

    def with_constants(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The values that are put side by side, and the constants in their places."""
        parts = list(values)
        for at, each in self.constants:
            parts.insert(at, each.to(values[0].dtype).expand(len(values[0]), *each.shape[1:]))
        return parts


@dataclass(frozen=True, eq=False)
class Arithmetic(Operation):
    """A constant added to a value, a constant times a value, or a value divided by a constant.

    Attributes:
        how: ``"add"``, ``"multiply"`` or ``"divide"``.
    """

    how: str
    by: Tensor | float

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        return x + self.by if self.how == "add" else x * self.by if self.how == "multiply" else x / self.by


@dataclass(frozen=True, eq=False)
class Mean(Operation):
    """The mean over axes."""

    axes: tuple[int, ...]
    keep: bool

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        return x.mean(self.axes, self.keep)


@dataclass(frozen=True, eq=False)
class Slice(Operation):
    """``getattr(x, method)(*arguments)[index]``, some elements of a value; ``x[index]`` without a method.

    Attributes:
        method: ``"chunk"``, ``"split"`` or ``""``.
    """

    method: str
    arguments: tuple[int, ...]
    index: int | tuple[int | slice | EllipsisType, ...]

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        whole: Tensor = getattr(x, self.method)(*self.arguments) if self.method else x
        return whole[self.index]


@dataclass(frozen=True, eq=False)
class Reshape(Operation):
    """The same elements in the same order, ``getattr(x, method)(*sizes)``.

    Attributes:
        method: ``"view"``, ``"reshape"``, ``"flatten"``, ``"unsqueeze"`` or ``"squeeze"``.
    """

    method: str
    sizes: tuple[int, ...]

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        sizes = (len(x) if size == SAME_ROWS and self.method in ("view", "reshape") else size for size in self.sizes)
        return getattr(x, self.method)(*sizes)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Permute(Operation):
    """Axes in another order."""

    axes: tuple[int, ...]

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        return x.permute(self.axes)


NodeLayer = nn.Module | Operation


@dataclass(frozen=True, eq=False)
class Node:
    """A layer and the numbers of the values that it takes: 0 is the network's input, node i makes value i + 1."""

    layer: NodeLayer
    inputs: tuple[int, ...]


def hooked(layer: nn.Module) -> bool:
    """Whether a hook may change what a layer takes or answers."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def changed(layer: nn.Module) -> bool:
    """Whether a layer does something else than its type says: by hooks, or by a forward of its own."""
    return hooked(layer) or bool(layer._backward_hooks or layer._backward_pre_hooks) or "forward" in vars(layer)


def has_statistics(layer: nn.BatchNorm1d | nn.BatchNorm2d) -> bool:
    """Whether a batch normalisation normalises by statistics of its own, as it does once a network is trained."""
    return not layer.training and layer.running_mean is not None


def factor_and_offset(layer: nn.BatchNorm1d | nn.BatchNorm2d, dimensions: int) -> tuple[Tensor, Tensor]:
    """What a batch normalisation that :func:`has_statistics` multiplies every channel by, and then adds to it.

    Args:
        layer: the layer.
        dimensions: those of its input, ``[B, C]`` or ``[B, C, ...]``, with which both broadcast.
    """
    assert layer.running_mean is not None and layer.running_var is not None
    factor = (layer.running_var + layer.eps).rsqrt()
    factor = factor if layer.weight is None else factor * layer.weight
    offset = -layer.running_mean * factor
    offset = offset if layer.bias is None else offset + layer.bias
    shape = -1, *[1] * (dimensions - 2)
    return factor.view(shape), offset.view(shape)


def does_nothing(layer: nn.Module) -> bool:
    """Whether a layer leaves its input as it is: dropout does, once a network is trained."""
    plain = type(layer) in (nn.Identity, nn.Dropout, nn.Dropout2d) and not changed(layer)
    return plain and (isinstance(layer, nn.Identity) or not layer.training)


def flattened(module: nn.Module) -> Iterator[nn.Module]:
    """The modules in a ``Sequential``, nested as one likes, in order; any other module is one itself."""
    # iterating a Sequential and not its children(), which leave out the second use of one shared activation
    if type(module) is nn.Sequential and not hooked(module):
        for child in module:
            yield from flattened(child)
    else:
        yield module


def chain(layers: Sequence[NodeLayer]) -> list[Node]:
    """The graph of layers one after the other."""
    return [Node(layer, (i,)) for i, layer in enumerate(layers)]


def needed(nodes: Sequence[Node], result: int) -> list[Node]:
    """The nodes that the value number ``result`` depends on, numbered anew; it becomes the last value."""
    wanted = {result}
    for i in range(len(nodes) - 1, -1, -1):
        if i + 1 in wanted:
            wanted.update(nodes[i].inputs)
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
            self.nodes = [Node(_with_constants(node.layer, fn), node.inputs) for node in self.nodes]
        return self


def _with_constants(layer: NodeLayer, fn: Callable[[Tensor], Tensor]) -> NodeLayer:
    """An operation with other constants; a layer as it is."""
    if isinstance(layer, Arithmetic) and isinstance(layer.by, Tensor):
        return replace(layer, by=fn(layer.by))
    if isinstance(layer, Join):
        return replace(layer, constants=tuple((at, fn(each)) for at, each in layer.constants))
    return layer
