"""Prioritised experience replay (Schaul et al. 2016), the proportional variant, as a buffer of Stable-Baselines3.

A transition is drawn with probability ``p ** alpha`` over their sum, ``p = |TD error| + 1e-6``, and weighs
``(N P) ** -beta`` over the largest such weight (section 3.4).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.core.types import Array, Info
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import check_number

SMALLEST = 1e-6  # added to an error, so that no transition is never drawn again


class SumTree:
    """Non-negative numbers that are drawn in proportion to their size; a tree of two levels, in blocks.

    A block holds about the square root of ``size`` numbers, and above the blocks stand their sums and minima. Two wide
    levels cost NumPy fewer calls than the many levels of a binary tree: a draw of 32 from 50 000 takes 40 us.

    Args:
        size: how many numbers; all are 0 at first.
    """

    def __init__(self, size: int) -> None:
        self.width = math.isqrt(size - 1) + 1
        blocks = -(-size // self.width)
        self.values = np.zeros((blocks, self.width))
        self.sums = np.zeros(blocks)
        self.minima = np.full(blocks, np.inf)  # of the numbers above 0

    def __setitem__(self, where: Array, values: Array | float) -> None:
        """Set numbers by their indices ``[n]``; of an index that is named twice, the last one stays."""
        self.values.reshape(-1)[where] = values
        blocks = where // self.width
        rows = self.values[blocks]
        self.sums[blocks] = rows.sum(1)
        self.minima[blocks] = np.where(rows > 0, rows, np.inf).min(1)

    def __getitem__(self, where: Array) -> Array:
        """Numbers by their indices."""
        found: Array = self.values.reshape(-1)[where]
        return found

    def total(self) -> float:
        """The sum of all numbers."""
        return float(self.sums.sum())

    def minimum(self) -> float:
        """The smallest number above 0; infinity if there is none."""
        return float(self.minima.min())

    def find(self, masses: Array) -> Array:
        """Indices ``[n]`` of the numbers in which cumulative sums ``[n]``, from 0 to the total, fall."""
        ends = self.sums.cumsum()
        blocks = np.minimum(ends.searchsorted(masses, "right"), self.sums.nonzero()[0][-1])
        inside = np.maximum(masses - (ends[blocks] - self.sums[blocks]), 0)
        rows = self.values[blocks]
        within = (rows.cumsum(1) <= inside[:, None]).sum(1)
        last = self.width - 1 - (rows[:, ::-1] > 0).argmax(1)  # rounding may lead past the last number above 0
        found: Array = blocks * self.width + np.minimum(within, last)
        return found


class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws transitions in proportion to a priority, by Schaul et al. (2016).

    A new transition has the highest priority so far. :meth:`sample` draws evenly, as for every other algorithm;
    :meth:`draw` and :meth:`transitions` draw by priority.

    Args:
        buffer_size: transitions, over all environments.
        observation_space, action_space, device, n_envs, optimize_memory_usage, handle_timeout_termination: as for SB3's
            ``ReplayBuffer``.
        alpha: exponent of the priorities: 0 for even draws, 1 for those in proportion to the errors.

    Raises:
        ValueRangeError: for an ``alpha`` out of [0, 1], and for ``optimize_memory_usage``.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        alpha: float = 0.6,
    ) -> None:
        check_number("alpha", alpha, 0, 1)
        if optimize_memory_usage:
            raise ValueRangeError(
                "PrioritizedReplayBuffer keeps both observations of a transition: optimize_memory_usage must be False"
            )
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            handle_timeout_termination=handle_timeout_termination,
        )
        self.alpha = alpha
        self.tree = SumTree(self.buffer_size * self.n_envs)
        self.highest = 1.0  # priority ** alpha
        self._rows = np.arange(self.n_envs)

    def add(self, obs: Array, next_obs: Array, action: Array, reward: Array, done: Array, infos: list[Info]) -> None:
        if self.alpha:
            self.tree[self.pos * self.n_envs + self._rows] = self.highest
        super().add(obs, next_obs, action, reward, done, infos)

    def reset(self) -> None:
        super().reset()
        self.tree = SumTree(self.buffer_size * self.n_envs)

    def draw(self, count: int, beta: float) -> tuple[Array, Array]:
        """Transitions by priority, one from each of ``count`` equal parts of their sum; evenly where ``alpha`` is 0.

        Args:
            count: how many.
            beta: exponent of the importance weights: 0 for none, 1 for the full correction.

        Returns:
            Indices ``[count]``, and weights ``[count]`` in (0, 1], float32.

        Raises:
            ValueRangeError: from an empty buffer.
        """
        stored = self.size() * self.n_envs
        if not stored:
            raise ValueRangeError("cannot draw from a replay buffer without transitions")
        # SB3 seeds NumPy's global generator, and its own buffers draw from it
        if not self.alpha:
            return np.random.randint(stored, size=count), np.ones(count, np.float32)
        total = self.tree.total()
        masses = (np.arange(count) + np.random.random_sample(count)) * (total / count)
        found = self.tree.find(masses)
        weights = (self.tree[found] / self.tree.minimum()) ** -beta
        return found, weights.astype(np.float32)

    def transitions(self, found: Array, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """The transitions at indices ``[n]`` that :meth:`draw` returned.

        Args:
            found: the indices.
            env: normalises observations and rewards.
        """
        at = found // self.n_envs, found % self.n_envs
        done = self.dones[at] * (1 - self.timeouts[at])
        parts = (
            self._normalize_obs(self.observations[at], env),
            self.actions[at],
            self._normalize_obs(self.next_observations[at], env),
            done[:, None],
            self._normalize_reward(self.rewards[at][:, None], env),
        )
        return ReplayBufferSamples(*(torch.as_tensor(part, device=self.device) for part in parts))

    def update(self, found: Array, errors: Array) -> None:
        """Set the priorities of transitions at indices ``[n]`` by their TD errors ``[n]``."""
        if not self.alpha:
            return
        values = (np.abs(errors) + SMALLEST) ** self.alpha
        self.tree[found] = values
        self.highest = max(self.highest, float(values.max()))
