"""The environments of evaluations: an id, a function, or a game behind the classic Atari preprocessing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from adv_wrappers.atari.games import is_atari, make_environment
from adv_wrappers.atari.preprocessing import atari
from adv_wrappers.core.threat import fits
from adv_wrappers.core.types import JSON, Space
from adv_wrappers.errors import AdvWrappersError, SpaceError
from adv_wrappers.evaluation.make_function import MakeFunction
from adv_wrappers.victims import environment_of
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.base import AnyEnv
from adv_wrappers.wrappers.dmc import PREFIX, dmc
from adv_wrappers.wrappers.order import check_order

MakeEnv = Callable[..., AnyEnv]
EnvFactory = Callable[[], AnyEnv]
EnvKwargs = Mapping[str, Any]
_SHOWN = 64  # numbers of an array that are written out


def environment_factory(
    env: str | MakeEnv, victim: Victim, env_kwargs: EnvKwargs | None = None, make: MakeEnv | None = None
) -> tuple[EnvFactory, str, dict[str, Any]]:
    """A function that makes one environment, its name for the report, and the keyword arguments that it gets.

    Args:
        env: an id, or a function that makes one environment.
        victim: the agent; for one that sees uint8 ``[4, 84, 84]`` an Atari id is made by
            :func:`adv_wrappers.atari.atari`, and for one that sees a vector an id of the DeepMind Control Suite by
            :func:`adv_wrappers.dmc`.
        env_kwargs: keyword arguments; None takes those of the victim's card if it names the same id.
        make: a function called as ``make(id, **env_kwargs)`` instead of ``gymnasium.make``.

    Raises:
        SpaceError: if ``env`` is neither an id nor a function.
    """
    if callable(env):
        given = dict(env_kwargs or {})
        return lambda: env(**given), getattr(env, "__name__", type(env).__name__), given
    if not isinstance(env, str):
        raise SpaceError(f"expected the id of an environment or a function that makes one, got {env!r}")
    card = environment_of(victim.card) if env_kwargs is None and victim.card else None
    kwargs = dict(card[1] if card is not None and card[0] == env else env_kwargs or {})
    if make is not None:
        return lambda: make(env, **kwargs), env, kwargs
    space = victim.observation_space
    if isinstance(space, spaces.Box) and space.shape == (4, 84, 84) and space.dtype == "uint8" and is_atari(env):
        return lambda: atari(env, **kwargs), env, kwargs
    if isinstance(space, spaces.Box) and env.startswith(PREFIX):
        return lambda: dmc(env, **kwargs), env, kwargs
    return lambda: make_environment(env, kwargs), env, kwargs


def described_environment(
    name: str, kwargs: Mapping[str, object], make: MakeEnv | None = None, env: str | MakeEnv | None = None
) -> dict[str, JSON]:
    """An environment as reports and folders know it: one that another function makes is another environment.

    Args:
        name, kwargs: as :func:`environment_factory` returns them.
        make, env: as for :func:`environment_factory`.

    Returns:
        ``id`` and ``kwargs``; with a function that makes it ``make``, its name, such as ``"module:function"``.
    """
    about: dict[str, JSON] = {"id": name, "kwargs": dict(kwargs)}
    function = env if callable(env) else make
    if function is not None:
        about["make"] = text_of_function(function)
    return about


def text_of_function(function: Callable[..., object]) -> str:
    """A function's name, such as ``"module:function"``."""
    if isinstance(function, MakeFunction):
        return function.text
    return f"{getattr(function, '__module__', '')}:{_qualified_name(function)}"


def json_value(value: object) -> JSON:
    """A value as a file holds it: arrays by their dtype and numbers, or hash, functions and other objects by a name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        few = value.size <= _SHOWN and value.dtype != object
        numbers = {"values": value.tolist()} if few else {"sha256": hashlib.sha256(value.tobytes()).hexdigest()}
        return {"dtype": str(value.dtype), "shape": list(value.shape), **numbers}
    if isinstance(value, Mapping):
        return {str(key): json_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(part) for part in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return text_of_function(value) if callable(value) else f"<{type(value).__module__}.{type(value).__qualname__}>"


def can_be_known(victim: Victim | None, *environment: object) -> bool:
    """Whether a file can tell a victim, and what its environments are made by and with, from others.

    It cannot for a victim that is a function, for a lambda, a method or a partial, and for objects of one's own among
    keyword arguments.

    Args:
        victim: the agent, or None.
        environment: ids, functions and keyword arguments.
    """
    return (victim is None or victim.is_known) and all(map(is_named, environment))


def is_named(value: object) -> bool:
    """Whether :func:`json_value` tells a value from others: of functions it is no lambda, method or partial."""
    if isinstance(value, Mapping):
        return all(map(is_named, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_named, value))
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    if callable(value):
        return isinstance(value, MakeFunction) or bool(_qualified_name(value).isidentifier())
    return value is None or isinstance(value, (bool, int, float, str, np.generic, os.PathLike))


def _qualified_name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__qualname__", f"<{type(function).__qualname__}>"))


def make_or_refuse(make_env: EnvFactory) -> AnyEnv:
    """An environment; :class:`SpaceError` for one that cannot be made, whatever a user's function raises."""
    try:
        return make_env()
    except AdvWrappersError:
        raise
    except Exception as error:
        raise SpaceError(f"cannot make the environment: {error}") from error


def spaces_of(make_env: EnvFactory, victim: Victim) -> tuple[Space, Space]:
    """The observation and the action space of an environment, which is made, checked against a victim, and closed.

    Raises:
        SpaceError: for one that cannot be made.
        AdvWrappersError: one of its kinds, for layers in an order that cannot work, and a victim that does not fit.
    """
    env = make_or_refuse(make_env)
    try:
        check_order(env)
        fits(victim, env.observation_space, env.action_space)
        return env.observation_space, env.action_space
    finally:
        env.close()
