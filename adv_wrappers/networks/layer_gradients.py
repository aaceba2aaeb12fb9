"""Layers and operations forward and back: what one gives, and the gradient with respect to what it took.

Which of them have a gradient that is written out is said by :func:`has_gradient`. A pass works for one
:class:`~adv_wrappers.networks.input_gradient.InputGradient` at a time, and keeps what the way back
needs from the call before. Kernels are those of autograd, on memory that every step uses again where there is a kernel
that takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.networks.graph import (
    Arithmetic,
    Join,
    Mean,
    Permute,
    Reshape,
    Slice,
    changed,
    factor_and_offset,
    has_statistics,
)
from adv_wrappers.networks.layers import AppendLogStd, Clip, Normalize, QuantileMean, TwoLogits

FROM_OUTPUT = (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid, nn.Hardtanh)  # slopes that follow from the output
FROM_INPUT = (nn.SiLU, nn.GELU, nn.Softplus, Clip)  # and those that take the input

Kernel = Callable[..., Tensor]
Make = Callable[[Hashable, Callable[[], Tensor]], Tensor]
_SIGMOIDS = 2048  # from so many numbers on a tanh is computed as a sigmoid

# overloads, not packets: resolving one at every call costs more than a small layer
_aten = torch.ops.aten
_tanh_backward = _aten.tanh_backward.grad_input
_relu_backward = _aten.threshold_backward.grad_input
_elu_backward = _aten.elu_backward.grad_input
_leaky_relu_backward = _aten.leaky_relu_backward.grad_input
_sigmoid_backward = _aten.sigmoid_backward.grad_input
_hardtanh_backward = _aten.hardtanh_backward.grad_input
_silu_backward = _aten.silu_backward.grad_input
_gelu_backward = _aten.gelu_backward.grad_input
_softplus_backward = _aten.softplus_backward.grad_input
_norm_backward = _aten.native_layer_norm_backward.default
_pool = _aten.max_pool2d_with_indices.default
_pool_backward = _aten.max_pool2d_with_indices_backward.default
_conv_backward = _aten.convolution_backward.default
_silu, _gelu, _softplus = _aten.silu.out, _aten.gelu.out, _aten.softplus.out
_MINUS_ONE = torch.tensor(-1.0)  # on the host, where it is a number to every device's kernels


class Pass:
    """A layer of one value.

    Attributes:
        writes: whether the gradient that it returns is memory that nothing else reads.
        forwards: whether the gradient that it returns may be that which it took, or a view of it.
        gives: whether it does not read its output again, so that the next pass may write over it.
        overwrites: whether it may write over the gradient that it takes.
        fresh: whether the gradient goes out to the attack, and so is new memory every time.
        kept: tensors that the way back needs and that are not the pass's own.
    """

    writes, forwards, gives = True, False, False
    overwrites, fresh = False, True
    kept: tuple[Tensor, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output; what the way back needs is remembered."""
        raise NotImplementedError

    def backward(self, g: Tensor) -> Tensor:
        """Gradient with respect to the input of the last :meth:`forward`."""
        raise NotImplementedError

    def resize(self) -> None:
        """Give up memory, since another number of rows comes next."""
        self.kept = ()

    def memory(self) -> int:
        """Bytes that are held beside what is ``kept``."""
        return 0


class _OutputActivation:
    """An activation whose slope follows from its output.

    Attributes:
        new, in_place: the activation, into new memory or over its input.
        slope: from the gradient, the output, and where to write (``grad_input=``), the gradient with respect to the
            input. No function of Python where the kernel's own arguments allow it.
    """

    new: Callable[[Tensor], Tensor]
    in_place: Callable[[Tensor], object]
    slope: Callable[..., Tensor]

    def __init__(self, layer: nn.Module) -> None:
        if isinstance(layer, nn.Tanh):
            self.new, self.in_place = Tensor.tanh, Tensor.tanh_
            self.slope = _tanh_backward
        elif isinstance(layer, nn.ReLU):
            self.new, self.in_place = Tensor.relu, Tensor.relu_
            self.slope = partial(_relu_backward, threshold=0)
        elif isinstance(layer, nn.Sigmoid):
            self.new, self.in_place = Tensor.sigmoid, Tensor.sigmoid_
            self.slope = _sigmoid_backward
        elif isinstance(layer, nn.ELU):
            alpha = layer.alpha
            self.new, self.in_place = (partial(each, alpha=alpha) for each in (functional.elu, functional.elu_))
            self.slope = lambda g, y, grad_input: _elu_backward(g, alpha, 1, 1, True, y, grad_input=grad_input)
        elif isinstance(layer, nn.LeakyReLU):
            low = layer.negative_slope
            self.new, self.in_place = (
                partial(each, negative_slope=low) for each in (functional.leaky_relu, functional.leaky_relu_)
            )
            self.slope = partial(_leaky_relu_backward, negative_slope=low, self_is_result=True)
        else:
            assert isinstance(layer, nn.Hardtanh)
            least, most = layer.min_val, layer.max_val
            self.new, self.in_place = (
                partial(each, min_val=least, max_val=most) for each in (functional.hardtanh, functional.hardtanh_)
            )
            self.slope = partial(_hardtanh_backward, min_val=least, max_val=most)


