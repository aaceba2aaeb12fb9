"""Gradients of a loss with respect to a network's input, written out layer by layer, without autograd.

An attack computes K times the gradient of one loss at inputs of one shape. No graph is built for that, no gradient of
a weight is considered, and what one step wrote, the next writes over: activations and inner gradients are allocated
once an attack. Small networks spend half the time (``benchmarks/attacks.py``). The kernels are those of autograd, but
for the last linear layer, whose output is computed as its transpose ``[K, B]``: a softmax over the first axis of that
is ten times as fast as one over a last axis of six.

Space to depth: a kernel of 8 x 8 that moves by 4 over ``[C, 84, 84]`` is one of 2 x 2 that moves by 1 over
``[16 C, 21, 21]``, where every square of 4 x 4 pixels has become 16 channels. Sums and their terms are the same, but
the way back to the input, which scatters over few channels and many pixels, is several times as fast on a processor:
in the Atari network it is two thirds of a step. The steps of an attack do not mind how elements are laid out, so an
attack is rearranged once, and back once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.networks.layers import AppendLogStd, Normalize
from adv_wrappers.networks.spec import hooked
from adv_wrappers.networks.tracing import flattened

OutputGradient = Callable[[Tensor], Tensor]  # of a loss: the network's output [B, K] to the gradient there, [B, K]
Make = Callable[[Hashable, Callable[[], Tensor]], Tensor]

_ACTIVATIONS = (nn.Tanh, nn.ReLU)
_WRITING = (nn.Linear, nn.Conv2d, *_ACTIVATIONS)  # layers whose gradient is memory of their own
_KNOWN = (nn.Linear, nn.Conv2d, nn.Tanh, nn.ReLU, nn.Flatten, nn.Identity, Normalize, AppendLogStd)


def sequence_of(module: nn.Module, frozen: bool = False) -> LayerSequence | None:
    """The layers of a ``Sequential``, or None if it holds one whose gradient is not written out here.

    Args:
        module: read anew for every :class:`InputGradient`, unless it is ``frozen``.
        frozen: promises that its weights never change, so what is made of them is made once.
    """
    layers = list(flattened(module))
    for layer in layers:
        if type(layer) not in _KNOWN or hooked(layer):
            return None
        if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
            return None
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
            return None
    return LayerSequence(layers, frozen)


class LayerSequence:
    """Layers in a row whose input gradient is written out; weights are read when an :class:`InputGradient` is made.

    Attributes:
        layers: without those that do nothing.
    """

    def __init__(self, layers: list[nn.Module], frozen: bool = False) -> None:
        self.layers = [layer for layer in layers if not isinstance(layer, nn.Identity)]
        self._cache: dict[Hashable, Tensor] | None = {} if frozen else None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_cache": None if self._cache is None else {}}

    def input_gradient(self, output_gradient: OutputGradient, dtype: torch.dtype | None = None) -> InputGradient:
        """``x -> d loss(params(x)).sum() / dx`` from the gradient of the loss with respect to the parameters.

        Args:
            output_gradient: parameters ``[B, K]`` to the gradient of the loss there.
            dtype: what layers compute in, by default that of their weights.
        """
        return InputGradient(self.layers, output_gradient, dtype=dtype, cached=self._cached)

    def _cached(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What ``make`` makes of the weights; of frozen ones once."""
        if self._cache is None:
            return make()
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


