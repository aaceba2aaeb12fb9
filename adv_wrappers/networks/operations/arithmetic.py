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
from adv_wrappers.networks.operations.linear_bounds import (
    MIXED,
    Bounds,
    BoundStep,
    Total,
    Values,
    broadcast_back,
    largest,
    products,
)
from adv_wrappers.networks.operations.operation import Elementwise, Memory, Operation
from adv_wrappers.networks.policy_layers import Normalize


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
    """

    several = True
    frees_output = True
    takes_rows = True

    how: Literal["sum", "difference", "product", "concatenate"]
    axis: int = -1

    def __call__(self, *values: Tensor) -> Tensor:
        if self.how == "concatenate":
            return torch.cat(values, self.axis)
        x, y = values
        return x + y if self.how == "sum" else x - y if self.how == "difference" else x * y

    def run(self, values: tuple[Tensor, ...], memory: Memory) -> Tensor:
        memory.kept = values
        return self(*values)

    def backward(self, g: Tensor, memory: Memory) -> tuple[Tensor, ...]:
        values: tuple[Tensor, ...] = memory.kept
        if self.how == "concatenate":
            parts: tuple[Tensor, ...] = g.split([part.shape[self.axis] for part in values], self.axis)
            return parts
        # what was broadcast is summed over
        x, y = values
        one, other = (g * y, g * x) if self.how == "product" else (g, g.clone() if self.how == "sum" else -g)
        return (
            one if one.shape == x.shape else one.sum_to_size(x.shape),
            other if other.shape == y.shape else other.sum_to_size(y.shape),
        )

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

    def relax(self, values: Values, sources: tuple[int, ...]) -> tuple[BoundStep | None, Bounds | None]:
        if self.how != "product":
            return super().relax(values, sources)
        boxes = {source: values.box(source, torch.lt) for source in set(sources)}
        first, second = sources
        return ProductStep((first, second), (boxes[first], boxes[second])), None

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        if self.how == "concatenate":
            return self(*variances)
        first, second = variances
        if self.how == "product":
            first, second = first * largest(*boxes[1]).square(), second * largest(*boxes[0]).square()
        return first + second + (eps * after).square()


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
