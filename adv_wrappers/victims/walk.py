"""A walk through a chain: the gradient of a loss with respect to the input, written out, on memory used again.

An attack takes K steps of one shape, so what one step wrote, the next writes over: activations and inner gradients are
allocated once an attack. The kernels are those of autograd, but for the last linear layer, whose output is computed as
its transpose ``[K, B]``: a softmax over the first axis of that is ten times as fast as one over a last axis of six.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.victims.fold import Fold, fold_of

# overloads, not packets: resolving one at every call costs more than a small layer
_tanh_backward: Any = torch.ops.aten.tanh_backward.grad_input
_relu_backward: Any = torch.ops.aten.threshold_backward.grad_input
_clip_backward: Any = torch.ops.aten.hardtanh_backward.default
_conv_backward: Any = torch.ops.aten.convolution_backward.default


Make = Callable[[Hashable, Callable[[], Tensor]], Tensor]


class _Link:
    """One layer of one walk. ``own``: the gradient that comes in is memory of the walk, to be written over."""

    own = True

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def backward(self, g: Tensor) -> Tensor:
        raise NotImplementedError


class _Linear(_Link):
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


class _Curve(_Link):
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


class _Conv(_Link):
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


class _Flatten(_Link):
    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, g: Tensor) -> Tensor:
        return g.reshape(self.shape)


class _FlattenLast(_Link):
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


class _Normalize(_Link):
    def __init__(self, layer: Any, dtype: torch.dtype | None) -> None:
        self.mean: Tensor = layer.mean if dtype is None else layer.mean.to(dtype)
        self.std: Tensor = layer.std if dtype is None else layer.std.to(dtype)
        self.clip: float | None = layer.clip

    def forward(self, x: Tensor) -> Tensor:
        self.kept = (x - self.mean).div_(self.std)
        return self.kept if self.clip is None else self.kept.clamp(-self.clip, self.clip)

    def backward(self, g: Tensor) -> Tensor:
        return (g if self.clip is None else _clip_backward(g, self.kept, -self.clip, self.clip)) / self.std


class _Append(_Link):
    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        self.width = x.shape[-1]
        return self.layer(x).detach()  # type: ignore[no-any-return]

    def backward(self, g: Tensor) -> Tensor:
        return g[..., : self.width]


class Walk:
    """``x -> d loss(params(x)).sum() / dx``, for one attack.

    Args:
        layers: of the chain.
        slope: parameters ``[B, K]`` to the gradient of the loss with respect to them.
        fold: how the input is laid out, where it is folded.
        dtype: what the layers compute in, by default that of their weights. Input and result keep theirs.
        make: key and function to a tensor that is made of weights (see :meth:`adv_wrappers.victims.chain.Chain.make`).

    Attributes:
        spendable: what a call returns is memory of its own, for the attack to write over.
    """

    def __init__(
        self, layers: list[nn.Module], slope: Callable[[Tensor], Tensor], fold: Fold | None = None,
        dtype: torch.dtype | None = None, make: Make = lambda key, function: function(),
    ) -> None:  # fmt: skip
        self.layers, self.slope, self.dtype, self.make = layers, slope, dtype, make
        self.links = _links(layers, fold, dtype, make)
        self._back = self.links[::-1]
        self.spendable = any(not isinstance(link, (_Flatten, _Append)) for link in self.links)

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


def _links(layers: list[nn.Module], fold: Fold | None, dtype: torch.dtype | None, make: Make) -> list[_Link]:
    weighted = [i for i, layer in enumerate(layers) if isinstance(layer, (nn.Linear, nn.Conv2d))]
    links: list[_Link] = []
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
