"""Chains: plain feed-forward networks whose gradient with respect to the input is written out, without autograd.

A chain is a ``Sequential`` of known layers; :class:`Walk` goes through it and back, keeping just
what the way back needs. No graph is built, no gradient of a weight is considered, and small networks spend half the
time (``benchmarks/attacks.py``).

Folding: a convolution with a stride as one without, over squares of pixels laid into channels.

A kernel of 8 x 8 that moves by 4 over ``[C, 84, 84]`` is one of 2 x 2 that moves by 1 over ``[16 C, 21, 21]``, where
every square of 4 x 4 pixels has become 16 channels. Sums and their terms are the same, but the way back to the input,
which scatters over few channels and many pixels, is several times as fast on a processor: in the Atari network it is
two thirds of a step. The steps of an attack do not mind how elements are laid out, so an attack is folded once and
unfolded once.

The links of a walk: layers of a chain, forward and back, on memory that every step of an attack uses again.

A walk through a chain: the gradient of a loss with respect to the input, written out, on memory used again.

An attack takes K steps of one shape, so what one step wrote, the next writes over: activations and inner gradients are
allocated once an attack. The kernels are those of autograd, but for the last linear layer, whose output is computed as
its transpose ``[K, B]``: a softmax over the first axis of that is ten times as fast as one over a last axis of six.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Normalize(nn.Module):
    """``clip((x - mean) / std, -clip, clip)``, the observation rule of normalised agents; ``clip=None`` for none."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, clip: float | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        y = (x - self.mean) / self.std
        return y if self.clip is None else y.clamp(-self.clip, self.clip)