class InputGradient:
    """``x -> d loss(params(x)).sum() / dx``, for the steps of one attack.

    Args:
        layers: the layers of a :class:`LayerSequence`.
        output_gradient: parameters ``[B, K]`` to the gradient of the loss with respect to them.
        layout: how the input is rearranged; None where it is not.
        dtype: what the layers compute in, by default that of their weights. Input and result keep theirs.
        cached: takes a key and a function, and returns what the function makes of the weights.

    Attributes:
        overwritable: whether what a call returns is memory of its own, which the attack may write over.
    """

    def __init__(
        self, layers: list[nn.Module], output_gradient: OutputGradient, layout: SpaceToDepth | None = None,
        dtype: torch.dtype | None = None, cached: Make = lambda key, make: make(),
    ) -> None:  # fmt: skip
        self.layers, self.output_gradient, self.dtype, self.cached = layers, output_gradient, dtype, cached
        self.passes = _passes_of(layers, layout, dtype, cached)
        self._reversed = self.passes[::-1]
        self.overwritable = any(each.overwritable for each in self.passes)

    def rearranged(self, x: Tensor) -> tuple[SpaceToDepth, InputGradient] | None:
        """How observations like ``x`` ``[B, *S]`` are rearranged, and their gradient so; None where it does not pay.

        On a processor it does. What convolutions cost on other devices nobody has measured.
        """
        layout = space_to_depth(self.layers, tuple(x.shape[1:])) if x.device.type == "cpu" else None
        if layout is None:
            return None
        return layout, InputGradient(self.layers, self.output_gradient, layout, self.dtype, self.cached)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # checked first, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return self(x)
        y = x if self.dtype is None else x.to(self.dtype)
        for each in self.passes:
            y = each.forward(y)
        # the loss itself is always computed exactly
        g = self.output_gradient(y) if self.dtype is None else self.output_gradient(y.to(x.dtype)).to(self.dtype)
        for each in self._reversed:
            g = each.backward(g)
        return g if self.dtype is None else g.to(x.dtype)


