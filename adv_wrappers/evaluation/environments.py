"""The environments that evaluations step: an id, a function, or a game behind the classic Atari preprocessing."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from adv_wrappers.core.errors import AdvWrappersError, SpaceError
from adv_wrappers.victims import environment_of
from adv_wrappers.victims.victim import Victim

Make = Callable[..., gym.Env[Any, Any]]


class Fire(gym.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE after a reset and after every lost life, as games ask for that wait for it."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
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


def atari(id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """An Atari game as agents of the DQN lineage see it: uint8 ``[4, 84, 84]``, the oldest frame first.

    4 skipped frames and the maximum of the last two, grey, 84x84 by area, up to 30 no-ops after a reset, FIRE after a
    reset and after a lost life; rewards are not clipped and a lost life does not end the episode. Perturbations
    belong around it: ``AtariPreprocessing`` reads the emulator's screen itself.

    Args:
        id: such as ``"PongNoFrameskip-v4"`` or ``"ALE/Pong-v5"`` (which keeps its sticky actions unless
            ``repeat_action_probability=0`` is given).
        **kwargs: for ``gymnasium.make``.

    Raises:
        SpaceError: if the id is unknown.
    """
    env = _make(id, {"obs_type": "grayscale", **kwargs, "frameskip": 1})
    return FrameStackObservation(Fire(AtariPreprocessing(env, noop_max=30, frame_skip=4)), 4)


def _make(id: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    try:
        return gym.make(id, **kwargs)
    except AdvWrappersError:
        raise
    except Exception as error:  # whatever an environment's own constructor may raise
        raise SpaceError(f"cannot make the environment {id!r} with {dict(kwargs)}: {error}") from error


def is_atari(id: str) -> bool:
    """Whether the id is a game of the Arcade Learning Environment."""
    try:
        entry = gym.spec(id).entry_point
    except (gym.error.Error, ImportError):
        return False
    return isinstance(entry, str) and entry.startswith("ale_py")


def builder(
    env: str | Make, victim: Victim, env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None
) -> tuple[Callable[[], gym.Env[Any, Any]], str, dict[str, Any]]:
    """A function that makes one environment, its name for the report, and the keyword arguments it is made with.

    Args:
        env: an id, or a function that makes one environment.
        victim: an image victim (uint8 ``[4, 84, 84]``) gets an Atari id behind :func:`atari`.
        env_kwargs: for the id; None takes those of the victim's card where it names the same id.
        make: instead of ``gymnasium.make``, called as ``make(id, **env_kwargs)``.

    Raises:
        SpaceError: if ``env`` is neither, or the id is unknown.
    """
    if callable(env):
        given = dict(env_kwargs or {})
        return lambda: env(**given), getattr(env, "__name__", type(env).__name__), given
    if not isinstance(env, str):
        raise SpaceError(f"expected the id of an environment or a function that makes one, got {env!r}")
    if env not in gym.registry:
        with contextlib.suppress(ImportError):
            importlib.import_module("ale_py")  # registers its ids
    card = environment_of(victim.card) if env_kwargs is None and victim.card else None
    kwargs = dict(card[1] if card is not None and card[0] == env else env_kwargs or {})
    if make is not None:
        return lambda: make(env, **kwargs), env, kwargs
    space = victim.observation_space
    if isinstance(space, spaces.Box) and space.shape == (4, 84, 84) and space.dtype == "uint8" and is_atari(env):
        return lambda: atari(env, **kwargs), env, kwargs
    return lambda: _make(env, kwargs), env, kwargs


# The lowest return that the rules of a game allow, by its name without namespace and version.
MINIMA: dict[str, float] = {
    "Acrobot": -500.0, "CartPole": 0.0, "FrozenLake": 0.0, "InvertedPendulum": 0.0,
    "MountainCar": -200.0, "Boxing": -100.0, "Breakout": 0.0, "Freeway": 0.0, "MsPacman": 0.0, "Pong": -21.0,
    "Qbert": 0.0, "RoadRunner": 0.0, "Seaquest": 0.0, "SpaceInvaders": 0.0,
}  # fmt: skip


def minimum_of(id: str) -> float | None:
    """The lowest possible return of an id (see ``MINIMA``), or None where the rules set none.

    >>> minimum_of("PongNoFrameskip-v4"), minimum_of("ALE/Pong-v5"), minimum_of("Hopper-v5")
    (-21.0, -21.0, None)
    """
    name = re.sub(r"-v\d+$", "", id.split(":")[-1].split("/")[-1])
    return MINIMA.get(re.sub(r"(NoFrameskip|Deterministic)$", "", name))
