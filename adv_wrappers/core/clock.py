"""The clock: root key, episode, step and strikes of every row, through every autoreset mode.

For one environment the fields are Python integers, for vectors on the host numpy arrays ``[B]``, for environments
whose observations are tensors int64 tensors ``[B]`` on their device. The arithmetic below is the same for all three
(``t * True`` is ``t``), so nothing is written twice and nothing leaves the device.

t is the index of the newest observation in its episode; t = 0 is the reset observation. An action layer sees the t of
the observation that the action answers.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import torch

from adv_wrappers.core import rng
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.numbers import integer

Seeds = int | list[int | None] | None


class Clock:
    """Counters of ``rows`` environments; ``rows=None`` is a single environment with plain integers.

    ``roots`` are the keys of rows that no reset has given a seed.
    """

    def __init__(self, rows: int | None, device: torch.device | None = None, roots: list[int] | None = None) -> None:
        self.rows, self.device = rows, device
        fresh = roots or [secrets.randbits(64) for _ in range(rows or 1)]
        self.root: Any = fresh[0] if rows is None else self._array(fresh)
        self.episode = self._zeros()
        self.t, self.spent = self._zeros(), self._zeros()
        self._step_key: Any = None
        self._episode_key: Any = None

    def _array(self, values: list[int]) -> Any:
        array = rng.roots(values)
        return array if self.device is None else rng.as_tensor(array, len(values), self.device)

    def _zeros(self) -> Any:
        if self.rows is None:
            return 0
        if self.device is None:
            return np.zeros(self.rows, np.int64)
        return torch.zeros(self.rows, dtype=torch.int64, device=self.device)

    def reset(self, seed: Seeds = None, mask: Any = None) -> None:
        """Begin a new episode in every row, or in the rows of ``mask`` (bool ``[B]``).

        Rows that are given a seed start again at episode 0 under that seed: row i of an integer seed s has s + i.
        """
        if self.rows is None:
            if seed is None:
                self.episode += 1
            else:
                self.root, self.episode = rng.root(_seed(seed)), 0
            self.t = self.spent = 0
            self._step_key = self._episode_key = None
            return
        seeds = self.check(seed, mask)
        if mask is None:
            self.episode, self.t, self.spent = self.episode + 1, self._zeros(), self._zeros()
            self._step_key = self._episode_key = None
        else:
            self.turn(mask)
        for row, value in enumerate(seeds):
            if value is not None and (mask is None or mask[row]):
                key = rng.root(_seed(value))
                self.root[row] = key if self.device is None else rng._signed(key)
                self.episode[row] = 0

    def check(self, seed: Seeds, mask: Any = None) -> list[int | None]:
        """A seed (or None) a row; called before the environment is reset, whose own complaint would be another.

        Of a partial reset, a list may also hold the seeds of the rows of ``mask`` alone, as ALE's arrays do.

        Raises:
            ValueRangeError: for anything but integers of at least 0, one a row or one for all.
        """
        if isinstance(seed, (list, tuple, np.ndarray)) and self.rows is not None:
            seeds = [None if value is None else _seed(value) for value in seed]
            if mask is not None and len(seeds) == mask.sum():
                given = iter(seeds)
                seeds = [next(given) if row else None for row in mask]
        else:
            seeds = [None if seed is None else _seed(seed) + i for i in range(self.rows or 1)]
        if len(seeds) != (self.rows or 1):
            raise ValueRangeError(f"expected {self.rows or 1} seeds, one a row, got {len(seeds)}")
        return seeds

    def turn(self, mask: Any) -> None:
        """A new episode, without a seed, in the rows of ``mask``; the other rows stay."""
        self.episode = self.episode + mask
        self.t = self.t * ~mask
        self.spent = self.spent * ~mask
        self._step_key = self._episode_key = None

    def tick(self, moved: Any = True) -> None:
        """One step forward in the rows of ``moved``."""
        self.t = self.t + moved
        self._step_key = None

    def pay(self, struck: Any) -> None:
        """Count strikes against the budget of the episode."""
        self.spent = self.spent + struck

    def key(self) -> rng.Key:
        """The key of (root, episode, t), from which every stream is folded."""
        if self._step_key is None:
            self._step_key = rng.fold(self.episode_key(), self.t)
        return self._step_key

    def episode_key(self) -> rng.Key:
        """The key of (root, episode), the same at every step of an episode."""
        if self._episode_key is None:
            self._episode_key = rng.fold(self.root, self.episode)
        return self._episode_key


def _seed(seed: Any) -> int:
    return integer("a seed", seed, 0)