@dataclass(frozen=True)
class SpaceToDepth:
    """Squares of ``side`` x ``side`` pixels as channels: ``[N, C, H, W]`` to ``[N, C side^2, H / side, W / side]``.

    In memory channels are last, which convolutions prefer.
    """

    side: int

    def __call__(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        s = self.side
        squares = x.view(n, c, h // s, s, w // s, s).permute(0, 2, 4, 1, 3, 5)
        return squares.reshape(n, h // s, w // s, c * s * s).permute(0, 3, 1, 2)

    def inverse(self, y: Tensor) -> Tensor:
        """From channels back to squares of pixels."""
        n, c, h, w = y.shape
        s = self.side
        squares = y.permute(0, 2, 3, 1).reshape(n, h, w, c // (s * s), s, s).permute(0, 3, 1, 4, 2, 5)
        return squares.reshape(n, c // (s * s), h * s, w * s)


def space_to_depth(layers: list[nn.Module], shape: tuple[int, ...]) -> SpaceToDepth | None:
    """How observations ``[*S]`` of these layers are rearranged; None where that is not the same, or does not pay.

    It takes a first convolution without padding whose stride divides its kernel and the picture, and few channels;
    before it nothing but arithmetic that is the same for every element.
    """
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            return _squares_of(layer, shape)
        if isinstance(layer, Normalize) and layer.mean.numel() == layer.std.numel() == 1:
            continue
        if not isinstance(layer, (nn.Tanh, nn.ReLU)):
            return None
    return None


def _squares_of(conv: nn.Conv2d, shape: tuple[int, ...]) -> SpaceToDepth | None:
    side = conv.stride[0]
    plain = conv.stride == (side, side) and conv.padding == (0, 0) and conv.dilation == (1, 1) and conv.groups == 1
    sizes = (*conv.kernel_size, *shape[1:])
    if not plain or side < 2 or len(shape) != 3 or shape[0] > 8 or any(size % side for size in sizes):
        return None
    return SpaceToDepth(side)


# overloads, not packets: resolving one at every call costs more than a small layer
_tanh_backward: Callable[..., Tensor] = torch.ops.aten.tanh_backward.grad_input
_relu_backward: Callable[..., Tensor] = torch.ops.aten.threshold_backward.grad_input
_clip_backward: Callable[..., Tensor] = torch.ops.aten.hardtanh_backward.default
_conv_backward: Callable[..., tuple[Tensor, ...]] = torch.ops.aten.convolution_backward.default


class _Pass:
    """One layer of one :class:`InputGradient`, forward and back, on memory that every step of an attack uses again."""

    overwritable = True  # what comes back is memory of its own

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output; what the way back needs is remembered."""
        raise NotImplementedError

    def backward(self, g: Tensor) -> Tensor:
        """Gradient with respect to the input of the last :meth:`forward`."""
        raise NotImplementedError


class _LinearPass(_Pass):
    """A linear layer, and the tanh or ReLU behind it, which works in place."""

    def __init__(
        self, layer: nn.Linear, dtype: torch.dtype, first: bool, last: bool, cached: Make,
        activation: nn.Module | None = None, overwrites: bool = True,
    ) -> None:  # fmt: skip
        self.layer, self.cached, self.first, self.last, self.rows = layer, cached, first, last, -1
        self.activated, self.tanh, self.overwrites = activation is not None, isinstance(activation, nn.Tanh), overwrites
        self.use(cached((layer, dtype), lambda: layer.weight.detach().to(dtype)))
        bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach()
        self.bias = bias.to(dtype)[:, None] if last else bias.to(dtype)

    def use(self, weight: Tensor) -> None:
        """Take this weight ``[outputs, inputs]``."""
        self.weight, self.transposed = weight, weight.t()

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            out = functional.linear(x, self.weight, self.bias.view(-1))
            if self.activated:
                self.activated_out = out.tanh_() if self.tanh else out.relu_()
            return out
        if len(x) != self.rows:
            self.rows = len(x)
            shape = (len(self.weight), len(x)) if self.last else (len(x), len(self.weight))
            self.out = x.new_empty(shape)
            self.gradient = self.out if self.first else x.new_empty(x.shape)
            self.out_transposed = self.out.t()
        if self.last:
            torch.addmm(self.bias, self.weight, x.t(), out=self.out)
            return self.out_transposed
        out = torch.addmm(self.bias, x, self.transposed, out=self.out)
        if self.activated:
            self.activated_out = out.tanh_() if self.tanh else out.relu_()
        return out

    def backward(self, g: Tensor) -> Tensor:
        if self.activated:
            into = g if self.overwrites else torch.empty_like(g)
            if self.tanh:
                g = _tanh_backward(g, self.activated_out, grad_input=into)
            else:
                g = _relu_backward(g, self.activated_out, 0, grad_input=into)
        # the first one's gradient goes out to the attack, and so is new memory every time
        return g @ self.weight if self.first or g.dim() != 2 else torch.mm(g, self.weight, out=self.gradient)


class _ActivationPass(_Pass):
    """Tanh or ReLU behind anything but a linear layer; in place where its input is memory of its own."""

    def __init__(self, layer: nn.Module, in_place: bool, overwrites: bool) -> None:
        self.tanh, self.in_place, self.overwrites = isinstance(layer, nn.Tanh), in_place, overwrites

    def forward(self, x: Tensor) -> Tensor:
        if self.tanh:
            self.out = x.tanh_() if self.in_place else x.tanh()
        else:
            self.out = x.relu_() if self.in_place else x.relu()
        return self.out

    def backward(self, g: Tensor) -> Tensor:
        into = g if self.overwrites else torch.empty_like(g)
        if self.tanh:
            return _tanh_backward(g, self.out, grad_input=into)
        return _relu_backward(g, self.out, 0, grad_input=into)


class _ConvPass(_Pass):
    def __init__(self, layer: nn.Conv2d, dtype: torch.dtype, layout: SpaceToDepth | None, cached: Make) -> None:
        self.bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        self.geometry: tuple[tuple[int, ...], ...] = (layer.stride, _padding(layer), layer.dilation)
        self.groups, weight = layer.groups, layer.weight.detach()
        if layout is None:
            self.weight = cached((layer, dtype), lambda: weight.to(dtype))
        else:
            self.weight = cached((layer, dtype, layout), lambda: layout(weight).to(dtype))
            self.geometry = (1, 1), (0, 0), (1, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.input = x
        stride, padding, dilation = self.geometry
        return functional.conv2d(x, self.weight, self.bias, stride, padding, dilation, self.groups)

    def backward(self, g: Tensor) -> Tensor:
        return _conv_backward(
            g, self.input, self.weight, None, *self.geometry, False, [0, 0], self.groups, [True, False, False]
        )[0]


def _padding(layer: nn.Conv2d) -> tuple[int, ...]:
    assert not isinstance(layer.padding, str)
    return layer.padding


class _FlattenPass(_Pass):
    overwritable = False

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, g: Tensor) -> Tensor:
        return g.reshape(self.shape)


class _ChannelsLastFlattenPass(_Pass):
    """Flattens a picture whose channels are last in memory as it lies there; the next layer's weight follows suit."""

    def __init__(self, linear: _LinearPass) -> None:
        self.linear: _LinearPass | None = linear

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = self.shape = x.shape
        if self.linear is not None:
            weight = self.linear.weight
            self.linear.use(self.linear.cached(
                (self.linear.layer, weight.dtype, x.shape[1:]),
                lambda: weight.view(-1, c, h, w).permute(0, 2, 3, 1).reshape(-1, c * h * w),
            ))  # fmt: skip
            self.linear = None
        return x.permute(0, 2, 3, 1).reshape(n, -1)

    def backward(self, g: Tensor) -> Tensor:
        n, c, h, w = self.shape
        return g.view(n, h, w, c).permute(0, 3, 1, 2)


class _NormalizePass(_Pass):
    def __init__(self, layer: Normalize, dtype: torch.dtype | None) -> None:
        self.mean = layer.mean if dtype is None else layer.mean.to(dtype)
        self.std = layer.std if dtype is None else layer.std.to(dtype)
        self.clip = layer.clip

    def forward(self, x: Tensor) -> Tensor:
        self.normalized = (x - self.mean).div_(self.std)
        return self.normalized if self.clip is None else self.normalized.clamp(-self.clip, self.clip)

    def backward(self, g: Tensor) -> Tensor:
        return (g if self.clip is None else _clip_backward(g, self.normalized, -self.clip, self.clip)) / self.std


class _AppendLogStdPass(_Pass):
    overwritable = False

    def __init__(self, layer: AppendLogStd) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        self.width = x.shape[-1]
        return self.layer(x).detach()  # type: ignore[no-any-return]

    def backward(self, g: Tensor) -> Tensor:
        return g[..., : self.width]


def _passes_of(
    layers: list[nn.Module], layout: SpaceToDepth | None, dtype: torch.dtype | None, cached: Make
) -> list[_Pass]:
    """A pass for every layer; arguments as of :class:`InputGradient`."""
    weighted = [i for i, layer in enumerate(layers) if isinstance(layer, (nn.Linear, nn.Conv2d))]
    passes: list[_Pass] = []
    writing = [i for i, layer in enumerate(layers) if isinstance(layer, _WRITING)]
    last = writing[-1] if writing else -1
    for i, layer in enumerate(layers):
        behind = layers[i + 1] if i + 1 < len(layers) else None
        if isinstance(layer, nn.Linear):
            linear = _LinearPass(
                layer, dtype or layer.weight.dtype, i == weighted[0], behind is None, cached,
                behind if isinstance(behind, _ACTIVATIONS) else None, i + 1 < last,
            )  # fmt: skip
            if layout is not None and isinstance(layers[i - 1], nn.Flatten):
                passes[-1] = _ChannelsLastFlattenPass(linear)
            passes.append(linear)
        elif isinstance(layer, nn.Conv2d):
            passes.append(_ConvPass(layer, dtype or layer.weight.dtype, layout if i == weighted[0] else None, cached))
        elif isinstance(layer, _ACTIVATIONS):
            if i == 0 or not isinstance(layers[i - 1], nn.Linear):
                passes.append(_ActivationPass(layer, i > 0 and isinstance(layers[i - 1], nn.Conv2d), i < last))
        elif isinstance(layer, nn.Flatten):
            passes.append(_FlattenPass())
        elif isinstance(layer, AppendLogStd):
            passes.append(_AppendLogStdPass(layer))
        else:
            assert isinstance(layer, Normalize)
            passes.append(_NormalizePass(layer, dtype))
    return passes
