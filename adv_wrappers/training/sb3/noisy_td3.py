"""TD3 and DDPG of Stable-Baselines3 with noise on actions, which SB3's explore without unless they are given some."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise

from adv_wrappers.core.types import Array
from adv_wrappers.utils.checks import number


class NoisyTD3(TD3):
    """TD3 with Gaussian noise on actions from the beginning.

    Args:
        policy, env, **settings: as TD3 takes them.
        exploration_noise: the standard deviation of Gaussian noise on actions in [-1, 1] while the agent learns, at
            least 0; ``action_noise`` takes its place.

    Raises:
        ValueRangeError: for noise below 0.
    """

    def __init__(self, policy: Any, env: Any, *, exploration_noise: float = 0.1, **settings: Any) -> None:
        number("exploration_noise", exploration_noise, 0)
        super().__init__(policy, env, **settings)
        if self.action_noise is None:
            shape = self.action_space.shape or ()
            self.action_noise = NormalActionNoise(np.zeros(shape), np.full(shape, exploration_noise))

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[Array, Array]:
        # no random actions where it fills its buffer again
        return super()._sample_action(0 if self._n_updates else learning_starts, action_noise, n_envs)


class NoisyDDPG(NoisyTD3, DDPG):
    """DDPG with the same noise."""