class LinearPass(Pass):
    """A linear layer, and the activation behind it, if it works in place.

    Args:
        last: whether its output is the network's. It is computed as its transpose ``[K, B]`` then: a softmax over the
            first axis of that is ten times as fast as one over a last axis of six.
    """

    gives = True

    def __init__(
        self,
        layer: nn.Linear,
        cached: Make,
        activation: nn.Module | None = None,
        last: bool = False,
    ) -> None:
        self.layer, self.cached, self.last = layer, cached, last
        self.activation = None if activation is None else _OutputActivation(activation)
        self.gives = activation is None
        self.use(cached(layer, layer.weight.detach))
        bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach()
        self.bias = bias[:, None] if last else bias
        # a sigmoid takes a quarter of the time of a tanh, and is as exact to within 2e-7 of its range
        exact = self.weight.dtype in (torch.float32, torch.float64) and self.weight.device.type == "cpu"
        self.sigmoids = _SIGMOIDS if isinstance(activation, nn.Tanh) and exact else math.inf
        self.out: Tensor | None = None
        self.gradient: Tensor | None = None

    def use(self, weight: Tensor) -> None:
        """Take this weight ``[outputs, inputs]``."""
        self.weight, self.transposed = weight, weight.t()

    def forward(self, x: Tensor) -> Tensor:
        if (out := self.out) is None:
            if x.dim() != 2:
                return self._forward_of_many_axes(x)
            shape = (len(self.weight), len(x)) if self.last else (len(x), len(self.weight))
            self.out = out = x.new_empty(shape)
            self.out_transposed = out.t()
            self.by_sigmoid = out.numel() >= self.sigmoids
        if self.last:
            torch.addmm(self.bias, self.weight, x.t(), out=out)
            return self.out_transposed
        if self.activation is None:
            return torch.addmm(self.bias, x, self.transposed, out=out)
        if self.by_sigmoid:  # tanh(x) = 2 sigmoid(2 x) - 1
            torch.addmm(self.bias, x, self.transposed, beta=2, alpha=2, out=out).sigmoid_()
            torch.add(_MINUS_ONE, out, alpha=2, out=out)
        else:
            self.activation.in_place(torch.addmm(self.bias, x, self.transposed, out=out))
        self.kept = (out,)
        return out

    def _forward_of_many_axes(self, x: Tensor) -> Tensor:
        out = functional.linear(x, self.weight, self.bias.view(-1))
        if self.activation is not None:
            self.activation.in_place(out)
            self.kept = (out,)
        return out

    def backward(self, g: Tensor) -> Tensor:
        if self.activation is not None:
            g = self.activation.slope(g, *self.kept, grad_input=g if self.overwrites else torch.empty_like(g))
        if self.fresh or self.out is None:
            return g @ self.weight
        if self.gradient is None:
            self.gradient = g.new_empty(len(g), self.weight.shape[1])
        return torch.mm(g, self.weight, out=self.gradient)

    def resize(self) -> None:
        self.out = self.gradient = None
        self.kept = ()

    def memory(self) -> int:
        return bytes_of(self.out, self.gradient)


def bytes_of(*held: Tensor | None) -> int:
    """Bytes of the tensors among these."""
    return sum(each.nbytes for each in held if each is not None)


class OutputActivationPass(Pass):
    """An activation whose slope follows from its output, behind anything but a linear layer."""

    forwards = True

    def __init__(self, layer: nn.Module, in_place: bool) -> None:
        self.activation, self.in_place = _OutputActivation(layer), in_place

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.activation.in_place(x)
        else:
            x = self.activation.new(x)
        self.kept = (x,)
        return x

    def backward(self, g: Tensor) -> Tensor:
        return self.activation.slope(g, *self.kept, grad_input=g if self.overwrites else torch.empty_like(g))


