"""A walk through a chain: the gradient of a loss with respect to the input, written out, on memory used again.

An attack takes K steps of one shape, so what one step wrote, the next writes over: activations and inner gradients are
allocated once an attack. The kernels are those of autograd, but for the last linear layer, whose output is computed as
its transpose ``[K, B]``: a softmax over the first axis of that is ten times as fast as one over a last axis of six.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class _Link:
    """One layer of one walk. ``own``: the gradient that comes in is memory of the walk, to be written over."""

    own = True

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def backward(self, g: Tensor) -> Tensor:
        raise NotImplementedError


class _Linear(_Link):
    def __init__(self, layer: nn.Linear, first: bool, last: bool) -> None:
        self.weight, self.turned = layer.weight.detach(), layer.weight.detach().t()
        self.bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach()
        self.first, self.last, self.rows = first, last, -1
        if last:
            self.bias = self.bias[:, None]
        self.out: Any = None
        self.slope: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            return functional.linear(x, self.weight, self.bias.view(-1))
        if len(x) != self.rows:
            self.rows = len(x)
            shape = (len(self.weight), len(x)) if self.last else (len(x), len(self.weight))
            self.out, self.slope = x.new_empty(shape), x.new_empty(x.shape)
            self.shown = self.out.t()
        if self.last:
            torch.addmm(self.bias, self.weight, x.t(), out=self.out)
            return self.shown  # type: ignore[no-any-return]
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
    def __init__(self, layer: nn.Conv2d, fold: Fold | None) -> None:
        self.weight, self.bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
        self.how: tuple[Any, ...] = (layer.stride, layer.padding, layer.dilation)
        self.groups = layer.groups
        if fold is not None:
            self.weight, self.how = fold(self.weight), ((1, 1), (0, 0), (1, 1))

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


class _Normalize(_Link):
    def __init__(self, layer: Any) -> None:
        self.mean: Tensor = layer.mean
        self.std: Tensor = layer.std
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

    Attributes:
        spendable: what a call returns is memory of its own, for the attack to write over.
    """

    def __init__(self, layers: list[nn.Module], slope: Callable[[Tensor], Tensor], fold: Fold | None = None) -> None:
        self.layers, self.slope, self.links = layers, slope, list(_links(layers, fold))
        self._back = self.links[::-1]
        self.spendable = any(not isinstance(link, (_Flatten, _Append)) for link in self.links)

    def fold(self, x: Tensor) -> tuple[Fold, Walk] | None:
        """How observations like ``x`` ``[B, *S]`` are folded, and the walk for such ones; None where it does not pay.

        On a processor it does. What convolutions cost on other devices nobody has measured.
        """
        fold = fold_of(self.layers, tuple(x.shape[1:])) if x.device.type == "cpu" else None
        return None if fold is None else (fold, Walk(self.layers, self.slope, fold))

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # asked, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return self(x)
        for link in self.links:
            x = link.forward(x)
        g = self.slope(x)
        for link in self._back:
            g = link.backward(g)
        return g


def _links(layers: list[nn.Module], fold: Fold | None) -> Iterable[_Link]:
    weighted = [i for i, layer in enumerate(layers) if isinstance(layer, (nn.Linear, nn.Conv2d))]
    for i, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            yield _Linear(layer, i == weighted[0], i == len(layers) - 1)
        elif isinstance(layer, nn.Conv2d):
            yield _Conv(layer, fold)
            fold = None
        elif isinstance(layer, (nn.Tanh, nn.ReLU)):
            after = any(isinstance(later, (nn.Linear, nn.Conv2d, nn.Tanh, nn.ReLU)) for later in layers[i + 1 :])
            yield _Curve(layer, i > 0 and isinstance(layers[i - 1], (nn.Linear, nn.Conv2d)), after)
        elif isinstance(layer, nn.Flatten):
            yield _Flatten()
        elif hasattr(layer, "log_std"):
            yield _Append(layer)
        else:
            yield _Normalize(layer)
