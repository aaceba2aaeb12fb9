"""What a perturbation remembers a row: learned actors and planners keep it here, so that threats stay frozen values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from adv_wrappers.core.context import Leaves
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.session import merge, select


class Memory:
    """Leaves ``[rows, ...]`` of one layer, or nothing for a stateless perturbation.

    Args:
        how: the perturbation; its ``initial_memory`` says what every episode begins with.
        rows: number of rows, None for a single environment.
    """

    def __init__(self, how: Any, rows: int | None) -> None:
        self._how, self._rows = how, rows or 1
        self.leaves: Leaves | None = None
        self.forget()

    def recall(self, rows: Any = None) -> Leaves | None:
        """A copy of the memory of some rows (None for all): a perturbation may write into it."""
        if self.leaves is None:
            return None
        return {key: leaf.clone() if rows is None else select(leaf, rows) for key, leaf in self.leaves.items()}

    def remember(self, new: Leaves, struck: Any) -> None:
        """Keep the memory of the rows that were struck: True for all, bool ``[rows]`` tensor, or their numbers."""
        assert self.leaves is not None
        if struck is True:
            self.leaves = new
        elif isinstance(struck, Tensor):
            self.leaves = merge(struck, new, self.leaves)
        else:
            rows = torch.as_tensor(struck)
            self.leaves = {k: old.index_copy(0, rows.to(old.device), new[k]) for k, old in self.leaves.items()}

    def forget(self, mask: Any = None) -> None:
        """Initial memory in the rows of ``mask`` (bool ``[rows]``); None for all."""
        fresh = self._how.initial_memory(self._rows) if isinstance(self._how, Perturbation) else None
        self.leaves = fresh if mask is None or fresh is None else merge(torch.as_tensor(mask), fresh, self.leaves)