class InputActivationPass(Pass):
    """An activation whose slope follows from its input, which is kept."""

    gives, forwards = True, True

    def __init__(self, layer: nn.Module) -> None:
        self.activate: Callable[..., Tensor]
        self.slope: Callable[..., Tensor]  # from the gradient, the input, and where to write
        if isinstance(layer, nn.SiLU):
            self.activate, self.slope = _silu, _silu_backward
        elif isinstance(layer, nn.GELU):
            how = layer.approximate
            self.activate = partial(_gelu, approximate=how)
            self.slope = partial(_gelu_backward, approximate=how)
        elif isinstance(layer, nn.Softplus):
            beta, most = layer.beta, layer.threshold
            self.activate, self.slope = (
                partial(each, beta=beta, threshold=most) for each in (_softplus, _softplus_backward)
            )
        else:
            assert isinstance(layer, Clip)
            low, high = layer.low, layer.high
            self.activate = partial(torch.clamp, min=low, max=high)
            self.slope = lambda g, x, grad_input: _hardtanh_backward(
                g, x, *_beyond(low, high, x.dtype), grad_input=grad_input
            )
        self.out: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.out is None:
            self.out = torch.empty_like(x)
        self.kept = (x,)
        return self.activate(x, out=self.out)

    def backward(self, g: Tensor) -> Tensor:
        return self.slope(g, *self.kept, grad_input=g if self.overwrites else torch.empty_like(g))

    def resize(self) -> None:
        self.out, self.kept = None, ()

    def memory(self) -> int:
        return bytes_of(self.out)


@lru_cache
def _beyond(low: float | None, high: float | None, dtype: torch.dtype) -> tuple[float, float]:
    """The numbers next to these, outside: a clip has a slope at its ends, where ``hardtanh_backward`` has none."""
    ends = torch.tensor([-math.inf if low is None else low, math.inf if high is None else high], dtype=dtype)
    below, above = ends.nextafter(torch.tensor([-math.inf, math.inf], dtype=dtype)).tolist()
    return below, above


class ConvPass(Pass):
    """A convolution in two dimensions.

    Args:
        squares: the weight for an input whose squares of pixels are channels; None for one whose pixels are pixels.
        channels_last: whether channels of the input are last in memory.
    """

    gives = True

    def __init__(
        self,
        layer: nn.Conv2d,
        cached: Make,
        squares: Callable[[Tensor], Tensor] | None = None,
        channels_last: bool = False,
    ) -> None:
        assert not isinstance(layer.padding, str)
        self.bias = None if layer.bias is None else layer.bias.detach()
        self.geometry: tuple[tuple[int, ...], ...] = (layer.stride, layer.padding, layer.dilation)
        self.groups, weight = layer.groups, layer.weight.detach()
        if squares is not None:
            self.weight = cached((layer, squares), lambda: squares(weight))
            self.geometry = (1, 1), (0, 0), (1, 1)
        elif channels_last:
            last = torch.channels_last
            self.weight = cached((layer, last), lambda: weight.to(memory_format=last))
        else:
            self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        self.kept = (x,)
        stride, padding, dilation = self.geometry
        return functional.conv2d(x, self.weight, self.bias, stride, padding, dilation, self.groups)

    def backward(self, g: Tensor) -> Tensor:
        out: tuple[Tensor, ...] = _conv_backward(
            g, *self.kept, self.weight, None, *self.geometry, False, [0, 0], self.groups, [True, False, False]
        )
        return out[0]


