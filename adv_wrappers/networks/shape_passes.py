"""What moves, selects and joins elements, forward and back; beside :mod:`.layer_passes`, which computes new ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adv_wrappers.networks.graph import Join, Mean, Part, Permute, Reshape
from adv_wrappers.networks.layer_passes import Kernel, LinearPass, Pass, bytes_of
from adv_wrappers.networks.layers import AppendLogStd, QuantileMean, TwoLogits


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

    def __init__(self, layer: Part) -> None:
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
