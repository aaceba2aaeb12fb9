"""Layers as a card stores them: settings in JSON, and weights by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.errors import CardError

LayerSetting = bool | int | float | str | None | list[int]
WrittenLayer = dict[str, LayerSetting]  # the written form of one layer


class Weights:
    """Weights taken by name; a missing one, a wrong shape and one left over are each a :class:`CardError`.

    Args:
        tensors: by name, floating point, finite, and none of them empty: the shape of an empty one may say anything.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if not tensor.is_floating_point() or not tensor.numel() or not torch.isfinite(tensor).all():
                raise CardError(
                    f"{name} must hold finite floats, got {tensor.dtype} {tuple(tensor.shape)}: {tensor!s:.80}"
                )
        self.tensors, self.taken = tensors, set[str]()

    def take(self, name: str, *shape: int | None) -> nn.Parameter:
        """One weight, frozen; None in ``shape`` allows any size, and no ``shape`` any at all."""
        found = self.tensors.get(name)
        wanted = tuple("any" if size is None else size for size in shape)
        if found is None:
            raise CardError(f"expected {name} of shape {wanted}, got only {', '.join(sorted(self.tensors)):.300}")
        fits = len(shape) == found.dim() and all(w in (None, size) for w, size in zip(shape, found.shape, strict=True))
        if shape and not fits:
            raise CardError(f"expected {name} of shape {wanted}, got {tuple(found.shape)}")
        self.taken.add(name)
        return nn.Parameter(found, requires_grad=False)

    def finish(self) -> None:
        """Raise if a weight was not taken: the network is then not what the card says."""
        left = sorted(set(self.tensors) - self.taken)
        if left:
            raise CardError(f"weights that this network does not have: {', '.join(left):.300}")


@dataclass(frozen=True)
class StoredLayer:
    """One layer of a card.

    Attributes:
        weights: those of the card.
        prefix: of the names of its own.
        settings: what the card says of it beside its kind.
    """

    weights: Weights
    prefix: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def take(self, name: str, *shape: int | None) -> nn.Parameter:
        """One of its weights, frozen; sizes as :meth:`Weights.take` takes them."""
        return self.weights.take(f"{self.prefix}.{name}", *shape)

    def part(self, name: str) -> StoredLayer:
        """A layer within this one, which has no settings."""
        return replace(self, prefix=f"{self.prefix}.{name}", settings={})

    def filled(self, kind: Callable[..., nn.Module], *sizes: Any) -> nn.Module:
        """A layer of torch of these sizes and its settings, around its weights; no random number is drawn for it."""
        layer = kind(*sizes, **self.settings, device="meta")
        for name, blank in list(layer.named_parameters()):
            setattr(layer, name, self.take(name, *blank.shape))
        return layer
