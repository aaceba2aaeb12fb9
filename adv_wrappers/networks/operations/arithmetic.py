"""Arithmetic with constants, and what is made of several values.

The product of two values with centres ``c`` and radii ``r`` is ``c_y x + c_x y - c_x c_y``, up to ``r_x r_y`` at most:
below it lies the mean of McCormick's two planes, and so above it (McCormick 1976).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.layers import AppendLogStd, Normalize
from adv_wrappers.networks.operations.operation import Elementwise, Memory, Operation
from adv_wrappers.networks.operations.relaxation import (
    MIXED,
    Bounds,
    BoundStep,
    Shape,
    Total,
    Values,
    broadcast_back,
    flat,
    largest,
    products,
)


@dataclass(frozen=True, eq=False)
class Arithmetic(Elementwise):
    """A constant added to a value, a constant times a value, or a value divided by a constant.

    Attributes:
        how: ``"add"``, ``"multiply"`` or ``"divide"``.
    """

    frees_output = True
    takes_rows = True

    how: str
    by: Tensor | float

    def __call__(self, *values: Tensor) -> Tensor:
        (x,) = values
        return x + self.by if self.how == "add" else x * self.by if self.how == "multiply" else x / self.by

    def is_uniform(self) -> bool:
        return not isinstance(self.by, Tensor) or self.by.numel() == 1

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, by=change(self.by)) if isinstance(self.by, Tensor) else self

    def backward(self, g: Tensor, memory: Memory) -> Tensor:
        g = g if self.how == "add" else self(g)
        return g.sum_to_size(memory.kept.shape) if isinstance(self.by, Tensor) and self.by.dim() else g

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        at_low, at_high = self(low), self(high)
        _check_rows(self, at_low, low)
        if self.how == "add" or (not isinstance(self.by, Tensor) and self.by > 0):
            return at_low, at_high
        return torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)

    def is_affine(self) -> bool:
        return True

    def tight_at_end(self) -> bool:
        return True

    def pull_back(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Sequence[Tensor], Tensor]:
        if self.how == "add":
            return [broadcast_back(rows, shapes[0])], flat(rows * self.by, 2).sum(-1)
        return [broadcast_back(self(rows), shapes[0])], rows.new_zeros(())

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        (variance,), rounded = variances, (eps * after).square()
        if self.how == "add":
            return variance + rounded
        by = torch.as_tensor(self.by, dtype=after.dtype, device=after.device).square()
        return replace(self, by=by)(variance) + rounded

    def as_layer(self) -> nn.Module | None:
        if self.how == "divide" and isinstance(self.by, float) and self.by > 0:
            # of no dimensions, and so of no dtype that would be taken on
            return Normalize(torch.tensor(0.0, dtype=torch.float64), torch.tensor(self.by, dtype=torch.float64))
        return None


@dataclass(frozen=True, eq=False)
class Join(Operation):
    """What is made of several values.

    Attributes:
        how: ``"sum"``, ``"difference"`` and ``"product"`` of two, or ``"concatenate"`` for any number.
        axis: along which values are put side by side.
        constants: tensors between the values that are put side by side, by their place; as many rows as the values.
    """

    several = True
    frees_output = True
    takes_rows = True

    how: Literal["sum", "difference", "product", "concatenate"]
    axis: int = -1
    constants: tuple[tuple[int, Tensor], ...] = ()

    def __call__(self, *values: Tensor) -> Tensor:
        if self.how == "concatenate":
            return torch.cat(self.with_constants(values), self.axis)
        x, y = values
        return x + y if self.how == "sum" else x - y if self.how == "difference" else x * y

    def with_constants(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The values that are put side by side, and the constants in their places."""
        parts = list(values)
        for at, each in self.constants:
            parts.insert(at, each.to(values[0].dtype).expand(len(values[0]), *each.shape[1:]))
        return parts

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, constants=tuple((at, change(each)) for at, each in self.constants))

    def run(self, values: tuple[Tensor, ...], memory: Memory) -> Tensor:
        memory.kept = values
        return self(*values)

    def backward(self, g: Tensor, memory: Memory) -> tuple[Tensor, ...]:
        values: tuple[Tensor, ...] = memory.kept
        if self.how == "concatenate":
            sizes = [part.shape[self.axis] for part in self.with_constants(values)]
            return self._without_constants(g.split(sizes, self.axis))
        x, y = values
        one, other = (g * y, g * x) if self.how == "product" else (g, g.clone() if self.how == "sum" else -g)
        return (
            one if one.shape == x.shape else one.sum_to_size(x.shape),
            other if other.shape == y.shape else other.sum_to_size(y.shape),
        )

    def _without_constants(self, parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        places = {at for at, _ in self.constants}
        return tuple(part for i, part in enumerate(parts) if i not in places)

    def interval(self, low: tuple[Tensor, ...], high: tuple[Tensor, ...]) -> Bounds:
        _check_rows(self, *low)
        if self.how == "difference":
            return low[0] - high[1], high[0] - low[1]
        if self.how != "product":
            return self(*low), self(*high)
        corners = [x * y for x in (low[0], high[0]) for y in (low[1], high[1])]
        return functools.reduce(torch.minimum, corners), functools.reduce(torch.maximum, corners)

    def is_affine(self) -> bool:
        return self.how != "product"

    def pull_back(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Sequence[Tensor], Tensor]:
        offset = rows.new_zeros(())
        if self.how != "concatenate":
            first, second = (broadcast_back(rows, shape) for shape in shapes)
            return [first, second if self.how == "sum" else -second], offset
        axis = self.axis if self.axis < 0 else self.axis - 1 - len(shapes[0])  # from behind, without the rows
        constants, inputs = dict(self.constants), iter(shapes)
        count = len(shapes) + len(constants)
        sizes = [constants[i].shape[-1] if i in constants else next(inputs)[axis] for i in range(count)]
        parts = rows.split(sizes, axis)
        for at, each in self.constants:
            offset = offset + flat(parts[at] * each.to(rows.dtype), 2).sum(-1)
        return self._without_constants(parts), offset

    def relax(self, values: Values, sources: tuple[int, ...]) -> tuple[BoundStep | None, Bounds | None]:
        if self.how != "product":
            return super().relax(values, sources)
        boxes = {source: values.box(source, torch.lt) for source in set(sources)}
        first, second = sources
        return ProductStep((first, second), (boxes[first], boxes[second])), None

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        if self.how == "concatenate":
            return self.with_tensors(torch.zeros_like)(*variances)
        first, second = variances
        if self.how == "product":
            first, second = first * largest(*boxes[1]).square(), second * largest(*boxes[0]).square()
        return first + second + (eps * after).square()

    def as_layer(self) -> nn.Module | None:
        if self.how != "concatenate" or self.axis not in (-1, 1) or len(self.constants) != 1:
            return None
        ((at, log_std),) = self.constants
        return AppendLogStd(log_std) if at == 1 else None


@dataclass
class ProductStep(BoundStep):
    """The product of two values, and their boxes."""

    sources: tuple[int, int]
    boxes: tuple[Bounds, Bounds]

    def pull(self, rows: Tensor, both: bool, total: Total) -> tuple[Sequence[Tensor], bool]:
        (x, x_radius), (y, y_radius) = ((torch.lerp(low, high, 0.5), (high - low) / 2) for low, high in self.boxes)
        total.add(products(rows, -(x * y)[:, None]), products(rows.abs(), -(x_radius * y_radius)[:, None]), both)
        return [broadcast_back(rows * other[:, None], tuple(x.shape[1:])) for x, other in ((x, y), (y, x))], both


def _check_rows(operation: Operation, *values: Tensor) -> None:
    """Values that are broadcast have as many axes, of which the first is that of rows."""
    first = values[0]
    if any(each.dim() != first.dim() or len(each) != len(first) for each in values):
        raise VictimError(MIXED.format(operation))
