"""Stacks of transforms as passes, each of which reads images once and writes them once.

What a stack of tables, shifts and warps makes of a picture is known before the picture is: where every pixel comes
from, and what becomes of every level. A pass so has a :class:`Look` before the one step that reckons with several
pixels (four for a bilinear warp, k x k for a median), and a look after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.daylight.warp import Map, border_index, neighbours

Levels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Table:
    """Every level becomes another."""

    levels: Levels


@dataclass(frozen=True, eq=False)
class Move:
    """Every pixel comes from one other, by its flat index; -1 is the dark outside."""

    index: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Blend:
    """Every pixel is made of four others by int16 fractions, the row's times 32 plus the column's."""

    indices: NDArray[np.int64]
    fractions: NDArray[np.int16]


@dataclass(frozen=True)
class Median:
    """Every pixel is the median of k x k."""

    k: int


Piece = Table | Move | Blend | Median


def moved(dx: int, dy: int, border: str, height: int, width: int) -> Move:
    """A shift."""
    row, column = np.arange(height)[:, None] - dy, np.arange(width)[None] - dx
    index = border_index(row, height, border) * width + border_index(column, width, border)
    if border == "zero":
        index = np.where((row >= 0) & (row < height) & (column >= 0) & (column < width), index, -1)
    return Move(index.reshape(-1))


def warped(at: Map, border: str, interpolation: str) -> Move | Blend:
    """What a warp is: four neighbours a pixel, or the nearest alone."""
    indices = neighbours(at, border, interpolation)
    return Move(indices[0]) if interpolation == "nearest" else Blend(indices, at.fraction.reshape(-1).astype(np.int16))


class Look:
    """Tables and moves, one after the other: the pixels that are seen, and the table that they are seen through.

    ``codes``, int64 ``[H * W]``: the flat index of a pixel, or -1 - v for the level v; None where all stay in place.
    """

    def __init__(self) -> None:
        self.codes: NDArray[np.int64] | None = None
        self.table: Levels | None = None

    def add(self, piece: Table | Move) -> None:
        """One more step."""
        if isinstance(piece, Move):
            self.codes = self.seen(piece.index)
            return
        self.table = piece.levels if self.table is None else piece.levels[self.table]
        if self.codes is not None:
            levels = piece.levels.astype(np.int64)
            self.codes = np.where(self.codes < 0, -1 - levels[(-1 - self.codes).clip(0, 255)], self.codes)

    def seen(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Codes of what is seen at flat indices, of which -1 is dark."""
        return index if self.codes is None else np.where(index < 0, -1, self.codes[index])


class Pass:
    """Steps that one kernel takes."""

    def __init__(self) -> None:
        self.before, self.after = Look(), Look()
        self.wide: Blend | Median | None = None

    def takes(self, piece: Piece) -> bool:
        """Whether one more step fits.

        Medians of seven rows are slow to compile with anything before them, and have so much to reckon that a reading
        more does not count. Nothing moves after a median, which goes down the columns as they are.
        """
        fresh = self.before.codes is None and self.before.table is None
        if isinstance(piece, Median):
            return self.wide is None and (fresh or piece.k < 7)
        return not (isinstance(self.wide, Median) and isinstance(piece, Move)) and not (
            self.wide is not None and isinstance(piece, Blend)
        )

    def add(self, piece: Piece) -> None:
        """One more step."""
        if isinstance(piece, (Blend, Median)):
            self.wide = piece
        else:
            (self.before if self.wide is None else self.after).add(piece)

    def gathered(self) -> tuple[NDArray[np.int32], NDArray[np.int16] | None]:
        """Codes and fractions for ``warp_triton.gather``, unless this is a median or moves nothing."""
        if not isinstance(self.wide, Blend):
            assert self.before.codes is not None
            return self.before.codes[None].astype(np.int32), None
        codes, fractions, last = self.before.seen(self.wide.indices), self.wide.fractions, self.after.codes
        if last is not None:
            codes, fractions = codes[:, last.clip(0)], np.where(last < 0, last, fractions[last.clip(0)])
        return codes.astype(np.int32), fractions.astype(np.int16)


def passes(pieces: list[Piece]) -> list[Pass]:
    """As few passes as take all steps in their order."""
    found: list[Pass] = []
    for piece in pieces:
        if not found or not found[-1].takes(piece):
            found.append(Pass())
        found[-1].add(piece)
    return found
