"""Ids of Atari games, and the button that some of them wait for."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any

import ale_py  # noqa: F401  # registers its ids
import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from adv_wrappers.errors import AdvWrappersError, SpaceError


class Fire(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Presses FIRE after a reset and after every lost life, as games ask for that wait for it."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None
        self._lives = 0

    def _count(self) -> int:
        return int(self.env.unwrapped.ale.lives())  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset and press FIRE; the reward of that step, always 0 in the games that need it, is dropped."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._fire is not None:
            obs, _, terminated, truncated, info = self.env.step(self._fire)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        self._lives = self._count()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and press FIRE at once where a life was lost; the rewards of both steps are added."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        lost, self._lives = self._count() < self._lives, self._count()
        if lost and self._fire is not None and not (terminated or truncated):
            obs, more, terminated, truncated, info = self.env.step(self._fire)
            reward, self._lives = float(reward) + float(more), self._count()
        return obs, reward, terminated, truncated, info


def announced(id: str) -> str:
    """``id``, after letting Gymnasium know the environments of the DeepMind Control Suite, if it is one of them.

    Raises:
        SpaceError: for one of them without Shimmy, which brings them.
    """
    if id.startswith("dm_control/") and id not in gym.registry:
        try:
            import shimmy
        except ImportError as error:
            raise SpaceError(f"{id} needs Shimmy and dm_control: pip install 'adv_wrappers[dmc]'") from error
        gym.register_envs(shimmy)
    return id


def make(id: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """``gymnasium.make``, whose failures are of one kind: :class:`SpaceError`."""
    try:
        return gym.make(announced(id), **kwargs)
    except AdvWrappersError:
        raise
    except Exception as error:  # whatever an environment's own constructor may raise
        raise SpaceError(f"cannot make the environment {id!r} with {dict(kwargs)}: {error}") from error


def known(id: str) -> Any:
    """The registered specification of an id, those of ALE included; :class:`SpaceError` for one that is unknown."""
    module, _, name = id.rpartition(":")
    if module:
        with contextlib.suppress(ImportError, TypeError, ValueError):
            importlib.import_module(module)  # registers its ids
    try:
        return gym.spec(announced(name))
    except gym.error.Error as error:
        raise SpaceError(f"unknown environment {id!r}: {error}") from error


def is_atari(id: str) -> bool:
    """Whether the id is a game of the Arcade Learning Environment."""
    try:
        entry = known(id).entry_point
    except SpaceError:
        return False
    return isinstance(entry, str) and entry.startswith("ale_py")


def no_game(id: str) -> SpaceError:
    """The error for an id that is something else."""
    return SpaceError(
        f"{id!r} is no game of the Arcade Learning Environment, which atari() and its places raw, frame and stack are "
        f"for: use wrap(gymnasium.make({id!r}), threat)"
    )


def game(id: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """One game, by an id of ALE or another that hides one; :class:`SpaceError` for anything else."""
    known(id)
    try:
        env = make(id, kwargs)
    except AdvWrappersError as error:
        raise (error if is_atari(id) else no_game(id)) from error
    if not hasattr(env.unwrapped, "ale"):
        raise no_game(id)
    return env
