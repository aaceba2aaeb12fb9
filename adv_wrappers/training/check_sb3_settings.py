"""Algorithms of Stable-Baselines3 and sb3-contrib with settings of a user's: what they take, and errors that say so."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from adv_wrappers.core.json_values import construct
from adv_wrappers.errors import AdvWrappersError, ThreatError
from adv_wrappers.training.dqn_of_behzadan_and_hsu import PrioritizedDQN
from adv_wrappers.training.robust_td3 import RobustDDPG, RobustTD3
from adv_wrappers.utils.checks import check_number

ALGORITHMS: dict[str, type[PPO | A2C | PrioritizedDQN]] = {"ppo": PPO, "a2c": A2C, "dqn": PrioritizedDQN}
_OF_AGENTS: dict[str, type[RobustTD3]] = {"td3": RobustTD3, "ddpg": RobustDDPG}  # adversaries learn by others alone
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
    kind, known = algorithm_class(algorithm), setting_names(algorithm)
    if taken := sorted({*settings} & _OWN):
        raise ThreatError(f"{', '.join(taken)} cannot be set here; AdversaryEnv is for other games and trainings")
    if unknown := sorted({*settings} - known):
        raise ThreatError(f"{kind.__name__}: no setting is called {', '.join(unknown)}: {', '.join(sorted(known))}")
    if not isinstance(settings.get("policy_kwargs", {}), Mapping):
        raise ThreatError(f"policy_kwargs are a dictionary, got {settings['policy_kwargs']!r:.80}")
    for name in _SHARES:
        if name in settings:
            check_number(name, settings[name], 0, 1)
    for name in ("n_steps", "batch_size", "n_epochs"):
        value = settings.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ThreatError(f"{name} must be a whole number of at least 1, got {value!r:.80}")


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
