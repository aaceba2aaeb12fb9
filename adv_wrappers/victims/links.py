"""The links of a walk: layers of a chain, forward and back, on memory that every step of an attack uses again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.victims.fold import Fold

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
    """A link a layer; arguments as of :class:`adv_wrappers.victims.walk.Walk`."""
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
