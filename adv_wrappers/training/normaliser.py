"""The normaliser of an agent in training: statistics of true observations, which move between rollouts only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd


class Held(RunningMeanStd):
    """Statistics that stay as they are until :meth:`settle`, and for ever if they are ``fixed``."""

    fixed = False

    def update(self, arr: NDArray[Any]) -> None:
        """Nothing: ``VecNormalize`` would move them at every step."""

    def settle(self, true: list[NDArray[Any]]) -> None:
        """Take in batches ``[N, n]`` of true observations."""
        if true and not self.fixed:
            super().update(np.concatenate(true))


def copied(rms: Any, into: Any) -> Any:
    """``into`` with the statistics of another."""
    into.mean, into.var, into.count = rms.mean, rms.var, rms.count
    return into


def hold(normal: Any, fixed: bool) -> None:
    """Make the observation statistics of a ``VecNormalize`` :class:`Held` ones."""
    if normal.norm_obs:
        normal.obs_rms = copied(normal.obs_rms, Held(shape=normal.obs_rms.mean.shape))
        normal.obs_rms.fixed = fixed
