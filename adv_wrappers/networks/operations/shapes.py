"""What moves, selects and averages elements of one value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import EllipsisType

from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.operations.linear_bounds import Bounds, Shape
from adv_wrappers.networks.operations.operation import LayerOperation, Memory, Operation, RowsApart, register
from adv_wrappers.networks.operations.stored_layer import WrittenLayer

SAME_ROWS = -2  # among the sizes of a Reshape: as many as the input has


class SameElements(Operation):
    """The same elements in the same order."""

    monotone = True

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        return g.reshape(memory.kept.shape)

    def is_affine(self) -> bool:
        return True


@register
class Flatten(SameElements, LayerOperation):
    """Axes as one."""

    layers = (nn.Flatten,)
    kind = "flatten"

    def run(self, x: Tensor, memory: Memory) -> Tensor:
        memory.kept = x
        return x.flatten(self.layer.start_dim, self.layer.end_dim)  # without the calls of a layer around it

    def shape_after(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def settings(self) -> WrittenLayer:
        if (self.layer.start_dim, self.layer.end_dim) != (1, -1):
            raise CardError(f"a Flatten that is written keeps the first axis alone, got {self.layer}")
        return {}


class Nothing(SameElements, LayerOperation):
    """What leaves its input as it is; it is left out of graphs, and has no gradient of its own."""

    def has_gradient(self) -> bool:
        return False

    def does_nothing(self) -> bool:
        return True


@register
class Identity(Nothing):
    """The input."""

    layers = (nn.Identity,)


@register
class Dropout(Nothing):
    """The input, once a network is trained."""

    layers = (nn.Dropout, nn.Dropout2d)
    calls = (functional.dropout,)

    @classmethod
    def traced(cls, p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module | None:
        return None if training else nn.Dropout(p).eval()

    def does_nothing(self) -> bool:
        return not self.layer.training

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        if self.layer.training:
            raise VictimError(f"interval bounds have no rule for {self.layer} in training mode: call .eval()")
        return low, high


@dataclass(frozen=True, eq=False)
class Reshape(SameElements, RowsApart):
    """The same elements in the same order, ``getattr(x, method)(*sizes)``.

    Attributes:
        method: ``"view"``, ``"reshape"``, ``"flatten"``, ``"unsqueeze"`` or ``"squeeze"``.
    """

    takes_rows = True

    method: str
    sizes: tuple[int, ...]

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        sizes = (len(x) if size == SAME_ROWS and self.method in ("view", "reshape") else size for size in self.sizes)
        return getattr(x, self.method)(*sizes)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Permute(RowsApart):
    """Axes in another order."""

    takes_rows = True

    axes: tuple[int, ...]

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        return x.permute(self.axes)

    def mixes_rows(self, axes: int) -> bool:
        return self.axes[0] % axes != 0


@dataclass(frozen=True, eq=False)
class Slice(RowsApart):
    """``getattr(x, method)(*arguments)[index]``, some elements of a value; ``x[index]`` without a method.

    Attributes:
        method: ``"chunk"``, ``"split"`` or ``""``.
    """

    takes_rows = True

    method: str
    arguments: tuple[int, ...]
    index: int | tuple[int | slice | EllipsisType, ...]

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        whole: Tensor = getattr(x, self.method)(*self.arguments) if self.method else x
        return whole[self.index]

    def mixes_rows(self, axes: int) -> bool:
        return bool(self.method) and self.arguments[1] % axes == 0


@dataclass(frozen=True, eq=False)
class Mean(RowsApart):
    """The mean over axes."""

    takes_rows = True

    axes: tuple[int, ...]
    keep: bool

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        return x.mean(self.axes, self.keep)

    def mixes_rows(self, axes: int) -> bool:
        return any(axis % axes == 0 for axis in self.axes)
