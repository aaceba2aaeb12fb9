"""An environment whose physical parameters can be set for its next step.

Layers on the dynamics put it around the environment beneath them, and around every row of a vector. It writes what
they propose before a step, and gives the environment its own parameters back where nothing is proposed, at the end of
every episode, before a reset and when it is closed.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from adv_wrappers.core.types import Floats, Info
from adv_wrappers.environments.checked import TransparentEnv
from adv_wrappers.environments.physical_parameters import parameters_of
from adv_wrappers.errors import SimulationError
from adv_wrappers.utils import trees


class ParameterizedEnv(TransparentEnv):
    """Sets the physical parameters of an environment step by step. Specs and texts of environments do not name it.

    Args:
        env: the environment.

    Attributes:
        parameters: of the environment.
        proposed: for the next step, float64 ``[n]``; layers write into it, the outermost first.
        ends_diverged: whether an episode whose simulation diverges is cut off there, with a warning, as trainings want
            it; else it is an error.

    Raises:
        SpaceError: for an environment whose parameters are not known.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.parameters = parameters_of(env)
        self.proposed: Floats = self.parameters.space.nominal.copy()
        self.ends_diverged = False
        self._steps = 0
        self._seen = None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset, with the environment's own parameters."""
        self._restore()
        self._steps = 0
        found = self.env.reset(seed=seed, options=options)
        self.parameters.begin_episode()
        self._seen = found[0]
        return found

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, Info]:
        """One step with the proposed parameters.

        Raises:
            SimulationError: for one that diverges, with its parameters, unless ``ends_diverged``.
        """
        # what was proposed holds for this step alone
        parameters = self.parameters
        parameters.set(self.proposed)
        self.proposed[:] = parameters.space.nominal
        parameters.begin_step()
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        # a simulation that parameters have made diverge is cut off where that is allowed, and else an error
        if parameters.changed and (why := self._fault(obs, reward)):
            text = parameters.space.text_of(parameters.values)
            self._restore()
            diverged = f"the simulation diverged at step {self._steps} with {text}: {why}"
            if not self.ends_diverged:
                raise SimulationError(diverged)
            warnings.warn(f"{diverged}; the episode is cut off there", RuntimeWarning, stacklevel=2)
            return copy.deepcopy(self._seen), 0.0, False, True, {}
        # an episode ends with the environment's own parameters
        if terminated or truncated:
            parameters.restore()
        if self.ends_diverged:
            self._seen = copy.deepcopy(obs)  # which may be the environment's own memory
        return obs, reward, terminated, truncated, info

    def _fault(self, obs: Any, reward: SupportsFloat) -> str:
        for leaf in (*trees.leaves(obs), reward):
            array = np.asarray(leaf)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return f"it returned {array!r:.80}"
        return self.parameters.fault()

    def _restore(self) -> None:
        self.proposed[:] = self.parameters.space.nominal
        self.parameters.restore()

    def close(self) -> None:
        """Restore the parameters, and close."""
        self._restore()
        super().close()


def parameterized(env: gym.Env[Any, Any]) -> tuple[gym.Env[Any, Any], ParameterizedEnv]:
    """An environment with a :class:`ParameterizedEnv` in it, around it unless there is one, and the latter."""
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, ParameterizedEnv):
            return env, inner
        inner = inner.env
    made = ParameterizedEnv(env)
    return made, made
