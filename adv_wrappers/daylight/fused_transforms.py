"""Stacks of transforms as kernel passes, each of which reads images once and writes them once.

The result of level tables, shifts and warps is known before the picture is: where every pixel comes from, and what
becomes of every level. So a pass is a :class:`PixelLookup`, then at most one step that computes with several pixels
(four for a bilinear warp, k x k for a median), and another lookup.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.daylight.fixed_point_warp import Map, border_index, neighbours

Levels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class LevelTable:
    """Every level is replaced by another, uint8 ``[256]``."""

    levels: Levels


@dataclass(frozen=True, eq=False)
class PixelGather:
    """Every pixel is copied from another, by its flat index; -1 is the dark outside."""

    index: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BilinearBlend:
    """Every pixel is a bilinear mean of four others by int16 fractions, the row's times 32 plus the column's."""

    indices: NDArray[np.int64]
    fractions: NDArray[np.int16]


@dataclass(frozen=True)
class MedianWindow:
    """Every pixel is the median of k x k pixels."""

    k: int


KernelStep = LevelTable | PixelGather | BilinearBlend | MedianWindow


def shift_step(dx: int, dy: int, border: str, height: int, width: int) -> PixelGather:
    """The step of a shift."""
    row, column = np.arange(height)[:, None] - dy, np.arange(width)[None] - dx
    index = border_index(row, height, border) * width + border_index(column, width, border)
    if border == "zero":
        index = np.where((row >= 0) & (row < height) & (column >= 0) & (column < width), index, -1)
    return PixelGather(index.reshape(-1))


def warp_step(at: Map, border: str, interpolation: str) -> PixelGather | BilinearBlend:
    """The step of a warp: four neighbours a pixel, or the nearest alone."""
    indices = neighbours(at, border, interpolation)
    if interpolation == "nearest":
        return PixelGather(indices[0])
    return BilinearBlend(indices, at.fraction.reshape(-1).astype(np.int16))


class PixelLookup:
    """Level tables and gathers, one after the other, as one of each: which pixels are read, and their levels' table.

    ``codes``, int64 ``[H * W]``: the flat index of a pixel, or -1 - v for the level v; None where all stay in place.
    """

    def __init__(self) -> None:
        self.codes: NDArray[np.int64] | None = None
        self.table: Levels | None = None

    def add(self, piece: LevelTable | PixelGather) -> None:
        """One more step."""
        if isinstance(piece, PixelGather):
            self.codes = self.codes_at(piece.index)
            return
        self.table = piece.levels if self.table is None else piece.levels[self.table]
        if self.codes is not None:
            levels = piece.levels.astype(np.int64)
            self.codes = np.where(self.codes < 0, -1 - levels[(-1 - self.codes).clip(0, 255)], self.codes)

    def codes_at(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The codes at flat indices, of which -1 is dark."""
        return index if self.codes is None else np.where(index < 0, -1, self.codes[index])


class KernelPass:
    """The steps that one kernel takes together."""

    def __init__(self) -> None:
        self.before, self.after = PixelLookup(), PixelLookup()
        self.wide: BilinearBlend | MedianWindow | None = None

    def fits(self, piece: KernelStep) -> bool:
        """Whether one more step fits.

        Medians of seven rows are slow to compile with anything before them, and compute so much that one more pass
        over memory does not count. No gather follows a median, which goes down the columns as they are.
        """
        fresh = self.before.codes is None and self.before.table is None
        if isinstance(piece, MedianWindow):
            return self.wide is None and (fresh or piece.k < 7)
        return not (isinstance(self.wide, MedianWindow) and isinstance(piece, PixelGather)) and not (
            self.wide is not None and isinstance(piece, BilinearBlend)
        )

    def add(self, piece: KernelStep) -> None:
        """One more step."""
        if isinstance(piece, (BilinearBlend, MedianWindow)):
            self.wide = piece
        else:
            (self.before if self.wide is None else self.after).add(piece)

    def gathered(self) -> tuple[NDArray[np.int32], NDArray[np.int16] | None]:
        """Codes and fractions for ``warp_triton.gather``, unless this is a median or moves nothing."""
        if not isinstance(self.wide, BilinearBlend):
            assert self.before.codes is not None
            return self.before.codes[None].astype(np.int32), None
        codes, fractions, last = self.before.codes_at(self.wide.indices), self.wide.fractions, self.after.codes
        if last is not None:
            codes, fractions = codes[:, last.clip(0)], np.where(last < 0, last, fractions[last.clip(0)])
        return codes.astype(np.int32), fractions.astype(np.int16)


def kernel_passes(pieces: list[KernelStep]) -> list[KernelPass]:
    """The fewest passes that take all steps in their order."""
    found: list[KernelPass] = []
    for piece in pieces:
        if not found or not found[-1].fits(piece):
            found.append(KernelPass())
        found[-1].add(piece)
    return found
