"""Named tensors to layers: every weight is taken by its name, and its shape is checked before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from adv_wrappers.errors import CardError


class Weights:
    """Weights taken by name; a missing one, a wrong shape and one left over are each a :class:`CardError`.

    Args:
        tensors: by name, floating point, finite, and none of them empty.
        where: the file, for error messages.
    """

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
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
        """One weight, frozen; None in ``shape`` allows any size."""
        found = self.tensors.get(name)
        wanted = tuple("any" if size is None else size for size in shape)
        if found is None:
            names = f"{', '.join(sorted(self.tensors)):.300}"
            raise CardError(f"{self.where}: expected {name} of shape {wanted}, got only {names}")
        if found.dim() != len(shape) or any(w is not None and w != f for w, f in zip(shape, found.shape, strict=True)):
            raise CardError(f"{self.where}: expected {name} of shape {wanted}, got {tuple(found.shape)}")
        self.taken.add(name)
        return nn.Parameter(found, requires_grad=False)

    def linear(
        self, prefix: str, inputs: int | None = None, outputs: int | None = None, bias: bool = True
    ) -> nn.Linear:
        """The layer ``prefix``; made on ``meta`` so that no global random number is drawn for it."""
        weight = self.take(f"{prefix}.weight", outputs, inputs)
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias, device="meta")
        layer.weight = weight
        if bias:
            layer.bias = self.take(f"{prefix}.bias", weight.shape[0])
        return layer

    def conv(
        self, prefix: str, inputs: int | None, stride: int | tuple[int, int], padding: tuple[int, int] = (0, 0),
        dilation: tuple[int, int] = (1, 1), groups: int = 1, bias: bool = True,
    ) -> nn.Conv2d:  # fmt: skip
        """The convolution ``prefix``, by default without padding."""
        weight = self.take(f"{prefix}.weight", None, None if inputs is None else inputs // groups, None, None)
        outputs, channels, rows, columns = weight.shape
        if outputs % groups:
            raise CardError(f"{self.where}: {prefix} has {outputs} outputs, which {groups} groups do not divide")
        layer = nn.Conv2d(
            channels * groups, outputs, (rows, columns), stride, padding, dilation, groups, bias, device="meta"
        )
        layer.weight = weight
        if bias:
            layer.bias = self.take(f"{prefix}.bias", outputs)
        return layer

    def lstm(self, prefix: str) -> nn.LSTM:
        """The layers ``prefix.weight_ih_l0``, ``prefix.weight_hh_l0``, two biases, and so on, of one ``nn.LSTM``."""
        count = max(sum(name.startswith(f"{prefix}.weight_ih_l") for name in self.tensors), 1)
        size = self.take(f"{prefix}.weight_hh_l0", None, None).shape[1]
        first = self.take(f"{prefix}.weight_ih_l0", None, None).shape[1]
        layer, inputs = nn.LSTM(first, size, count, device="meta"), first
        for i in range(count):
            for name, weight in self._lstm_weights(prefix, i, inputs, size).items():
                setattr(layer, f"{name}_l{i}", weight)
            inputs = size
        return layer

    def lstm_cell(self, prefix: str, inputs: int, size: int) -> nn.LSTMCell:
        """The only layer of an ``nn.LSTM`` as a cell."""
        cell = nn.LSTMCell(inputs, size, device="meta")
        for name, weight in self._lstm_weights(prefix, 0, inputs, size).items():
            setattr(cell, name, weight)
        return cell

    def _lstm_weights(self, prefix: str, layer: int, inputs: int, size: int) -> dict[str, nn.Parameter]:
        shapes = {
            "weight_ih": (4 * size, inputs), "weight_hh": (4 * size, size), "bias_ih": (4 * size,),
            "bias_hh": (4 * size,),
        }  # fmt: skip
        return {name: self.take(f"{prefix}.{name}_l{layer}", *shape) for name, shape in shapes.items()}

    def finish(self) -> None:
        """Raise if a weight was not taken: the network is then not what the card says."""
        left = sorted(set(self.tensors) - self.taken)
        if left:
            raise CardError(f"{self.where}: weights that this kind of network does not have: {', '.join(left):.300}")


def digest(modules: Iterable[nn.Module]) -> str:
    """sha256 over names, shapes, dtypes and bytes of all weights and buffers (hexadecimal)."""
    found = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            # contiguous() would leave any stride to a side of length 1
            array = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            found.update(f"{name}{tuple(array.shape)}{array.dtype}".encode())
            found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
