"""The arena: episodes on seeds of their own, on which checkpoints of a training are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.rollout import play_episodes
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.recorder import VectorActionRecorder
from adv_wrappers.wrappers.stack import wrap

CHOOSING = 7919  # added to the seed of a training: what it chooses checkpoints on is not what anybody evaluates on


class Arena:
    """Plays the same episodes under one threat after another.

    Args:
        one: makes one environment.
        episodes: of every comparison.
        seed: of the training.
        quantize: as for :func:`adv_wrappers.evaluate`.
    """

    def __init__(self, one: Callable[[], gym.Env[Any, Any]], episodes: int, seed: int, quantize: bool = True) -> None:
        self.seeds = [int(s) for s in np.random.SeedSequence(CHOOSING + seed).generate_state(episodes)]
        self.quantize = quantize
        self.env = SyncVectorEnv([one] * min(episodes, 32), autoreset_mode=AutoresetMode.DISABLED)

    def play(self, victim: Victim, *threats: ThreatModel) -> NDArray[np.float64]:
        """What the victim earns in each episode, ``[episodes]``.

        Raises:
            ValueRangeError: for observations or returns that are not finite.
        """
        recorder = VectorActionRecorder(self.env)
        with one_thread():
            shell = wrap(recorder, *threats, victim=victim, quantize=self.quantize) if threats else recorder
            return play_episodes(shell, recorder, victim, self.seeds).returns

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