class MaxPoolPass(Pass):
    """The greatest of every window."""

    gives = True

    def __init__(self, layer: nn.MaxPool2d) -> None:
        sizes = layer.kernel_size, layer.stride, layer.padding, layer.dilation
        pairs = ([each, each] if isinstance(each, int) else list(each) for each in sizes)
        self.settings = (*pairs, layer.ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor
        out, places = _pool(x, *self.settings)
        self.kept = x, places
        return out

    def backward(self, g: Tensor) -> Tensor:
        x, places = self.kept
        return _pool_backward(g, x, *self.settings, places)  # type: ignore[no-any-return]


class LayerNormPass(Pass):
    """A layer normalisation."""

    gives = True

    def __init__(self, layer: nn.LayerNorm) -> None:
        self.shape, self.eps = list(layer.normalized_shape), layer.eps
        self.weight, self.bias = (None if each is None else each.detach() for each in (layer.weight, layer.bias))

    def forward(self, x: Tensor) -> Tensor:
        out, mean, rstd = torch.native_layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        self.kept = x, mean, rstd
        return out

    def backward(self, g: Tensor) -> Tensor:
        x, mean, rstd = self.kept
        out: tuple[Tensor, ...] = _norm_backward(
            g, x, self.shape, mean, rstd, self.weight, self.bias, [True, False, False]
        )
        return out[0]


class ArithmeticPass(Pass):
    """A value and a constant."""

    gives, forwards = True, True

    def __init__(self, layer: Arithmetic) -> None:
        self.writes = layer.how != "add"
        self.number = not isinstance(layer.by, Tensor) or layer.by.dim() == 0
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return self.layer(x)

    def backward(self, g: Tensor) -> Tensor:
        if self.writes:
            g = self.layer(g)
        return g if self.number else g.sum_to_size(self.shape)


class BatchNormPass(Pass):
    """A batch normalisation in evaluation mode."""

    gives = True

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        if not self.kept:
            self.kept = tuple(each.detach() for each in factor_and_offset(self.layer, x.dim()))
        factor, offset = self.kept
        return (x * factor).add_(offset)

    def backward(self, g: Tensor) -> Tensor:
        return g * self.kept[0]


class NormalizePass(Pass):
    """Normalised observations."""

    gives = True

    def __init__(self, layer: Normalize) -> None:
        self.mean, self.std, self.clip = layer.mean, layer.std, layer.clip

    def forward(self, x: Tensor) -> Tensor:
        normalized = (x - self.mean).div_(self.std)
        if self.clip is None:
            return normalized
        self.kept = (normalized,)
        return normalized.clamp(-self.clip, self.clip)

    def backward(self, g: Tensor) -> Tensor:
        if self.clip is None:
            return g / self.std
        return _aten.hardtanh_backward.default(g, *self.kept, -self.clip, self.clip) / self.std  # type: ignore[no-any-return]


class FlattenPass(Pass):
    """All but the first axis become one."""

    writes, forwards = False, True

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, g: Tensor) -> Tensor:
        return g.reshape(self.shape)


class ChannelsLastFlattenPass(Pass):
    """Flattens a picture whose channels are last in memory as it lies there; the next layer's weight follows suit."""

    writes, forwards = False, True

    def __init__(self, linear: LinearPass) -> None:
        self.linear: LinearPass | None = linear

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        if x.dim() != 4:
            return x.flatten(1)
        n, c, h, w = x.shape
        if self.linear is not None:
            weight = self.linear.weight
            self.linear.use(
                self.linear.cached(
                    (self.linear.layer, weight.dtype, x.shape[1:]),
                    lambda: weight.view(-1, c, h, w).permute(0, 2, 3, 1).reshape(-1, c * h * w),
                )
            )
            self.linear = None
        return x.permute(0, 2, 3, 1).reshape(n, -1)

    def backward(self, g: Tensor) -> Tensor:
        if len(self.shape) != 4:
            return g.reshape(self.shape)
        n, c, h, w = self.shape
        return g.view(n, h, w, c).permute(0, 3, 1, 2)


class ViewPass(Pass):
    """The same elements in the same order, or axes in another one."""

    writes, forwards = False, True

    def __init__(self, layer: Reshape | Permute) -> None:
        self.layer = layer
        if isinstance(layer, Permute):
            axes = [axis % len(layer.axes) for axis in layer.axes]
            self.inverse = [axes.index(i) for i in range(len(axes))]

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return self.layer(x)

    def backward(self, g: Tensor) -> Tensor:
        return g.permute(self.inverse) if isinstance(self.layer, Permute) else g.reshape(self.shape)


class PartPass(Pass):
    """Some elements of a value; the gradient of the others is zero."""

    def __init__(self, layer: Slice) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return self.layer(x)

    def backward(self, g: Tensor) -> Tensor:
        whole = g.new_zeros(self.shape)
        self.layer(whole).copy_(g)
        return whole


class MeanPass(Pass):
    """The mean over axes."""

    writes, gives = False, True

    def __init__(self, layer: Mean) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return self.layer(x)

    def backward(self, g: Tensor) -> Tensor:
        axes = sorted(axis % len(self.shape) for axis in self.layer.axes)
        if not self.layer.keep:
            for axis in axes:
                g = g.unsqueeze(axis)
        return (g / math.prod(self.shape[axis] for axis in axes)).expand(self.shape)


class QuantileMeanPass(Pass):
    """The means of quantiles."""

    gives = True

    def __init__(self, layer: QuantileMean) -> None:
        self.quantiles = layer.quantiles

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.quantiles, -1).mean(1)

    def backward(self, g: Tensor) -> Tensor:
        return (g / self.quantiles).repeat(1, self.quantiles)


class TwoLogitsPass(Pass):
    """A logit of a bit beside that of its opposite, which is zero."""

    writes, forwards = False, True

    def __init__(self, layer: TwoLogits) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]

    def backward(self, g: Tensor) -> Tensor:
        return g.reshape(len(g), -1, 2)[..., 1]


