"""The algorithms that train policies, what they take, and how a policy is trained: one value, handed on whole."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from adv_wrappers.core.serialization import construct
from adv_wrappers.errors import AdvWrappersError, ThreatError
from adv_wrappers.training.folder import describe_settings
from adv_wrappers.training.sb3.noisy_td3 import NoisyDDPG, NoisyTD3
from adv_wrappers.training.sb3.prioritized_dqn import PrioritizedDQN
from adv_wrappers.utils.checks import check_names, integer, number

# ----------------------------------------------------------------------------------------------------------------------
# Algorithms of Stable-Baselines3 and sb3-contrib with settings of a user's: what they take, and errors that say so.
# ----------------------------------------------------------------------------------------------------------------------


ALGORITHMS: dict[str, type[PPO | A2C | PrioritizedDQN]] = {"ppo": PPO, "a2c": A2C, "dqn": PrioritizedDQN}
_OF_AGENTS: dict[str, type[NoisyTD3]] = {"td3": NoisyTD3, "ddpg": NoisyDDPG}  # adversaries learn by others alone
_OWN = {"policy", "env", "seed", "device", "tensorboard_log", "_init_setup_model"}  # which trainings set themselves
_NO_NAMES = {"self", "args", "kwargs", "settings"}
_SHARES = ("gamma", "gae_lambda")
Model = TypeVar("Model", bound=BaseAlgorithm)


def algorithm_class(algorithm: str) -> type[BaseAlgorithm]:
    """The class of an algorithm by its name, of :data:`.AGENT_ALGORITHMS` or of ``ALGORITHMS``.

    Raises:
        ThreatError: where its library is not installed.
    """
    if algorithm != "recurrent-ppo":
        return {**ALGORITHMS, **_OF_AGENTS}[algorithm]
    try:
        from sb3_contrib import RecurrentPPO
    except ImportError as error:
        raise ThreatError(f"{algorithm} is sb3-contrib's, which is not installed: {error}") from error
    return RecurrentPPO


def setting_names(algorithm: str) -> set[str]:
    """The names of the settings of an algorithm, beside those that a training sets itself."""
    bases = [base for base in algorithm_class(algorithm).__mro__ if issubclass(base, BaseAlgorithm)]
    return {name for base in bases for name in inspect.signature(base).parameters} - _OWN - _NO_NAMES


def check_settings(algorithm: str, settings: Mapping[str, Any]) -> None:
    """Raise :class:`ThreatError` unless an algorithm takes these settings, beside those that a training sets itself.

    Args:
        algorithm: its name, as :func:`algorithm_class` takes it.
        settings: by name.
    """
    if not isinstance(settings, Mapping):
        raise ThreatError(f"settings are a dictionary, got {settings!r:.80}")
    if taken := sorted({*settings} & _OWN):
        raise ThreatError(f"{', '.join(taken)} cannot be set here; AdversaryEnv is for other games and trainings")
    check_names(algorithm_class(algorithm).__name__, settings, setting_names(algorithm))
    if not isinstance(settings.get("policy_kwargs", {}), Mapping):
        raise ThreatError(f"policy_kwargs are a dictionary, got {settings['policy_kwargs']!r:.80}")
    # numbers that SB3 would take and fail by later
    for name in _SHARES:
        if name in settings:
            number(name, settings[name], 0, 1)
    for name in ("n_steps", "batch_size", "n_epochs"):
        integer(name, settings.get(name, 1), 1, error=ThreatError)


def made_model(kind: type[Model], arguments: Mapping[str, object], settings: Mapping[str, object]) -> Model:
    """A model of an algorithm; :class:`ThreatError` where it refuses its settings.

    Args:
        kind: the class of the algorithm.
        arguments: those that a training sets itself.
        settings: all others.
    """
    try:
        return construct(kind, **arguments, **settings)
    except AdvWrappersError:
        raise
    except (AssertionError, ValueError, ZeroDivisionError, RuntimeError, AttributeError) as error:
        raise ThreatError(f"{kind.__name__} cannot take these settings: {type(error).__name__}: {error}") from error


_COMPUTED = ("device", "tensorboard", "workers", "env_workers")  # where a training is computed, and logged


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
        settings: of the algorithm; what is missing takes :mod:`adv_wrappers.training.sb3.hyperparameters`.
        device: of the networks in training; None takes what suits the observations.
        tensorboard: a folder for SB3's logs, or None.
        workers, env_workers: the numbers of processes, this one included, that play the episodes of checkpoints, and
            that step the environments.

    Raises:
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
        check_settings(self.algorithm, self.settings)

    @property
    def checkpoint_every(self) -> int:
        """Steps between two checkpoints."""
        return max(self.steps // self.checks, 1)

    def described(self) -> dict[str, Any]:
        """What its folder knows it by: all of it but where it is computed, and by how many processes."""
        known = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _COMPUTED}
        return {**known, "settings": describe_settings(self.settings)}

    @property
    def logs(self) -> str | None:
        """The folder for SB3's logs, as SB3 takes it."""
        return None if self.tensorboard is None else str(self.tensorboard)
