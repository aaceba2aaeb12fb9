"""What linear bounds are made of: combinations of values, lines around functions, and steps of the way back.

Rows are combinations of the elements of a value, ``[B or 1, M, *S]``. A :class:`BoundStep` writes combinations of what
an operation answers as combinations of what it takes (Zhang, Weng et al. 2018, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from adv_wrappers.errors import ValueRangeError

Bounds = tuple[Tensor, Tensor]
Shape = tuple[int, ...]
RowsByValue = dict[int, Tensor]  # by the number of a value: combinations of its elements, [B or 1, M, *S]
MIXED = "bounds are of networks that take every row by itself: {} mixes them"


class Lines(NamedTuple):
    """A line below a function and one above it, each by slope and offset."""

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor


class MeanLines(NamedTuple):
    """The mean of the two lines of a function, and half of the lower minus the upper one.

    What bounds ``a f(x)`` from below is then ``a slope + |a| slope_apart`` times x, whatever the sign of ``a``.
    """

    slope: Tensor
    slope_apart: Tensor
    offset: Tensor
    offset_apart: Tensor

    @classmethod
    def of(cls, found: Lines) -> MeanLines:
        """Those of two lines."""
        under, under_offset, over, over_offset = found
        return cls(
            (under + over) / 2, (under - over) / 2, (under_offset + over_offset) / 2, (under_offset - over_offset) / 2
        )


class Total:
    """Numbers ``[B, M]`` for rows, and ``[B, 2 M]`` for rows and minus them, to be added up."""

    def __init__(self, zero: Tensor) -> None:
        self.zero = self.plain = zero
        self.both: Tensor | None = None

    def add(self, one: Tensor, other: Tensor | None, both: bool) -> None:
        """Add ``one``, which has the sign of the rows, and ``other``, which has one sign for rows and minus them.

        Args:
            one, other: ``[B or 1, M]``, or ``[B or 1, 2 M]``; None for nothing.
            both: whether they are of rows and minus them already.
        """
        # numbers of rows alone become those of rows and minus them once there is something that has one sign for both
        if both:
            total = self.split() + one
            self.both = total if other is None else total + other
        elif other is None:
            self.plain = self.plain + one
        elif self.both is None:
            self.both, self.plain = signed(self.plain + one, other), self.zero
        else:
            self.both = self.both + signed(one, other)

    def split(self) -> Tensor:
        """``[B, 2 M]``, without what is not split yet if there was something before that is."""
        if self.both is None:
            self.both, self.plain = with_opposite(self.plain) if self.plain.dim() else self.plain, self.zero
        return self.both

    def __call__(self) -> Tensor:
        """All of it, ``[B, 2 M]``."""
        total = self.split()
        return total + with_opposite(self.plain) if self.plain.dim() else total


class BoundStep:
    """One step of the way back: how a value is made of others.

    Attributes:
        sources: the numbers of the values that it is made of; none where the way back ends.
        after: the box of the value, where bounds that end there may be tighter than those that go on.
    """

    sources: tuple[int, ...]
    after: Bounds | None = None

    def pull(self, rows: Tensor, both: bool, total: Total) -> tuple[Sequence[Tensor], bool]:
        """Rows of the value as rows of those that it is made of; what is constant goes into the total.

        Args:
            rows: ``[B or 1, M, *S]``, or ``[B or 1, 2 M, *S]`` where minus the rows stand behind them.
            both: whether they do.
            total: takes the offsets.

        Returns:
            The rows of each source, and whether minus the rows stand behind them.
        """
        raise NotImplementedError


@dataclass
class BoxStep(BoundStep):
    """Where the way back ends: a box ``[B, *S]`` around the value."""

    sources = ()

    low: Tensor
    high: Tensor

    def pull(self, rows: Tensor, both: bool, total: Total) -> tuple[Sequence[Tensor], bool]:
        low, high = flat(self.low, 1), flat(self.high, 1)
        row = flat(rows, 2)
        middle = torch.lerp(low, high, 0.5)
        total.add(times(row, middle), times(row.abs(), middle - high), both)
        return (), both


class Values(Protocol):
    """The values before an operation, as its relaxation sees them."""

    def box(self, number: int, where: Callable[[Tensor, Tensor], Tensor] | None = None) -> Bounds:
        """The box of a value, made tighter first, where that is asked for, for the elements that ``where`` names."""

    def bound(self, number: int, rows: Tensor, offset: Tensor) -> Bounds:
        """Linear bounds on combinations of the elements of a value, plus an offset."""


def signed(one: Tensor, other: Tensor) -> Tensor:
    """``one + other``, and behind it ``other - one`` along axis 1."""
    sign = one.new_tensor([1.0, -1.0]).view(2, *[1] * (one.dim() - 1))
    return torch.addcmul(other[:, None], one[:, None], sign).flatten(1, 2)


def with_opposite(rows: Tensor) -> Tensor:
    """Rows, and behind them minus the rows, along axis 1."""
    return torch.cat([rows, -rows], 1)


def products(rows: Tensor, offsets: Tensor) -> Tensor:
    """``rows [B or 1, M, *S]`` times offsets ``[B, M or 1, *S]``, summed over S."""
    if offsets.shape[1] == 1:
        return times(flat(rows, 2), flat(offsets, 1))
    return flat(rows * offsets, 2).sum(-1)


def broadcast_back(rows: Tensor, shape: Shape) -> Tensor:
    """Rows ``[B, M, *K]`` of a value that was made of one of ``shape`` by broadcasting, ``[B, M, *S]``."""
    if tuple(rows.shape[2:]) == shape:
        return rows
    if rows.dim() != 2 + len(shape):
        raise ValueRangeError(f"values of shapes {tuple(rows.shape[2:])} and {shape} take several rows for one")
    return rows.sum_to_size(*rows.shape[:2], *shape)


def times(rows: Tensor, x: Tensor) -> Tensor:
    """``rows @ x``, ``[B, M]``, of rows ``[M, N]``, ``[1, M, N]`` or ``[B, M, N]`` and ``x`` ``[B, N]``."""
    if rows.dim() == 2 or len(rows) == 1:
        return x @ (rows if rows.dim() == 2 else rows[0]).T
    if rows.shape[1] <= 8:  # a product of a matrix and a vector for every row of a batch takes longer
        return (rows * x[:, None]).sum(-1)
    return (rows @ x[..., None]).squeeze(-1)


def share_of(point: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Where points lie between others, from 0 to 1."""
    return ((point - first) / (last - first).clamp(min=torch.finfo(point.dtype).tiny)).clamp(0, 1)


