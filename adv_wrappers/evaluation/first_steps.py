"""The first steps of a clean episode, played twice before anything is spent: what they say about the environment.

Runs are paired by the seeds of their episodes: what an attack takes is counted on the same episodes as without it. An
environment that draws its random numbers elsewhere than from ``reset(seed=)``, or keeps a state over its episodes,
plays others each time. And budgets are met with the declared space of observations, which true values may lie outside
of.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from adv_wrappers.core.types import Array, Space
from adv_wrappers.victims.recurrent_policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim

STEPS = 64  # of an episode that are played twice
_ROUNDING = 1e-5  # by which two playings may differ, relative and absolute: bodies in contact are not exact


def unrepeated(env: gym.Env[Any, Any], victim: Victim, seed: int, space: OutsideSpace | None = None) -> str:
    """Play the first steps of an episode twice, with the same actions, and say where the second time differs.

    Args:
        env: the environment, which is reset.
        victim: acts the first time.
        seed: of the episode.
        space: looks at the observations, or None.

    Returns:
        A sentence; "" where nothing differs.
    """
    runner, actions = PolicyRunner(victim, 1), list[Any]()
    runner.reset(None, [seed])
    answers: list[list[tuple[Any, ...]]] = []
    for again in (False, True):
        obs, _ = env.reset(seed=seed)
        found: list[tuple[Any, ...]] = [(copy.deepcopy(obs),)]
        while len(found) <= STEPS:
            if not again:
                actions.append(runner.act_one(obs))
            elif len(found) > len(actions):
                break
            obs, reward, terminated, truncated, _ = env.step(actions[len(found) - 1])
            found.append((copy.deepcopy(obs), float(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                break
        answers.append(found)
    if space is not None:
        for answer in answers[0]:
            space.look(answer[0], 0)
    for step, (one, two) in enumerate(zip(*answers, strict=False)):
        for name, first, second in zip(("observation", "reward", "terminated", "truncated"), one, two, strict=False):
            if _differ(first, second):
                where = f"the {name} of step {step}" if step else "the first observation"
                return (
                    f"the environment does not repeat: {where} was {_short(first)}, and {_short(second)} when the "
                    f"episode of the same seed was played again with the same actions. So runs under attack are not "
                    f"paired with the clean run, and the same call gives other numbers. It keeps a state over its "
                    f"episodes, or draws from elsewhere than self.np_random, which super().reset(seed=seed) makes"
                )
    return ""


def said_in(row: Mapping[str, Any]) -> dict[str, str]:
    """What the row of a run says of its environment, a sentence of a kind."""
    checks = row.get("checks") or {}
    return {kind: checks[kind] for kind in ("unrepeated", "outside") if checks.get(kind)}


def _differ(one: Any, two: Any) -> bool:
    """Whether two answers differ by more than rounding."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() != two.keys() or any(_differ(one[key], two[key]) for key in one)
    if isinstance(one, (tuple, list)) and isinstance(two, (tuple, list)):
        return len(one) != len(two) or any(map(_differ, one, two))
    a, b = np.asarray(one), np.asarray(two)
    if a.shape != b.shape or a.dtype.kind not in "biuf" or b.dtype.kind not in "biuf":
        return not np.array_equal(a, b)
    return not np.allclose(a, b, _ROUNDING, _ROUNDING, equal_nan=True)


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:60]


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
        for path, low, high in self._leaves:
            leaf = observation
            for key in path:
                leaf = leaf[key]
            values: Array = np.asarray(leaf)
            outside = (values < low) | (values > high)
            if outside.any():
                at = tuple(np.argwhere(outside)[0].tolist())
                feature = at[axes:]
                name = "".join(f"[{part!r}]" for part in (*path, *feature))
                self.found = (
                    f"observation{name} was {values[at]:.6g}, outside of the declared space ({low[feature]:.6g} to "
                    f"{high[feature]:.6g}). A budget is met with the space, widened to the true value, so an attack "
                    f"may move such a feature towards the space alone: half of its ball is missing. For the whole "
                    f"ball, declare a space that holds the values: gymnasium.wrappers.TransformObservation(env, lambda "
                    f"x: x, gymnasium.spaces.Box(-numpy.inf, numpy.inf, {low.shape}))"
                )
                return


def _boxes(space: Space, path: tuple[Any, ...]) -> Any:
    """Paths, lower and upper bounds of the Boxes in a space that values of their dtype can lie outside of."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        pairs: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, inner in pairs:
            yield from _boxes(inner, (*path, key))
    elif isinstance(space, spaces.Box):
        ends: Any = (-np.inf, np.inf)
        if space.dtype.kind in "iu":
            ends = (np.iinfo(space.dtype).min, np.iinfo(space.dtype).max)
        if (space.low > ends[0]).any() or (space.high < ends[1]).any():
            yield path, space.low, space.high
