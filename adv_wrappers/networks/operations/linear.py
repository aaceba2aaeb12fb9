"""Linear layers and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input

from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.operations.linear_bounds import Bounds, Shape, centre_and_radius, check_width, largest, takes
from adv_wrappers.networks.operations.operation import LayerOperation, Memory, register
from adv_wrappers.networks.operations.stored_layer import StoredLayer, WrittenLayer

_conv_backward = torch.ops.aten.convolution_backward.default


class Weighted(LayerOperation):
    """A sum of the inputs times weights, plus a bias."""

    frees_output = True
    copies_gradient = True

    def applied(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The same with another weight and bias."""
        raise NotImplementedError

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        weight = self.layer.weight
        middle, spread = centre_and_radius(low, high)
        centre = self.applied(middle, weight, self.layer.bias)
        radius = self.applied(spread, weight.abs(), None)
        return centre - radius, centre + radius

    def is_affine(self) -> bool:
        return True

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        weight, bias = self.layer.weight, self.layer.bias
        sums = self.applied(largest(*boxes[0]), weight.abs(), None if bias is None else bias.abs())
        return self.applied(variances[0], weight.square(), None) + (eps * sums).square()

    def settings(self) -> WrittenLayer:
        return {"bias": False} if self.layer.bias is None else {}


@register
class Linear(Weighted):
    """``x @ weight.T + bias``.

    The last one of a network is computed as its transpose ``[K, B]``: a softmax over the first axis of that is ten
    times as fast as one over a last axis of six.
    """

    layers = (nn.Linear,)
    kind = "linear"
    weighted_calls: ClassVar = {functional.linear: ("input", "weight", "bias")}
    takes_rows = True

    @classmethod
    def around(cls, weights: dict[str, Tensor], **settings: Any) -> nn.Module:
        outputs, inputs = weights["weight"].shape
        return nn.Linear(inputs, outputs, **settings)

    def prepared(self) -> Any:
        weight, bias = self.layer.weight, self.layer.bias
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        return weight, weight.t(), bias, bias[:, None]

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        weight, transposed, bias, column = memory.weights
        if memory.out is None and x.dim() != 2:
            return functional.linear(x, weight, bias)
        if not memory.last:
            memory.out = out = torch.addmm(bias, x, transposed, out=memory.out)
            return out
        if memory.out is None:
            memory.out = x.new_empty(len(weight), len(x))
            memory.kept = memory.out.t()
        torch.addmm(column, weight, x.t(), out=memory.out)
        return memory.kept  # type: ignore[no-any-return]

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        weight: Tensor = memory.weights[0]
        if memory.out is None:
            return g @ weight
        gradient = torch.mm(g, weight, out=memory.gradient)
        if memory.inner:
            memory.gradient = gradient
        return gradient

    def applied(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    def pull_back(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Sequence[Tensor], Tensor]:
        if len(shapes[0]) > 1 or rows.dim() != 3:
            return super().pull_back(rows, shapes)
        check_width(rows, self.layer.out_features)
        bias = self.layer.bias
        return [rows @ self.layer.weight], rows.new_zeros(()) if bias is None else rows @ bias

    def shape_after(self, shape: Shape) -> Shape:
        takes(shape[-1:], self.layer.in_features)
        return *shape[:-1], self.layer.out_features

    def rows_of(self, chosen: Tensor | slice, shape: Shape) -> tuple[Tensor, Tensor] | None:
        if len(shape) != 1:
            return None
        # an identity matrix times the weight is the weight
        weight, bias = self.layer.weight[chosen], self.layer.bias
        offset = weight.new_zeros(()) if bias is None else bias[chosen]
        return weight[None] if isinstance(chosen, slice) else weight, offset

    @classmethod
    def build(cls, stored: StoredLayer) -> nn.Module:
        outputs, inputs = stored.take("weight", None, None).shape
        return stored.filled(nn.Linear, inputs, outputs)


@register
class Conv2d(Weighted):
    """A convolution in two dimensions."""

    layers = (nn.Conv2d,)
    kind = "conv"
    weighted_calls: ClassVar = {
        functional.conv2d: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    }

    @classmethod
    def around(cls, weights: dict[str, Tensor], **settings: Any) -> nn.Module:
        outputs, inputs, *kernel = weights["weight"].shape
        return nn.Conv2d(inputs * settings.get("groups", 1), outputs, (kernel[0], kernel[1]), **settings)

    def has_gradient(self) -> bool:
        return self.layer.padding_mode == "zeros" and not isinstance(self.layer.padding, str)

    def prepared(self) -> Any:
        return self.layer.weight, self.layer.bias

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        memory.kept = x
        return self.applied(x, *memory.weights)

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        layer, (weight, _) = self.layer, memory.weights
        geometry = layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups
        out: tuple[Tensor, ...] = _conv_backward(g, memory.kept, weight, None, *geometry, [True, False, False])
        return out[0]

    def applied(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        layer = self.layer
        return functional.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        if self.layer.padding_mode != "zeros":
            raise VictimError(f"interval bounds have no rule for {self.layer}: expected padding_mode='zeros'")
        return super().interval(low, high)

    def pull_back(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Sequence[Tensor], Tensor]:
        layer, bias = self.layer, self.layer.bias
        if isinstance(layer.padding, str):
            return super().pull_back(rows, shapes)
        size = rows.shape[0] * rows.shape[1], *shapes[0]
        back = conv2d_input(
            size, layer.weight, rows.flatten(0, 1), layer.stride, layer.padding, layer.dilation, layer.groups
        )
        offset = rows.new_zeros(()) if bias is None else rows.sum((-2, -1)) @ bias
        return [back.unflatten(0, rows.shape[:2])], offset

    def shape_after(self, shape: Shape) -> Shape:
        layer = self.layer
        if len(shape) != 3 or shape[0] != layer.in_channels:
            raise RuntimeError(f"expected a picture of {layer.in_channels} channels")
        settings = zip(shape[1:], layer.kernel_size, layer.stride, layer.padding, layer.dilation, strict=True)
        sides = [(n + 2 * pad - apart * (k - 1) - 1) // step + 1 for n, k, step, pad, apart in settings]
        if min(sides) < 1:
            raise RuntimeError(f"the picture is smaller than the kernel {layer.kernel_size}")
        return layer.out_channels, *sides

    def settings(self) -> WrittenLayer:
        layer = self.layer
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise CardError(f"convolutions are written with zeros around the picture, and their number, got {layer}")
        stated = {"stride": (layer.stride, None), "padding": (layer.padding, 0), "dilation": (layer.dilation, 1)}
        settings: WrittenLayer = {
            name: value[0] if value[0] == value[1] else list(value)
            for name, (value, default) in stated.items()
            if value != (default, default)
        }
        settings |= {} if layer.groups == 1 else {"groups": layer.groups}
        return settings | super().settings()

    @classmethod
    def build(cls, stored: StoredLayer) -> nn.Module:
        groups = stored.settings.get("groups", 1)
        outputs, channels, *kernel = stored.take("weight", None, None, None, None).shape
        return stored.filled(nn.Conv2d, channels * groups, outputs, tuple(kernel))
