"""The clock: root key, episode, step and attacks of every row, through every autoreset mode.

For one environment the fields are Python integers, for vectors on the host numpy arrays ``[B]``, for environments
whose observations are tensors int64 tensors ``[B]`` on their device. The arithmetic below is the same for all three
(``t * True`` is ``t``), so nothing is written twice and nothing leaves the device.

t is the index of the newest observation in its episode; t = 0 is the reset observation. An action layer sees the t of
the observation that the action answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.core import rng
from adv_wrappers.core.types import Counter, Flags
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import integer

Seeds: TypeAlias = int | Sequence[int | None] | NDArray[np.integer] | None


def row_seeds(seed: Seeds, rows: int | None = None, mask: Flags | None = None) -> list[int | None]:
    """A seed (or None) a row; called before the environment is reset, whose own complaint would be another.

    Args:
        seed: one a row, or one for all: row i of an integer s has s + i. Of a partial reset, a list may also hold the
            seeds of the rows of ``mask`` alone, as ALE's arrays do.
        rows: number of rows; None for a single environment.
        mask: bool ``[B]``, the rows that are reset; None for all.

    Raises:
        ValueRangeError: for anything but integers of at least 0, one a row or one for all.
    """
    if rows is not None and isinstance(seed, (list, tuple, np.ndarray)):
        seeds = [None if value is None else _seed(value) for value in seed]
        unseeded = all(value is None for value in seeds)  # then a mask stays on its device
        chosen = None if mask is None or unseeded else torch.as_tensor(mask).tolist()
        # a list of as many seeds as rows begin has one for each of these
        if chosen is not None and len(seeds) == sum(chosen):
            given = iter(seeds)
            seeds = [next(given) if row else None for row in chosen]
    else:
        seeds = [None if seed is None else _seed(seed) + i for i in range(rows or 1)]
    if len(seeds) != (rows or 1):
        raise ValueRangeError(f"expected {rows or 1} seeds, one a row, got {len(seeds)}")
    return seeds


def _seed(seed: object) -> int:
    return integer("a seed", seed, 0)


class Clock:
    """Counters of ``rows`` environments; ``rows=None`` is a single environment with plain integers.

    Args:
        rows: number of rows, or None.
        device: where the counters live; None for the host.
        roots: keys of the rows that no reset has given a seed; None draws them.

    Attributes:
        first_episode: the number of the episode that begins with a seed, one for all rows or ``[B]``: other numbers
            give the same episode of the environment other random numbers of the attack.
        asked: whether a key was asked for, which random numbers are drawn with; it may be set back.
    """

    first_episode: int | NDArray[np.int64] = 0
    asked = False

    def __init__(self, rows: int | None, device: torch.device | None = None, roots: list[int] | None = None) -> None:
        self.rows, self.device = rows, device
        fresh = roots or [secrets.randbits(64) for _ in range(rows or 1)]
        self.root: Any = fresh[0] if rows is None else self._array(fresh)
        # Any: of a Counter the three kinds do not share what mypy knows of their arithmetic
        self.episode: Any = self._zeros()
        self.t: Any = self._zeros()
        self.spent: Any = self._zeros()
        self._step_key: Any = None
        self._episode_key: Any = None

    def _array(self, values: list[int]) -> Any:
        array = rng.roots(values)
        return array if self.device is None else rng.as_tensor(array, len(values), self.device)

    def _zeros(self) -> Counter:
        if self.rows is None:
            return 0
        if self.device is None:
            return np.zeros(self.rows, np.int64)
        return torch.zeros(self.rows, dtype=torch.int64, device=self.device)

    def reset(self, seed: Seeds = None, mask: Flags | None = None) -> None:
        """Begin a new episode in every row, or in the rows of ``mask`` (bool ``[B]``).

        Rows that are given a seed, as :func:`row_seeds` reads them, start again at ``first_episode`` under that seed.
        """
        seeds = row_seeds(seed, self.rows, mask)
        # a single environment, whose fields are plain numbers
        if self.rows is None:
            if seeds[0] is None:
                self.episode += 1
            else:
                self.root, self.episode = rng.root(seeds[0]), int(self.first_episode)
            self.t = self.spent = 0
            self._step_key = self._episode_key = None
            return
        if mask is None:
            self.episode = self.episode + 1
            self.t = self._zeros()
            self.spent = self._zeros()
            self._step_key = self._episode_key = None
        else:
            self.next_episode(mask)
        unseeded = all(value is None for value in seeds)  # then a mask stays on its device
        chosen = None if mask is None or unseeded else torch.as_tensor(mask).tolist()
        # rows with a seed start again at their first episode under it
        first = np.broadcast_to(self.first_episode, self.rows)
        for row, value in enumerate(seeds):
            if value is not None and (chosen is None or chosen[row]):
                key = rng.root(value)
                self.root[row] = key if self.device is None else rng.signed(key)
                self.episode[row] = int(first[row])

    def next_episode(self, mask: Any) -> None:
        """A new episode, without a seed, in the rows of ``mask``; the other rows stay."""
        self.episode = self.episode + mask
        self.t = self.t * ~mask
        self.spent = self.spent * ~mask
        self._step_key = self._episode_key = None

    def tick(self, moved: Flags = True) -> None:
        """One step forward in the rows of ``moved``."""
        self.t = self.t + moved
        self._step_key = None

    def count(self, attacked: Flags) -> None:
        """Count attacks against the budget of the episode."""
        self.spent = self.spent + attacked

    def key(self) -> Any:
        """The key of (root, episode, t), from which every stream is folded."""
        self.asked = True
        if self._step_key is None:
            if self._episode_key is None:
                self._episode_key = rng.fold(self.root, self.episode)
            self._step_key = rng.fold(self._episode_key, self.t)
        return self._step_key

    def episode_key(self) -> Any:
        """The key of (root, episode), the same at every step of an episode."""
        self.asked = True
        if self._episode_key is None:
            self._episode_key = rng.fold(self.root, self.episode)
        return self._episode_key
