"""Networks as graphs of layers: what a layer takes is the network's input, or what layers before it gave.

A ``Sequential`` is a chain. Residual sums, heads side by side and what else a ``forward`` does with several values are
:class:`Join` and the other operations here, next to the layers of torch and of :mod:`.layers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Literal

from torch import Tensor, nn

from adv_wrappers.networks.layers import AppendLogStd, Clip, Normalize, QuantileMean, TwoLogits
from adv_wrappers.networks.spec import hooked
from adv_wrappers.networks.tracing import flattened

ROWS = -2  # among the sizes of a Reshape: as many as the input has


@dataclass(frozen=True, eq=False)
class Join:
    """What is made of several values.

    Attributes:
        how: ``"sum"``, ``"difference"`` and ``"product"`` of two, or ``"concatenate"`` for any number.
        axis: along which values are put side by side.
        constants: tensors between the values that are put side by side, by their place; as many rows as the values.
    """

    how: Literal["sum", "difference", "product", "concatenate"]
    axis: int = -1
    constants: tuple[tuple[int, Tensor], ...] = ()


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """A constant added to a value, a constant times a value, or a value divided by a constant.

    Attributes:
        how: ``"add"``, ``"multiply"`` or ``"divide"``.
    """

    how: str
    by: Tensor | float


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean over axes."""

    axes: tuple[int, ...]
    keep: bool


@dataclass(frozen=True, eq=False)
class Part:
    """``getattr(x, method)(*arguments)[index]``, some elements of a value; ``x[index]`` without a method.

    Attributes:
        method: ``"chunk"``, ``"split"`` or ``""``.
    """

    method: str
    arguments: tuple[int, ...]
    index: int | tuple[int | slice | EllipsisType, ...]


@dataclass(frozen=True, eq=False)
class Reshape:
    """The same elements in the same order, ``getattr(x, method)(*sizes)``.

    Attributes:
        method: ``"view"``, ``"reshape"``, ``"flatten"``, ``"unsqueeze"`` or ``"squeeze"``.
    """

    method: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Permute:
    """Axes in another order."""

    axes: tuple[int, ...]


Layer = nn.Module | Join | Arithmetic | Mean | Part | Reshape | Permute

FROM_OUTPUT = (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid, nn.Hardtanh)  # slopes that follow from the output
FROM_INPUT = (nn.SiLU, nn.GELU, nn.Softplus, Clip)  # and those that take the input
KNOWN = (
    nn.Linear, nn.Conv2d, nn.LayerNorm, nn.MaxPool2d, nn.Flatten, *FROM_OUTPUT, *FROM_INPUT,
    Normalize, AppendLogStd, QuantileMean, TwoLogits,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Node:
    """A layer and the numbers of the values that it takes: 0 is the network's input, node i makes value i + 1."""

    layer: Layer
    inputs: tuple[int, ...]


def known(layer: nn.Module) -> bool:
    """Whether the gradient of a layer is written out, in :mod:`.layer_passes`."""
    if type(layer) not in KNOWN or changed(layer):
        return False
    if isinstance(layer, nn.Conv2d):
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if isinstance(layer, nn.MaxPool2d):
        return not layer.return_indices
    if isinstance(layer, nn.ELU):
        return layer.alpha >= 0  # else the slope does not follow from the output
    if isinstance(layer, nn.LeakyReLU):
        return layer.negative_slope >= 0
    return True


def changed(layer: nn.Module) -> bool:
    """Whether a layer does something else than its type says: by hooks, or by a forward of its own."""
    return hooked(layer) or bool(layer._backward_hooks or layer._backward_pre_hooks) or "forward" in vars(layer)


def does_nothing(layer: nn.Module) -> bool:
    """Whether a layer leaves its input as it is: dropout does, once a network is trained."""
    plain = type(layer) in (nn.Identity, nn.Dropout, nn.Dropout2d) and not changed(layer)
    return plain and (isinstance(layer, nn.Identity) or not layer.training)


def chain_of(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a ``Sequential`` whose gradients are all written out, without those that do nothing; or None."""
    if any(changed(each) for each in module.modules()):
        return None
    layers = [layer for layer in flattened(module) if not does_nothing(layer)]
    return layers if all(map(known, layers)) else None


def chain(layers: Sequence[Layer]) -> list[Node]:
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
