"""The written form of a network: a JSON list of layers, and their weights by name.

``[{"kind": "conv", "stride": 4}, {"kind": "relu"}, {"kind": "flatten"}, {"kind": "linear"}]`` says what a network
computes; the sizes follow from the weights ``PREFIX.I.NAME``, where ``I`` is the place of the layer in the list.
Settings that are torch's defaults are left out. :func:`describe` writes a network down, :func:`build` makes it from
what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from adv_wrappers.errors import CardError
from adv_wrappers.networks.card_format import Weights
from adv_wrappers.networks.operations.lookup import operation_of
from adv_wrappers.networks.operations.operation import KINDS, OPERATIONS, WrittenLayer, hooked

MOST_LAYERS = 1000  # of one network; it takes a second to build so many
Tensors = dict[str, Tensor]


def kinds() -> tuple[str, ...]:
    """The kinds of layers that can be written down, sorted."""
    return tuple(sorted(KINDS))


def kind_of(layer: nn.Module) -> str | None:
    """The kind under which a layer is written; None for another type, a subclass, or a layer with a hook."""
    found = OPERATIONS.get(type(layer))
    return None if found is None or hooked(layer) else found.kind


def describe(layers: Iterable[nn.Module], prefix: str) -> tuple[list[WrittenLayer], Tensors]:
    """The written form of layers in a row: the list for JSON, and their weights as ``PREFIX.I.NAME``.

    Weights are those of the layers themselves: they are copied when they are saved.

    Raises:
        CardError: for a layer that has no written form.
    """
    written: list[WrittenLayer] = []
    tensors: Tensors = {}
    for i, layer in enumerate(layers):
        kind, operation = kind_of(layer), operation_of(layer)
        if kind is None or operation is None:
            raise CardError(f"networks of the layers {', '.join(kinds())} can be written, got {type(layer).__name__}")
        written.append({"kind": kind, **operation.settings()})
        tensors |= {f"{prefix}.{i}.{name}": tensor for name, tensor in layer.state_dict().items()}
    return written, tensors


def build(
    written: Sequence[object], weights: Weights, prefix: str, inputs: int | None = None, outputs: int | None = None
) -> nn.Sequential:
    """The network that :func:`describe` wrote down, frozen, around the weights ``PREFIX.I.NAME``.

    Args:
        inputs, outputs: sizes of the first and the last layer, where they are known: of vectors, or channels.

    Raises:
        CardError: for unknown layers, and weights that are missing, or whose shape does not follow from the layers
            before. Settings that a layer does not have, or cannot, are whatever error its constructor raises.
    """
    if len(written) > MOST_LAYERS:
        raise CardError(f"at most {MOST_LAYERS} layers are read, got {len(written)}")
    layers: list[nn.Module] = []
    for i, about in enumerate(written):
        kind = KINDS.get(str(about.get("kind"))) if isinstance(about, Mapping) else None
        if not isinstance(about, Mapping) or kind is None:
            raise CardError(f"expected layers of the kinds {', '.join(kinds())}, got {about!r:.80}")
        settings = {name: value for name, value in about.items() if name != "kind"}
        last = outputs if i == len(written) - 1 else None
        layer = kind.build(weights, f"{prefix}.{i}", inputs, last, **settings)
        layers.append(layer)
        operation = operation_of(layer)
        inputs = None if operation is None else operation.width(inputs)
    return nn.Sequential(*layers)


def copy_of(layers: Iterable[nn.Module]) -> nn.Sequential:
    """The same layers, frozen, around copies of their weights; no random number is drawn for it.

    Raises:
        CardError: for a layer that has no written form, and for weights that are not finite.
    """
    written, tensors = describe(layers, "net")
    return build(written, Weights({name: t.detach().clone() for name, t in tensors.items()}), "net")


def output_shape(layers: Iterable[nn.Module], shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Shape of what layers make of one input of ``shape``, found without computing anything; of an LSTM, of one step.

    Raises:
        CardError: where a layer would answer with more than ``most`` numbers; for layers that do not fit each other or
            the shape, whatever error they raise.
    """
    x = torch.empty(1, *shape, device="meta")
    for layer in layers:
        state = {name: tensor.to("meta", x.dtype) for name, tensor in layer.state_dict().items()}
        with torch.no_grad():
            x = functional_call(layer, state, (x,))
        x = x[0] if isinstance(layer, nn.LSTM) else x  # beside it the state
        if x.numel() > most:
            raise CardError(f"{layer} would answer with {x.numel()} numbers, at most {most} are allowed")
    return tuple(x.shape[1:])
