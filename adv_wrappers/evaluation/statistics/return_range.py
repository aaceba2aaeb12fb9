"""How low a return can be, from what is known of an environment's rewards: the one source for whatever counts from it.

Certificates assume the least return wherever nothing else is proved, the generalised impact counts from it, and a gate
judges nearly equal returns by it. It is read off the environment itself, not its id: the class of the environment, its
arguments, the limit of steps that its wrapper has, and wrappers that leave rewards as they are. Anything else may have
other rewards, and then nothing is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    MaxAndSkipObservation,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    TimeLimit,
)

from adv_wrappers.atari.ale import PressFire
from adv_wrappers.atari.raw_screen import RawFrames
from adv_wrappers.environments.environment import Environment, named_code
from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.searches.search_tree import step_limit
from adv_wrappers.evaluation.statistics.confidence_intervals import KnownRange
from adv_wrappers.wrappers.layer import AnyEnv, EnvLayer, wrappers_of

_ROUNDING = 1e-12  # of a sum of at most some thousand rewards in float64, relatively


@dataclass(frozen=True)
class LeastReturn:
    """Bounds on what an episode can still earn.

    Attributes:
        reward: the least reward of a step, or None.
        whole: the least return of a whole episode, or None.
        limit: the largest number of steps of an episode, or None.
    """

    reward: float | None
    whole: float | None
    limit: int | None

    @classmethod
    def of(cls, env: AnyEnv) -> LeastReturn:
        """What is known of an environment as it is, its arguments and wrappers included.

        >>> import gymnasium as gym
        >>> from adv_wrappers.evaluation.statistics.return_range import LeastReturn
        >>> LeastReturn.of(gym.make("MountainCar-v0", max_episode_steps=1000))
        LeastReturn(reward=-1.0, whole=None, limit=1000)
        """
        *wrappers, inner = wrappers_of(env)
        steps = {type(wrapper).step for wrapper in wrappers}
        reward, whole = _known_rewards(inner) if steps <= _KEEP_REWARDS | _ADD_REWARDS else (None, None)
        if reward is not None and reward < 0 and steps & _ADD_REWARDS:
            reward = None  # several rewards are one, and how many a limit of steps allows is another question
        return cls(reward, whole, step_limit(env))

    @classmethod
    def create(
        cls, env: AnyEnv, name: str, least_reward: float | None = None, least_return: float | None = None
    ) -> LeastReturn:
        """What is given of an environment, and where nothing is, what is known of it.

        Args:
            env: the environment.
            name: its id, or the name of the function that made it.
            least_reward: the least reward of a step; None takes what :meth:`of` knows.
            least_return: the least return of an episode; None takes what :meth:`of` knows.

        Raises:
            ValueRangeError: where neither is known, and for a negative reward without a limit of steps.
        """
        # what was given counts before what is known
        known = cls.of(env)
        reward = known.reward if least_reward is None else least_reward
        whole = known.whole if least_return is None else least_return
        if reward is None and whole is None:
            raise ValueRangeError(
                f"a lower bound on the return needs the least reward of a step of {name}, which is not known: give "
                "least_reward=, or least_return= for a whole episode"
            )
        if reward is not None and reward < 0 and known.limit is None and whole is None:
            raise ValueRangeError(
                f"rewards of {reward:g} without a limit of steps have no least sum: give least_return=, or "
                "max_episode_steps=N among env_kwargs="
            )
        return cls(reward, whole, known.limit)

    @property
    def lowest(self) -> float | None:
        """The least return of a whole episode, of any number of steps from none to the limit; None where unknown."""
        bounds = [] if self.whole is None else [self.whole]
        if self.reward is not None and self.reward >= 0:
            bounds.append(0.0)
        elif self.reward is not None and self.limit is not None:
            bounds.append(self.reward * self.limit)
        return max(bounds, default=None)

    def after(self, total: float, steps: int) -> float:
        """The least return of an episode that has earned ``total`` in its first ``steps``, and is not over."""
        bounds = [] if self.whole is None else [self.whole]
        if self.reward is not None and (self.limit is not None or self.reward >= 0):
            left = 1 if self.limit is None else self.limit - steps
            rest = min(self.reward, self.reward * left)  # one more step at least, and at most those that are left
            exact = total.is_integer() and rest.is_integer()
            bounds.append(total + rest - (0.0 if exact else _ROUNDING * (abs(total) + abs(rest))))
        return max(bounds)

    def check(self, reward: SupportsFloat, steps: int, over: bool) -> float:
        """The reward of step number ``steps``, after checking that what is known holds.

        Raises:
            ValueRangeError: for a reward below the least one, and for an episode beyond its limit of steps.
        """
        found = float(reward)
        if not found >= (-float("inf") if self.reward is None else self.reward):
            raise ValueRangeError(f"expected rewards of at least least_reward={self.reward:g}, got {found:g}")
        if self.limit is not None and steps >= self.limit and not over:
            raise ValueRangeError(f"an episode goes on after {steps} steps, its limit is {self.limit}")
        return found

    def check_return(self, total: float) -> None:
        """Raise :class:`ValueRangeError` for the return of an episode that is below the least one."""
        if self.whole is not None and total < self.whole:
            raise ValueRangeError(f"expected returns of at least least_return={self.whole:g}, got {total:g}")


def lowest_return(environment: Environment) -> float | None:
    """The least return of an episode of an environment, which is made, looked at and closed; None where unknown.

    Raises:
        SpaceError: for one that cannot be made.
    """
    with closing(environment.make_one()) as env:
        return LeastReturn.of(env).lowest


def known_range(env: AnyEnv) -> KnownRange:
    """The lowest and the highest return of an episode of an environment, each None where it is not known.

    >>> import gymnasium as gym
    >>> from adv_wrappers.evaluation.statistics.return_range import known_range
    >>> known_range(gym.make("CartPole-v1")), known_range(gym.make("Acrobot-v1"))
    ((0.0, 500.0), (-500.0, 0.0))
    """
    *wrappers, inner = wrappers_of(env)
    known = LeastReturn.of(env)
    # the most that a step can earn, if no wrapper changes rewards
    plain = {type(wrapper).step for wrapper in wrappers} <= _KEEP_REWARDS and _known_rewards(inner)[0] is not None
    reward = MOST_REWARDS.get(type(inner).__name__) if plain else None
    if getattr(inner, "_sutton_barto_reward", False):
        reward = None
    # without a limit of steps no sum of positive rewards is the highest
    if reward is None or (reward > 0 and known.limit is None):
        return known.lowest, None
    return known.lowest, reward * (known.limit or 1) if reward > 0 else reward


def described_range(environment: Mapping[str, Any]) -> KnownRange:
    """The :func:`known_range` of an environment of which there is a report alone: its entry ``env``.

    None where another function than Gymnasium's made it, where it cannot be made again from what the report says, and
    where that names a module: importing it would run code of whoever wrote the report.
    """
    if "make" in environment or named_code(str(environment["id"]), environment["kwargs"]) is not None:
        return None, None
    env_id = str(environment["id"])
    limit = getattr(gym.registry.get(env_id), "max_episode_steps", None)
    return _range_of_id(env_id, json.dumps(environment["kwargs"], sort_keys=True), limit)


@lru_cache(maxsize=256)
def _range_of_id(id: str, kwargs: str, limit: int | None) -> KnownRange:
    """The range of an id whose registered limit of steps is this one, which a range depends on."""
    try:
        with closing(Environment(id, json.loads(kwargs)).make_one()) as env:
            return known_range(env)
    except AdvWrappersError:
        return None, None


# The least reward of a step, of environments of Gymnasium by the name of their class.
LEAST_REWARDS: dict[str, float] = {
    "AcrobotEnv": -1.0, "CartPoleEnv": 1.0, "CliffWalkingEnv": -100.0, "InvertedPendulumEnv": 0.0,
    "MountainCarEnv": -1.0, "TaxiEnv": -10.0,
}  # fmt: skip

# The greatest one of those that are known; above 0 with every step of an episode.
MOST_REWARDS: dict[str, float] = {
    "AcrobotEnv": 0.0, "CartPoleEnv": 1.0, "CliffWalkingEnv": -1.0, "InvertedPendulumEnv": 1.0, "MountainCarEnv": -1.0,
}  # fmt: skip

# The lowest score that the rules of a game allow, by ALE's name of it.
LOWEST_SCORES: dict[str, float] = {
    "bank_heist": 0.0, "boxing": -100.0, "breakout": 0.0, "freeway": 0.0, "jamesbond": 0.0, "ms_pacman": 0.0,
    "pong": -21.0, "qbert": 0.0, "riverraid": 0.0, "road_runner": 0.0, "seaquest": 0.0, "space_invaders": 0.0,
    "time_pilot": 0.0,
}  # fmt: skip

# Wrappers whose steps leave rewards as they are, whatever their class adds; and those that add up some of them.
_KEEP_REWARDS = {
    kind.step
    for kind in (
        gym.Wrapper,
        gym.ObservationWrapper,
        gym.ActionWrapper,
        TimeLimit,
        OrderEnforcing,
        PassiveEnvChecker,
        RecordEpisodeStatistics,
        FrameStackObservation,
        EnvLayer,
    )
}
_ADD_REWARDS = {kind.step for kind in (AtariPreprocessing, MaxAndSkipObservation, RawFrames, PressFire)}


def _known_rewards(env: AnyEnv) -> tuple[float | None, float | None]:
    """The least reward of a step and the least return of an episode of an environment without wrappers."""
    kind = type(env)
    package, name = kind.__module__.partition(".")[0], kind.__name__
    # an Atari game in its usual mode, and environments of Gymnasium by their class and arguments
    if package == "ale_py" and name == "AtariEnv":
        usual = not any(getattr(env, key, None) for key in ("_game_mode", "_game_difficulty"))
        return None, LOWEST_SCORES.get(str(getattr(env, "_game", ""))) if usual else None
    if package != "gymnasium":
        return None, None
    if name == "CartPoleEnv" and getattr(env, "_sutton_barto_reward", False):
        return -1.0, -1.0  # for the fall, which ends the episode
    if name == "FrozenLakeEnv":
        reward = float(env.reward_range[0])  # type: ignore[attr-defined]  # of its reward_schedule
        return reward, None
    return LEAST_REWARDS.get(name), None