class AppendLogStd(nn.Module):
    """Puts an observation-independent log standard deviation beside the mean: ``[B, D] -> [B, 2 D]``."""

    def __init__(self, log_std: Tensor) -> None:
        super().__init__()
        self.log_std = nn.Parameter(log_std.reshape(1, -1), requires_grad=False)

    def forward(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


_KNOWN = (nn.Linear, nn.Conv2d, nn.Tanh, nn.ReLU, nn.Flatten, nn.Identity, Normalize, AppendLogStd)


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    # iterating a Sequential and not its children(), which leave out the second use of one shared activation
    if type(module) is nn.Sequential and not (module._forward_hooks or module._forward_pre_hooks):
        for child in module:
            yield from _flat(child)
    else:
        yield module


def chain_of(module: nn.Module, frozen: bool = False) -> Chain | None:
    """The chain of a module, or None if it holds a layer that is not written out here.

    ``frozen`` promises that its weights never change, so what is made of them is made once.
    """
    layers = list(_flat(module))
    for layer in layers:
        if type(layer) not in _KNOWN or layer._forward_hooks or layer._forward_pre_hooks:
            return None
        if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
            return None
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
            return None
    return Chain(layers, frozen)


class Chain:
    """A list of layers that a walk can be made of; weights are read from the modules when it is made."""

    def __init__(self, layers: list[nn.Module], frozen: bool = False) -> None:
        self.layers = [layer for layer in layers if not isinstance(layer, nn.Identity)]
        self._made: dict[Hashable, Tensor] | None = {} if frozen else None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": None if self._made is None else {}}

    def walk(self, slope: Callable[[Tensor], Tensor], dtype: torch.dtype | None = None) -> Walk:
        """``x -> d loss(params(x)).sum() / dx`` from ``slope``, the gradient of the loss at parameters ``[B, K]``.

        ``dtype`` is what layers compute in, by default that of their weights.
        """
        return Walk(self.layers, slope, dtype=dtype, make=self.make)

    def make(self, key: Hashable, function: Callable[[], Tensor]) -> Tensor:
        """What ``function`` makes of the weights; of frozen ones once."""
        if self._made is None:
            return function()
        if key not in self._made:
            self._made[key] = function()
        return self._made[key]


@dataclass(frozen=True)
class Fold:
    """Squares of ``side`` x ``side`` pixels as channels: ``[N, C, H, W]`` to ``[N, C side^2, H / side, W / side]``.

    In memory channels are last, which convolutions prefer.
    """

    side: int

    def __call__(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        s = self.side
        squares = x.view(n, c, h // s, s, w // s, s).permute(0, 2, 4, 1, 3, 5)
        return squares.reshape(n, h // s, w // s, c * s * s).permute(0, 3, 1, 2)

    def back(self, y: Tensor) -> Tensor:
        """The inverse."""
        n, c, h, w = y.shape
        s = self.side
        squares = y.permute(0, 2, 3, 1).reshape(n, h, w, c // (s * s), s, s).permute(0, 3, 1, 4, 2, 5)
        return squares.reshape(n, c // (s * s), h * s, w * s)


def fold_of(layers: list[nn.Module], shape: tuple[int, ...]) -> Fold | None:
    """How observations ``[*S]`` of a chain are folded; None where that is not the same, or does not pay.

    It takes a first convolution without padding whose stride divides its kernel and the picture, and few channels;
    before it nothing but arithmetic that is the same for every element.
    """
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            return _fold(layer, shape)
        unit: Any = (getattr(layer, "mean", None), getattr(layer, "std", None))
        if not isinstance(layer, (nn.Tanh, nn.ReLU)) and any(n is None or n.numel() > 1 for n in unit):
            return None
    return None


def _fold(conv: nn.Conv2d, shape: tuple[int, ...]) -> Fold | None:
    side = conv.stride[0]
    plain = conv.stride == (side, side) and conv.padding == (0, 0) and conv.dilation == (1, 1) and conv.groups == 1
    sizes = (*conv.kernel_size, *shape[1:])
    if not plain or side < 2 or len(shape) != 3 or shape[0] > 8 or any(size % side for size in sizes):
        return None
    return Fold(side)


# overloads, not packets: resolving one at every call costs more than a small layer
_tanh_backward: Any = torch.ops.aten.tanh_backward.grad_input
_relu_backward: Any = torch.ops.aten.threshold_backward.grad_input
_clip_backward: Any = torch.ops.aten.hardtanh_backward.default
_conv_backward: Any = torch.ops.aten.convolution_backward.default

Make = Callable[[Hashable, Callable[[], Tensor]], Tensor]


class Link:
    """One layer of one walk. ``own``: the gradient that comes in is memory of the walk, to be written over."""

    own = True
    spendable = True  # what comes back through it is memory of its own

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output; what the way back needs is kept."""
        raise NotImplementedError

    def backward(self, g: Tensor) -> Tensor:
        """Gradient with respect to the input of the last :meth:`forward`."""
        raise NotImplementedError


class _Linear(Link):
    def __init__(self, layer: nn.Linear, dtype: torch.dtype, first: bool, last: bool, make: Make) -> None:
        self.layer, self.make, self.first, self.last, self.rows = layer, make, first, last, -1
        self.use(make((layer, dtype), lambda: layer.weight.detach().to(dtype)))
        bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach()
        self.bias = bias.to(dtype)[:, None] if last else bias.to(dtype)

    def use(self, weight: Tensor) -> None:
        self.weight, self.turned = weight, weight.t()

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            return functional.linear(x, self.weight, self.bias.view(-1))
        if len(x) != self.rows:
            self.rows = len(x)
            shape = (len(self.weight), len(x)) if self.last else (len(x), len(self.weight))
            self.out = x.new_empty(shape)
            self.slope = self.out if self.first else x.new_empty(x.shape)
            self.shown = self.out.t()
        if self.last:
            torch.addmm(self.bias, self.weight, x.t(), out=self.out)
            return self.shown
        return torch.addmm(self.bias, x, self.turned, out=self.out)

    def backward(self, g: Tensor) -> Tensor:
        # the first one's gradient goes out to the attack, and so is new memory every time
        return g @ self.weight if self.first or g.dim() != 2 else torch.mm(g, self.weight, out=self.slope)


class _Curve(Link):
    """Tanh or ReLU; in place where its input is memory of the walk."""

    def __init__(self, layer: nn.Module, fresh: bool, own: bool) -> None:
        self.tanh, self.fresh, self.own = isinstance(layer, nn.Tanh), fresh, own

    def forward(self, x: Tensor) -> Tensor:
        if self.tanh:
            self.kept = x.tanh_() if self.fresh else x.tanh()
        else:
            self.kept = x.relu_() if self.fresh else x.relu()
        return self.kept

    def backward(self, g: Tensor) -> Tensor:
        into = g if self.own else torch.empty_like(g)
        if self.tanh:
            return _tanh_backward(g, self.kept, grad_input=into)  # type: ignore[no-any-return]
        return _relu_backward(g, self.kept, 0, grad_input=into)  # type: ignore[no-any-return]


class _Conv(Link):
    def __init__(self, layer: nn.Conv2d, dtype: torch.dtype, fold: Fold | None, make: Make) -> None:
        self.bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        self.how: tuple[Any, ...] = (layer.stride, layer.padding, layer.dilation)
        self.groups, weight = layer.groups, layer.weight.detach()
        if fold is None:
            self.weight = make((layer, dtype), lambda: weight.to(dtype))
        else:
            self.weight = make((layer, dtype, fold), lambda: fold(weight).to(dtype))
            self.how = (1, 1), (0, 0), (1, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x
        stride, padding, dilation = self.how
        return functional.conv2d(x, self.weight, self.bias, stride, padding, dilation, self.groups)

    def backward(self, g: Tensor) -> Tensor:
        return _conv_backward(  # type: ignore[no-any-return]
            g, self.kept, self.weight, None, *self.how, False, [0, 0], self.groups, [True, False, False]
        )[0]


class _Flatten(Link):
    spendable = False

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, g: Tensor) -> Tensor:
        return g.reshape(self.shape)


class _FlattenLast(Link):
    """Flattens a picture whose channels are last in memory as it lies there; the next layer is turned likewise."""

    def __init__(self, linear: _Linear) -> None:
        self.linear: _Linear | None = linear

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = self.shape = x.shape
        if self.linear is not None:
            own = self.linear.weight
            self.linear.use(self.linear.make(
                (self.linear.layer, own.dtype, x.shape[1:]),
                lambda: own.view(-1, c, h, w).permute(0, 2, 3, 1).reshape(-1, c * h * w),
            ))  # fmt: skip
            self.linear = None
        return x.permute(0, 2, 3, 1).reshape(n, -1)

    def backward(self, g: Tensor) -> Tensor:
        n, c, h, w = self.shape
        return g.view(n, h, w, c).permute(0, 3, 1, 2)


class _Normalize(Link):
    def __init__(self, layer: Any, dtype: torch.dtype | None) -> None:
        self.mean: Tensor = layer.mean if dtype is None else layer.mean.to(dtype)
        self.std: Tensor = layer.std if dtype is None else layer.std.to(dtype)
        self.clip: float | None = layer.clip

    def forward(self, x: Tensor) -> Tensor:
        self.kept = (x - self.mean).div_(self.std)
        return self.kept if self.clip is None else self.kept.clamp(-self.clip, self.clip)

    def backward(self, g: Tensor) -> Tensor:
        return (g if self.clip is None else _clip_backward(g, self.kept, -self.clip, self.clip)) / self.std


class _Append(Link):
    spendable = False

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        self.width = x.shape[-1]
        return self.layer(x).detach()  # type: ignore[no-any-return]

    def backward(self, g: Tensor) -> Tensor:
        return g[..., : self.width]


def links_of(layers: list[nn.Module], fold: Fold | None, dtype: torch.dtype | None, make: Make) -> list[Link]:
    """A link a layer; arguments as of :class:`adv_wrappers.networks.input_gradient.Walk`."""
    weighted = [i for i, layer in enumerate(layers) if isinstance(layer, (nn.Linear, nn.Conv2d))]
    links: list[Link] = []
    for i, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            link = _Linear(layer, dtype or layer.weight.dtype, i == weighted[0], i == len(layers) - 1, make)
            if fold is not None and isinstance(layers[i - 1], nn.Flatten):
                links[-1] = _FlattenLast(link)
            links.append(link)
        elif isinstance(layer, nn.Conv2d):
            links.append(_Conv(layer, dtype or layer.weight.dtype, fold if i == weighted[0] else None, make))
        elif isinstance(layer, (nn.Tanh, nn.ReLU)):
            after = any(isinstance(later, (nn.Linear, nn.Conv2d, nn.Tanh, nn.ReLU)) for later in layers[i + 1 :])
            links.append(_Curve(layer, i > 0 and isinstance(layers[i - 1], (nn.Linear, nn.Conv2d)), after))
        elif isinstance(layer, nn.Flatten):
            links.append(_Flatten())
        else:
            links.append(_Append(layer) if hasattr(layer, "log_std") else _Normalize(layer, dtype))
    return links


class Walk:
    """``x -> d loss(params(x)).sum() / dx``, for one attack.

    Args:
        layers: of the chain.
        slope: parameters ``[B, K]`` to the gradient of the loss with respect to them.
        fold: how the input is laid out, where it is folded.
        dtype: what the layers compute in, by default that of their weights. Input and result keep theirs.
        make: key and function to a tensor that is made of weights (see :meth:`Chain.make`).

    Attributes:
        spendable: what a call returns is memory of its own, for the attack to write over.
    """

    def __init__(
        self, layers: list[nn.Module], slope: Callable[[Tensor], Tensor], fold: Fold | None = None,
        dtype: torch.dtype | None = None, make: Make = lambda key, function: function(),
    ) -> None:  # fmt: skip
        self.layers, self.slope, self.dtype, self.make = layers, slope, dtype, make
        self.links = links_of(layers, fold, dtype, make)
        self._back = self.links[::-1]
        self.spendable = any(link.spendable for link in self.links)

    def fold(self, x: Tensor) -> tuple[Fold, Walk] | None:
        """How observations like ``x`` ``[B, *S]`` are folded, and the walk for such ones; None where it does not pay.

        On a processor it does. What convolutions cost on other devices nobody has measured.
        """
        fold = fold_of(self.layers, tuple(x.shape[1:])) if x.device.type == "cpu" else None
        return None if fold is None else (fold, Walk(self.layers, self.slope, fold, self.dtype, self.make))

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # asked, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return self(x)
        y = x if self.dtype is None else x.to(self.dtype)
        for link in self.links:
            y = link.forward(y)
        # the loss itself is always computed exactly
        g = self.slope(y) if self.dtype is None else self.slope(y.to(x.dtype)).to(self.dtype)
        for link in self._back:
            g = link.backward(g)
        return g if self.dtype is None else g.to(x.dtype)
