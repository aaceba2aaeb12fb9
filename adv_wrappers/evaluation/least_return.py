"""How low a return can still become, from what is known of an environment's rewards.

A search that stops before it has followed every sequence of actions bounds the return of those that are left: by the
reward so far and the remaining steps times the least reward of a step, or by the least return that a game allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsFloat

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from adv_wrappers.atari.games import is_atari
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.deterministic_episodes import step_limit
from adv_wrappers.evaluation.environments import minimum_of
from adv_wrappers.utils.numbers import number
from adv_wrappers.wrappers.base import AnyEnv, wrappers_of

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
    def create(
        cls, env: AnyEnv, name: str, least_reward: float | None = None, least_return: float | None = None
    ) -> LeastReturn:
        """What is known of an environment.

        Args:
            env: the environment.
            name: its id, or the name of the function that made it.
            least_reward: the least reward of a step; None takes it from a table of environments of Gymnasium.
            least_return: the least return of an episode; None takes that of the Atari games whose rules set one.

        Raises:
            ValueRangeError: where neither is known, and for a negative reward without a limit of steps.
        """
        reward = known_least_reward(env) if least_reward is None else number("least_reward", least_reward)
        whole = minimum_of(name) if least_return is None and is_atari(name) else least_return
        whole = None if whole is None else number("least_return", whole)
        limit = step_limit(env)
        if reward is None and whole is None:
            raise ValueRangeError(
                f"a lower bound on the return needs the least reward of a step of {name}, which is not known: give "
                f"least_reward=, or least_return= for a whole episode"
            )
        if reward is not None and reward < 0 and limit is None and whole is None:
            raise ValueRangeError(
                f"rewards of {reward:g} without a limit of steps have no least sum: give least_return=, or make {name} "
                f"with max_episode_steps="
            )
        return cls(reward, whole, limit)

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


# The least reward of a step, of environments of Gymnasium by the name of their class.
LEAST_REWARDS: dict[str, float] = {
    "AcrobotEnv": -1.0, "CartPoleEnv": 1.0, "CliffWalkingEnv": -100.0, "MountainCarEnv": -1.0, "TaxiEnv": -10.0,
}  # fmt: skip


_KEEP_REWARDS = {kind.step for kind in (TimeLimit, OrderEnforcing, PassiveEnvChecker, gym.ObservationWrapper)}


def known_least_reward(env: AnyEnv) -> float | None:
    """The least reward of a step where the table has it, and no wrapper changes rewards; else None.

    >>> import gymnasium as gym
    >>> from adv_wrappers.certification.least_return import known_least_reward
    >>> known_least_reward(gym.make("CartPole-v1")), known_least_reward(gym.make("MountainCar-v0"))
    (1.0, -1.0)
    """
    *wrappers, inner = wrappers_of(env)
    if not all(type(wrapper).step in _KEEP_REWARDS for wrapper in wrappers):
        return None
    if type(inner).__module__.split(".")[0] != "gymnasium" or getattr(inner, "_sutton_barto_reward", False):
        return None
    return LEAST_REWARDS.get(type(inner).__name__)
