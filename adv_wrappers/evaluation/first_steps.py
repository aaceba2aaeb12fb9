"""The first steps of a clean episode, played twice before anything is spent: what they say about the environment.

Runs are paired by the seeds of their episodes: what an attack takes is counted on the same episodes as without it. An
environment that draws its random numbers elsewhere than from ``reset(seed=)``, or keeps a state over its episodes,
plays others each time. And budgets are met with the declared space of observations, which true values may lie outside
of.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from adv_wrappers.core.types import Array, Space
from adv_wrappers.environments.snapshot import difference
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim

STEPS, MOST_SECONDS = 64, 2  # of an episode that are played twice; fewer where they take longer
_ROUNDING = 1e-5  # by which two playings may differ, relative and absolute: bodies in contact are not exact


def unrepeated(
    envs: Sequence[gym.Env[Any, Any]],
    victim: Victim,
    seed: int,
    space: OutsideSpace | None = None,
    on_step: Callable[[], None] | None = None,
) -> str:
    """Play the first steps of an episode twice, with the same actions, and say where the second time differs.

    What an environment does at its first reset alone, such as loading a scene that later resets put back, is not held
    against it: all are reset once where a third time is like the second.

    Args:
        envs: environments that are alike, the first of which is played; they are reset.
        victim: acts the first time.
        seed: of the episode.
        space: looks at the observations, or None.
        on_step: called after every step.

    Returns:
        A sentence; "" where nothing differs.
    """
    runner, actions = PolicyRunner(victim, 1), list[Any]()
    runner.reset(None, [seed])

    def play(again: bool = True) -> list[tuple[Any, ...]]:
        obs, _ = envs[0].reset(seed=seed)
        found: list[tuple[Any, ...]] = [(copy.deepcopy(obs),)]
        until, ended = time.monotonic() + MOST_SECONDS, False
        while not ended and len(found) <= (len(actions) if again else STEPS):
            if not again:
                actions.append(runner.act_one(obs))
            obs, reward, terminated, truncated, _ = envs[0].step(actions[len(found) - 1])
            found.append((copy.deepcopy(obs), float(reward), bool(terminated), bool(truncated)))
            if on_step is not None:
                on_step()
            ended = bool(terminated or truncated) or (not again and time.monotonic() > until)
        return found

    first, second = play(again=False), play()
    if space is not None:
        for answer in first:
            space.look(answer[0], 0)
    said = _difference(first, second)
    if said and not _difference(second, play()):
        for env in envs[1:]:
            env.reset(seed=seed)
        return ""
    return said


def _difference(first: Sequence[tuple[Any, ...]], second: Sequence[tuple[Any, ...]]) -> str:
    """A sentence about the first answer that differs between two playings; "" for none."""
    for step, (one, two) in enumerate(zip(first, second, strict=False)):
        for name, a, b in zip(("observation", "reward", "terminated", "truncated"), one, two, strict=False):
            if where := difference(a, b, name, _ROUNDING):
                return (
                    f"the environment does not repeat: {f'step {step}' if step else 'the reset'} has another {where} "
                    f"when the episode of the same seed is played again with the same actions. So runs under attack "
                    f"are not paired with the clean run, and the same call gives other numbers. It keeps a state over "
                    f"its episodes, or draws from elsewhere than self.np_random, which super().reset(seed=seed) makes"
                )
    return ""


class OutsideSpace:
    """Finds an observation that lies outside of the space that the environment declares.

    Args:
        space: of one observation.

    Attributes:
        found: a sentence about the first one; "" while there is none.
    """

    def __init__(self, space: Space) -> None:
        self.found, self._leaves = "", list(_boxes(space, ()))

    def look(self, observation: Any, axes: int = 1) -> None:
        """Look at an observation, or at a batch of them, which has one axis more."""
        if self.found:
            return
        for path, low, high, slack in self._leaves:
            leaf = observation
            for key in path:
                leaf = leaf[key]
            values: Array = np.asarray(leaf)
            outside = (values < low - slack) | (values > high + slack)
            if outside.any():
                at = tuple(np.argwhere(outside)[0].tolist())
                feature = at[axes:]
                name = "".join(f"[{part!r}]" for part in (*path, *feature))
                self.found = (
                    f"observation{name} was {values[at]:.6g}, outside of the declared space ({low[feature]:.6g} to "
                    f"{high[feature]:.6g}). A budget is met with the space, widened to the true value, so an attack "
                    f"may move such a feature towards the space alone: half of its ball is missing. For the whole "
                    f"ball, declare a space that holds the values (gymnasium.wrappers.TransformObservation)"
                )
                return


def _boxes(space: Space, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Array, Array, Any]]:
    """Of the Boxes in a space path, bounds, and what counts as on them.

    Floats that are clipped, scaled or normalised in another precision end just beside a bound.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        pairs: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, inner in pairs:
            yield from _boxes(inner, (*path, key))
    elif isinstance(space, spaces.Box):
        width = space.high.astype(np.float64) - space.low
        near = np.where(np.isfinite(width), _ROUNDING * width, _ROUNDING) if space.dtype.kind == "f" else 0
        yield path, space.low, space.high, near
