"""Games of the Arcade Learning Environment by their ids, and the button that some games wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import ale_py  # noqa: F401  # registers its ids
import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from adv_wrappers.core.types import Info
from adv_wrappers.environments.gym_make import make_environment, spec_of
from adv_wrappers.errors import AdvWrappersError, SpaceError

Frame = NDArray[np.uint8]
Action = int | np.integer[Any]
Options = dict[str, object] | None
AtariGame = gym.Env[Frame, Action]
AtariWrapper = gym.Wrapper[Frame, Action, Frame, Action]


class PressFire(AtariWrapper, RecordConstructorArgs):
    """Presses FIRE after a reset and after every lost life, for games that wait for it.

    Args:
        env: the game to wrap; one without a FIRE button stays as it is.
    """

    def __init__(self, env: AtariGame) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None
        self._lives = 0

    def _remaining_lives(self) -> int:
        return int(self.env.unwrapped.ale.lives())  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: Options = None) -> tuple[Frame, Info]:
        """Reset and press FIRE; the reward of that step, always 0 in the games that need it, is dropped."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._fire is not None:
            obs, _, terminated, truncated, info = self.env.step(self._fire)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        self._lives = self._remaining_lives()
        return obs, info

    def step(self, action: Action) -> tuple[Frame, SupportsFloat, bool, bool, Info]:
        """Step, and press FIRE at once where a life was lost; the rewards of both steps are added."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        lost, self._lives = self._remaining_lives() < self._lives, self._remaining_lives()
        if lost and self._fire is not None and not (terminated or truncated):
            obs, second, terminated, truncated, info = self.env.step(self._fire)
            reward, self._lives = float(reward) + float(second), self._remaining_lives()
        return obs, reward, terminated, truncated, info


def is_atari(id: str) -> bool:
    """Whether the id is a game of the Arcade Learning Environment."""
    try:
        entry = spec_of(id).entry_point
    except SpaceError:
        return False
    return isinstance(entry, str) and entry.startswith("ale_py")


def not_a_game(id: str) -> SpaceError:
    """The error for an id that is no game of the Arcade Learning Environment."""
    return SpaceError(
        f"{id!r} is no game of the Arcade Learning Environment, which atari() and its places raw, frame and stack are "
        f"for: use wrap(gymnasium.make({id!r}), threat)"
    )


def make_game(id: str, kwargs: Mapping[str, object]) -> AtariGame:
    """One game, by an id of ALE or by another id whose environment is one; :class:`SpaceError` for anything else."""
    spec_of(id)
    try:
        env = make_environment(id, kwargs)
    except AdvWrappersError as error:
        raise (error if is_atari(id) else not_a_game(id)) from error
    if not hasattr(env.unwrapped, "ale"):
        raise not_a_game(id)
    return env
