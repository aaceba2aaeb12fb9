"""Registered environments: ``gymnasium.make`` and ``gymnasium.spec`` with the ids of all that is installed.

Those of ALE are registered where this is imported, those of the DeepMind Control Suite when one is asked for.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any

import ale_py  # noqa: F401  # registers its ids
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from adv_wrappers.environments.dmc import register_dmc
from adv_wrappers.errors import AdvWrappersError, SpaceError
from adv_wrappers.utils.object_by_name import import_from_current_directory


def ensure_registered(id: str) -> str:
    """``id``, after the environments of the DeepMind Control Suite are registered if it is one of them.

    The module of ``module:id`` may lie in the current directory.

    Raises:
        SpaceError: for one of them without Shimmy, which registers them.
    """
    register_dmc(id)
    if ":" in id:
        import_from_current_directory()
    return id


def make_environment(id: str, kwargs: Mapping[str, object]) -> gym.Env[Any, Any]:
    """``gymnasium.make(id, **kwargs)``; :class:`SpaceError` for whatever it raises."""
    try:
        return gym.make(ensure_registered(id), **kwargs)  # type: ignore[arg-type]
    except AdvWrappersError:
        raise
    except Exception as error:  # whatever an environment's own constructor may raise
        raise SpaceError(f"cannot make the environment {id!r} with {dict(kwargs)}: {error}") from error


def spec_of(id: str) -> EnvSpec:
    """The registered specification of an id, those of ALE included; :class:`SpaceError` for one that is unknown."""
    module, _, name = id.rpartition(":")
    if module:
        import_from_current_directory()
        with contextlib.suppress(ImportError, TypeError, ValueError):
            importlib.import_module(module)  # registers its ids
    try:
        return gym.spec(ensure_registered(name))
    except gym.error.Error as error:
        raise SpaceError(f"unknown environment {id!r}: {error}") from error
