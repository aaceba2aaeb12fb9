"""When two actions count as different: what reports call a changed action."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.types import Array, Space

CHANGED_ACTION = 0.05  # of the range of an action: from here on a continuous action counts as changed


class ActionChanges:
    """Compares actions of one space, row by row.

    Args:
        space: of one action.
    """

    def __init__(self, space: Space) -> None:
        self._least_change: NDArray[np.float64] | None = None  # of a continuous action that counts as changed
        if isinstance(space, spaces.Box):
            width = space.high.astype(np.float64) - space.low
            self._least_change = np.where(np.isfinite(width), CHANGED_ACTION * width, CHANGED_ACTION).reshape(-1)

    def __call__(self, a: Array, b: Array) -> NDArray[np.bool_]:
        """Rows whose actions differ, bool ``[n]``; continuous ones by more than ``CHANGED_ACTION`` of their range."""
        a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
        different = a != b if self._least_change is None else np.abs(a - b) > self._least_change
        found: NDArray[np.bool_] = different.any(1)
        return found