def chord_slope(low: Tensor, high: Tensor, at_low: Tensor, at_high: Tensor) -> Tensor:
    """The slope of the line from ``(low, at_low)`` to ``(high, at_high)``; 0 for a point."""
    return (at_high - at_low) / (high - low).clamp(min=torch.finfo(low.dtype).tiny)


def bisected(holds: Callable[[Tensor], Tensor], under: Tensor, over: Tensor) -> tuple[Tensor, Tensor]:
    """The last points for which something holds and the first where not; it does from ``under`` to below ``over``."""
    for _ in range(60):
        middle = (under + over) / 2
        so = holds(middle)
        under, over = torch.where(so, middle, under), torch.where(so, over, middle)
    return under, over


def takes(shape: Shape, *expected: int) -> None:
    """Raise :class:`RuntimeError` unless a shape is the one that is expected."""
    if tuple(shape) != expected:
        raise RuntimeError(f"expected {expected}, got {tuple(shape)}")


def check_width(rows: Tensor, outputs: int) -> None:
    """Raise :class:`ValueRangeError` unless rows combine this many outputs."""
    if rows.shape[-1] != outputs:
        raise ValueRangeError(
            f"a specification has rows of one number for each of the {outputs} outputs, got {rows.shape[-1]}"
        )


def flat(x: Tensor, axes: int) -> Tensor:
    """``x`` with one axis behind its first ``axes``, in the place of all others, or of none."""
    return x.flatten(axes) if x.dim() > axes else x.unsqueeze(axes)


def centre_and_radius(low: Tensor, high: Tensor) -> Bounds:
    """A box by its middle and what it reaches to either side."""
    centre = torch.lerp(low, high, 0.5)
    return centre, high - centre


def largest(low: Tensor, high: Tensor) -> Tensor:
    """The largest absolute values in a box."""
    return torch.maximum(-low, high).clamp(min=0)
