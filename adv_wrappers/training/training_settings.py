"""How a policy is trained: one value, made where a user's arguments come in, and handed on whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from adv_wrappers.training.check_sb3_settings import check_settings
from adv_wrappers.training.training_folder import check_counts


@dataclass(frozen=True)
class Training:
    """How a policy is trained by an algorithm of Stable-Baselines3.

    Attributes:
        steps: environment steps, summed over all environments.
        algorithm: ``"ppo"``, ``"a2c"``, ``"dqn"`` or, of agents, ``"td3"``, ``"ddpg"`` or ``"recurrent-ppo"``.
        num_envs: the number of environments; None takes what suits the observations.
        checks: the number of checkpoints that are compared.
        episodes: the number of episodes that each checkpoint is compared on.
        seed: seeds all randomness.
        settings: of the algorithm; what is missing takes :mod:`adv_wrappers.training.default_sb3_hyperparameters`.
        device: of the networks in training; None takes what suits the observations.
        tensorboard: a folder for SB3's logs, or None.
        workers, env_workers: the numbers of processes, this one included, that play the episodes of checkpoints, and
            that step the environments.

    Raises:
        ValueRangeError: for counts below one, or beyond what any training takes.
        ThreatError: for settings that the algorithm does not take.
    """

    steps: int
    algorithm: str
    num_envs: int | None
    checks: int
    episodes: int
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: str | torch.device | None = None
    tensorboard: str | Path | None = None
    workers: int = 1
    env_workers: int = 1

    def __post_init__(self) -> None:
        rows = {} if self.num_envs is None else {"num_envs": self.num_envs}
        check_counts(steps=self.steps, **rows, checks=self.checks, episodes=self.episodes)
        check_settings(self.algorithm, self.settings)

    @property
    def checkpoint_every(self) -> int:
        """Steps between two checkpoints."""
        return max(self.steps // self.checks, 1)

    @property
    def logs(self) -> str | None:
        """The folder for SB3's logs, as SB3 takes it."""
        return None if self.tensorboard is None else str(self.tensorboard)
