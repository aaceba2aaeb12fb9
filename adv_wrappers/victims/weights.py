"""Named weights to layers, every shape checked before it is used."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.core.errors import CardError
from adv_wrappers.core.values import real
from adv_wrappers.victims.recurrent import LSTMPath

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def clip_of(clip: Any, where: str, name: str) -> float | None:
    """What normalised observations are clipped to; :class:`CardError` for what is no number that fits a float32."""
    if clip is None:
        return None
    if not 0 < (real(clip) or 0.0) <= torch.finfo(torch.float32).max:
        raise CardError(f"{where}: {name} must be a finite number above 0 or null, got {clip!r:.80}")
    return float(clip)


class Weights:
    """Weights taken by name; a missing one, a wrong shape and one left over are each a :class:`CardError`."""

    def __init__(self, tensors: dict[str, Tensor], where: str) -> None:
        for name, tensor in tensors.items():
            if not tensor.is_floating_point():
                raise CardError(f"{where}: {name} must hold floats, got {tensor.dtype}")
            if not tensor.numel():  # its shape may say anything
                raise CardError(f"{where}: {name} holds no values, its shape is {tuple(tensor.shape)}")
            if not torch.isfinite(tensor).all():
                raise CardError(f"{where}: {name} holds values that are not finite")
        self.tensors, self.where, self.taken = tensors, where, set[str]()

    def has(self, prefix: str) -> bool:
        """Whether any weight is named ``prefix.*``."""
        return any(name.startswith(prefix + ".") for name in self.tensors)

    def take(self, name: str, *shape: int | None) -> nn.Parameter:
        """One weight; None in ``shape`` allows any size."""
        found = self.tensors.get(name)
        wanted = tuple("any" if size is None else size for size in shape)
        if found is None:
            raise CardError(f"{self.where}: expected {name} of shape {wanted}, got only {self._names()}")
        if found.dim() != len(shape) or any(w is not None and w != f for w, f in zip(shape, found.shape, strict=True)):
            raise CardError(f"{self.where}: expected {name} of shape {wanted}, got {tuple(found.shape)}")
        self.taken.add(name)
        return nn.Parameter(found, requires_grad=False)

    def _names(self) -> str:
        return f"{', '.join(sorted(self.tensors)):.300}"

    def linear(self, prefix: str, inputs: int | None = None, outputs: int | None = None) -> nn.Linear:
        """The layer ``prefix``; made on ``meta`` so that no global random number is drawn for it."""
        weight = self.take(f"{prefix}.weight", outputs, inputs)
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        layer.weight, layer.bias = weight, self.take(f"{prefix}.bias", weight.shape[0])
        return layer

    def mlp(
        self, prefix: str, network: dict[str, Any], inputs: int | None = None, outputs: int | None = None
    ) -> nn.Sequential:
        """``Linear, activation, Linear, ...`` named ``prefix.0, prefix.2, ...``."""
        activation = _ACTIVATIONS.get(str(network.get("activation")))
        if activation is None:
            raise CardError(
                f"{self.where}: activation must be one of {', '.join(_ACTIVATIONS)}, "
                f"got {network.get('activation')!r:.80}"
            )
        count = sum(name.startswith(prefix + ".") and name.endswith(".weight") for name in self.tensors)
        layers: list[nn.Module] = []
        for i in range(max(count, 1)):
            layer = self.linear(f"{prefix}.{2 * i}", inputs, outputs if i == count - 1 else None)
            inputs = layer.out_features
            layers += [layer, activation()]
        hidden = [layer.out_features for layer in layers[:-2:2] if isinstance(layer, nn.Linear)]
        if "hidden" in network and network["hidden"] != hidden:
            raise CardError(
                f"{self.where}: the card says hidden={network['hidden']!s:.80}, the weights of {prefix} say {hidden}"
            )
        return nn.Sequential(*layers[:-1])

    def conv(self, prefix: str, inputs: int | None, stride: int) -> nn.Conv2d:
        """The convolution ``prefix``, without padding."""
        weight = self.take(f"{prefix}.weight", None, inputs, None, None)
        size = (weight.shape[2], weight.shape[3])
        layer = nn.Conv2d(weight.shape[1], weight.shape[0], size, stride, device="meta")
        layer.weight, layer.bias = weight, self.take(f"{prefix}.bias", weight.shape[0])
        return layer

    def lstm(self, prefix: str) -> nn.LSTM:
        """The layers ``prefix.weight_ih_l0``, ``prefix.weight_hh_l0``, two biases, and so on, of one ``nn.LSTM``."""
        count = sum(name.startswith(f"{prefix}.weight_ih_l") for name in self.tensors)
        first = self.take(f"{prefix}.weight_hh_l0", None, None)
        size = first.shape[1]
        inputs: int | None = None
        layer = nn.LSTM(self.take(f"{prefix}.weight_ih_l0", None, None).shape[1], size, max(count, 1), device="meta")
        for i in range(max(count, 1)):
            shapes = {"weight_ih": (4 * size, inputs), "weight_hh": (4 * size, size)}
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(layer, f"{name}_l{i}", self.take(f"{prefix}.{name}_l{i}", *shapes.get(name, (4 * size,))))
            inputs = size
        return layer

    def path(self, prefix: str, inputs: int | None = None, outputs: int | None = None) -> LSTMPath:
        """``prefix.embed``, ``prefix.lstm`` (one layer) and ``prefix.head``."""
        embed, head = self.linear(f"{prefix}.embed", inputs), self.linear(f"{prefix}.head", None, outputs)
        size = head.in_features
        cell = nn.LSTMCell(embed.out_features, size, device="meta")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            shape = (4 * size, {"weight_ih": embed.out_features, "weight_hh": size}.get(name))[
                : 2 if "weight" in name else 1
            ]
            setattr(cell, name, self.take(f"{prefix}.lstm.{name}_l0", *shape))
        return LSTMPath(embed, cell, head)

    def finish(self) -> None:
        """Raise if a weight was not taken: the network is then not what the card says."""
        left = sorted(set(self.tensors) - self.taken)
        if left:
            raise CardError(f"{self.where}: weights that this kind of network does not have: {', '.join(left):.300}")