class AppendLogStdPass(Pass):
    """A log standard deviation beside the mean."""

    writes, forwards = False, True

    def __init__(self, layer: AppendLogStd) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        self.width = x.shape[-1]
        return self.layer(x).detach()  # type: ignore[no-any-return]

    def backward(self, g: Tensor) -> Tensor:
        return g[..., : self.width]


class JoinPass:
    """What is made of several values; the gradients with respect to them may be views of one another.

    Attributes:
        kept: tensors that the way back needs and that are not the pass's own.
    """

    kept: tuple[Tensor, ...] = ()

    def __init__(self, join: Join) -> None:
        self.how, self.axis = join.how, join.axis
        self.kernel: Kernel = {"sum": torch.add, "difference": torch.sub}.get(join.how, torch.mul)
        self.constants = [(at, each.detach()) for at, each in join.constants]
        self.out: Tensor | None = None
        self.expanded: list[tuple[int, Tensor]] | None = None

    def forward(self, *values: Tensor) -> Tensor:
        """What is made of the values."""
        self.kept = values
        if self.how == "concatenate":
            return self._concatenated(values)
        x, y = values
        if self.out is None:
            self.out = x.new_empty(torch.broadcast_shapes(x.shape, y.shape))
            if x.shape == y.shape:
                self.out = torch.empty_like(x)  # with the strides of a picture
        return self.kernel(x, y, out=self.out)

    def _concatenated(self, values: tuple[Tensor, ...]) -> Tensor:
        parts = list(values)
        if self.expanded is None:
            self.expanded = [
                (at, each.to(values[0].dtype).expand(len(values[0]), *each.shape[1:])) for at, each in self.constants
            ]
        for at, each in self.expanded:
            parts.insert(at, each)
        self.parts = [part.shape[self.axis] for part in parts]
        return torch.cat(parts, self.axis)

    def backward(self, g: Tensor) -> tuple[Tensor, ...]:
        """Gradients with respect to all values."""
        if self.how == "concatenate":
            parts = list(g.split(self.parts, self.axis))
            for at, _ in reversed(self.constants):
                del parts[at]
            return tuple(parts)
        x, y = self.kept
        pair = (g * y, g * x) if self.how == "product" else (g, g if self.how == "sum" else -g)
        return tuple(
            each if each.shape == value.shape else each.sum_to_size(value.shape)
            for each, value in zip(pair, (x, y), strict=True)
        )

    def resize(self) -> None:
        """Give up memory, since another number of rows comes next."""
        self.out = self.expanded = None
        self.kept = ()

    def memory(self) -> int:
        """Bytes that are held beside what is ``kept``."""
        return bytes_of(self.out)


def pass_of(layer: object, in_place: bool) -> Pass:
    """The pass of a layer that has no place of its own in a network.

    Args:
        layer: of one value, any but a linear layer and a convolution.
        in_place: whether the layer's input is memory that nobody else reads.
    """
    if isinstance(layer, FROM_OUTPUT):
        return OutputActivationPass(layer, in_place)
    return _PASSES[type(layer)](layer)


_PASSES: dict[type, Callable[[Any], Pass]] = {
    **dict.fromkeys(FROM_INPUT, InputActivationPass),
    nn.LayerNorm: LayerNormPass,
    nn.BatchNorm1d: BatchNormPass,
    nn.BatchNorm2d: BatchNormPass,
    nn.MaxPool2d: MaxPoolPass,
    nn.Flatten: lambda layer: FlattenPass(),
    Normalize: NormalizePass,
    AppendLogStd: AppendLogStdPass,
    QuantileMean: QuantileMeanPass,
    TwoLogits: TwoLogitsPass,
    Arithmetic: ArithmeticPass,
    Mean: MeanPass,
    Slice: PartPass,
    Reshape: ViewPass,
    Permute: ViewPass,
}
_KNOWN = {nn.Linear, nn.Conv2d, *FROM_OUTPUT, *_PASSES}


def has_gradient(layer: nn.Module) -> bool:
    """Whether the gradient of a layer is written out."""
    if type(layer) not in _KNOWN or changed(layer):
        return False
    if isinstance(layer, nn.Conv2d):
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if isinstance(layer, nn.MaxPool2d):
        return not layer.return_indices
    if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
        return has_statistics(layer)
    if isinstance(layer, nn.ELU):
        return layer.alpha >= 0  # else the slope does not follow from the output
    if isinstance(layer, nn.LeakyReLU):
        return layer.negative_slope >= 0
    return True
