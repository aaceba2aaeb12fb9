"""The operation of a layer; importing this module makes all of them known."""

from __future__ import annotations

import functools
from typing import Any

from torch import nn

from adv_wrappers.networks import policy_layers as policy_layers
from adv_wrappers.networks.operations import activations as activations
from adv_wrappers.networks.operations import batch_norm as batch_norm
from adv_wrappers.networks.operations import gelu_silu as gelu_silu
from adv_wrappers.networks.operations import layer_norm as layer_norm
from adv_wrappers.networks.operations import linear as linear
from adv_wrappers.networks.operations import lstm as lstm
from adv_wrappers.networks.operations import pooling as pooling
from adv_wrappers.networks.operations import s_shaped as s_shaped
from adv_wrappers.networks.operations import shapes as shapes
from adv_wrappers.networks.operations.operation import OPERATIONS as OPERATIONS
from adv_wrappers.networks.operations.operation import NodeLayer, Operation, changed


def operation_of(layer: NodeLayer) -> Operation | None:
    """The operation of a layer: that of its type, or of the type whose forward it has."""
    if isinstance(layer, Operation) and not isinstance(layer, nn.Module):
        return layer
    found = operation_type(layer)
    if found is None:
        return None
    return layer if isinstance(layer, found) else found(layer)  # type: ignore[call-arg]  # of a LayerOperation


def operation_type(layer: nn.Module) -> type[Operation] | None:
    """The type of the operation of a layer."""
    kind: Any = type(layer)
    return _of_type(kind, len(OPERATIONS))


@functools.lru_cache
def _of_type(kind: Any, known: int) -> type[Operation] | None:
    """The operation of a type of layers, of as many as are known now: it is looked for in every call."""
    same = (base for base in kind.__mro__ if base in OPERATIONS and base.forward is kind.forward)
    return next((OPERATIONS[base] for base in same), None)


def own_operation(layer: NodeLayer) -> Operation | None:
    """The operation of a layer of exactly that type, which nothing changes; else None."""
    if isinstance(layer, nn.Module) and (type(layer) not in OPERATIONS or changed(layer)):
        return None
    return operation_of(layer)


def has_gradient(layer: NodeLayer) -> bool:
    """Whether the gradient of a layer is written out."""
    found = own_operation(layer)
    return found is not None and found.has_gradient()


def does_nothing(layer: nn.Module) -> bool:
    """Whether a layer leaves its input as it is: dropout does, once a network is trained."""
    found = own_operation(layer)
    return found is not None and found.does_nothing()
