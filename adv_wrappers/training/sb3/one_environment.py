"""One environment in the place of several, for simulators of which no second instance may run.

A training steps the environments of either side, and its checkpoints are played in others, but never at the same time.
So all of them can be views of one environment. Whoever resets it plays on in it; the episode of a view that another one
has interrupted is truncated at its next step, in the state that it saw last, and without a reward.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, SupportsFloat

import gymnasium as gym

from adv_wrappers.core.types import Info
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils import trees
from adv_wrappers.wrappers.layer import AnyEnv


def only_one_runs(environment: Environment) -> bool:
    """Whether no second environment can be made beside a first; raises :class:`SpaceError` if not even that can."""
    with closing(environment.make_one()):
        try:
            environment.make_one().close()
        except SpaceError:
            return True
    return False


class OneEnvironment:
    """A function that makes views of one environment, which the first of them makes.

    Args:
        environment: how it is made.

    Attributes:
        played_by: the view that reset it last.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.played_by: View | None = None
        self._env: AnyEnv | None = None

    def __call__(self) -> AnyEnv:
        """A view, whose :meth:`close` leaves the environment open."""
        if self._env is None:
            self._env = self.environment()
        return View(self._env, self)

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()


class View(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that others play in too.

    Args:
        env: the environment.
        one: knows who plays in it.
    """

    def __init__(self, env: AnyEnv, one: OneEnvironment) -> None:
        super().__init__(env)
        self._one, self._seen = one, None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Begin an episode, which interrupts that of any other view."""
        self._one.played_by = self
        obs, info = self.env.reset(seed=seed, options=options)
        self._seen = trees.copy(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, Info]:
        """One step; of an episode that was interrupted the end, in the state that was seen last."""
        if self._one.played_by is not self:
            return self._seen, 0.0, False, True, {}
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._seen = trees.copy(obs)
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        """Nothing: the others go on."""
