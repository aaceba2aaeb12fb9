"""The first steps of a clean episode, played twice before anything is spent: what they say about the environment.

Runs are paired by the seeds of their episodes: what an attack takes is counted on the same episodes as without it. An
environment that draws its random numbers elsewhere than from ``reset(seed=)``, or keeps a state over its episodes,
plays others each time; one that seeds a global generator, or shares a world with others, does so where several are
played side by side. And budgets are met with the declared space of observations, which true values may lie outside of.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from adv_wrappers.core.action_masks import MASK, mask_choices, unnamed_mask
from adv_wrappers.core.spaces import children, leaf_at
from adv_wrappers.core.types import Array, Space
from adv_wrappers.environments.snapshot import difference
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim

STEPS, MOST_SECONDS = 64, 2  # of an episode that are played twice; fewer where they take longer
MORE_STEPS, MORE_SECONDS = 500, 0.1  # to which one goes on with these actions, again and again
TOGETHER = 16  # steps beside another environment
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

    def step(env: gym.Env[Any, Any], action: Any) -> tuple[Any, ...]:
        obs, reward, terminated, truncated, _ = env.step(copy.deepcopy(action))
        if on_step is not None:
            on_step()
        return copy.deepcopy(obs), float(reward), bool(terminated), bool(truncated)

    def play_first() -> list[_Answer]:
        obs, info = envs[0].reset(seed=seed)
        if space is not None and MASK not in info:
            space.look_for_mask(envs[0].action_space)
        found: list[_Answer] = [(copy.deepcopy(obs),)]
        begin = time.monotonic()
        while len(actions) < MORE_STEPS:
            own = len(actions) < STEPS  # what comes later costs no question to the agent
            actions.append(runner.act_one(obs) if own else actions[len(actions) % STEPS])
            found.append(step(envs[0], actions[-1]))
            obs, late = found[-1][0], MOST_SECONDS if len(actions) < STEPS else MORE_SECONDS
            if True in found[-1][2:] or time.monotonic() > begin + late:
                break
        return found

    def play_again(of: Sequence[gym.Env[Any, Any]], steps: int = MORE_STEPS) -> list[list[_Answer]]:
        """The answers of some environments, which are played side by side."""
        found: list[list[_Answer]] = [[(copy.deepcopy(env.reset(seed=seed)[0]),)] for env in of]
        for action in actions[:steps]:
            for env, answers in zip(of, found, strict=True):
                if True not in answers[-1][2:]:
                    answers.append(step(env, action))
        return found

    # one environment twice: where it differs, a third time tells whether only the first reset was another one
    first = play_first()
    (second,) = play_again(envs[:1])
    # on the way what is seen is compared with the declared space
    if space is not None:
        for answer in first:
            space.look(answer[0], 0)
        space.look_closely([answer[0] for answer in first], envs[0].action_space, victim)
    if where := _difference(first, second):
        (third,) = play_again(envs[:1])
        if _difference(second, third):
            return (
                f"the environment does not repeat: {where} when the episode of the same seed is played again with the "
                f"same actions. {_UNPAIRED} It keeps a state over its episodes, or draws from elsewhere than "
                f"self.np_random, which super().reset(seed=seed) makes"
            )
        first = third
        for env in envs[1:]:
            env.reset(seed=seed)

    # two environments side by side, which may share a world or a generator
    def differs(of: Sequence[gym.Env[Any, Any]]) -> str:
        return next(filter(None, (_difference(first, answers) for answers in play_again(of, TOGETHER))), "")

    # a scene that the first reset loads is loaded the second time
    if len(envs) > 1 and differs(envs[:2]) and (where := differs(envs[:2])):
        if differs(envs[1:2]):
            return (
                f"two environments that are made alike do not repeat each other: {where} when the second plays the "
                f"episode of the same seed with the same actions. {_UNPAIRED} What its __init__ draws is another one "
                f"each time: draw it in reset, from self.np_random, or give it as an argument"
            )
        return (
            f"the environment does not repeat: {where} when another one is played beside it. {_UNPAIRED} They share a "
            f"world or a generator of random numbers, such as NumPy's global one, which reset seeds: draw from "
            f"self.np_random, which super().reset(seed=seed) makes, or play one at a time, num_envs=1"
        )
    return ""


_Answer = tuple[Any, ...]  # an observation, and after a step a reward and two flags
_UNPAIRED = "So runs under attack are not paired with the clean run, and the same call gives other numbers."


def _difference(first: Sequence[_Answer], second: Sequence[_Answer]) -> str:
    """The first answer that differs between two playings, in words; "" for none."""
    for step, (one, two) in enumerate(zip(first, second, strict=False)):
        for name, a, b in zip(("observation", "reward", "terminated", "truncated"), one, two, strict=False):
            if where := difference(a, b, name, _ROUNDING):
                return f"{f'step {step}' if step else 'the reset'} has another {where}"
    return ""


class OutsideSpace:
    """Finds an observation that lies outside of the space that the environment declares.

    Args:
        space: of one observation.

    Attributes:
        found: a sentence about the first one; "" while there is none.
        others: what else does not go with the declared spaces.
        mask: a sentence about a part of observations that may be a mask of actions; "" where none may.
    """

    def __init__(self, space: Space) -> None:
        self._space, self.mask = space, ""
        self.found, self.others, self._leaves = "", list[str](), list(_boxes(space, ()))

    @property
    def said(self) -> str:
        """All of it."""
        return ". ".join(filter(None, (self.found, *self.others)))

    def look_for_mask(self, acted: Space) -> None:
        """Look for a part of a Tuple that has the form of a mask of these actions, and no name."""
        place = unnamed_mask(self._space, mask_choices(acted))
        if place is not None:
            self.mask = (
                f"observation[{place}] has a bit for every action. Attacks on actions heed a mask that has a name "
                f"alone: where this is one, a method action_masks() of the environment that returns it, or "
                f"info['action_mask'], tells them"
            )

    def look_closely(self, observations: Sequence[Any], acted: Space, victim: Victim) -> None:
        """Compare the first observations with the grey levels of images, and the agent's actions with their space."""
        for path, low, high, _ in self._leaves:
            of_leaf = [np.asarray(leaf_at(observation, path)) for observation in observations]
            most = max(float(np.max(leaf)) for leaf in of_leaf)
            if 0 < most <= 1 and (low == 0).all() and (high == 255).all():
                self.others.append(
                    f"observation{''.join(f'[{part!r}]' for part in path)} was never above {most:g} in the first "
                    f"{len(of_leaf)} steps, and the declared space goes to 255: eps is in its units, so 1 is all of "
                    f"such a picture. Where values lie in 0 to 1, declare that (gymnasium.wrappers."
                    f"TransformObservation(env, lambda x: x, gymnasium.spaces.Box(0, 1, {low.shape}, "
                    f"numpy.{low.dtype}))) and give the agent the same space"
                )
        own: Any = victim.action_space
        if (
            isinstance(acted, (spaces.Discrete, spaces.MultiDiscrete))
            and np.any(own.start != acted.start)
            and not victim.from_zero
        ):
            self.others.append(
                f"the agent plays actions of {own}, and the environment declares {acted}: where the same numbers mean "
                f"other actions there, give the agent the environment's own action_space, {acted}"
            )

    def look(self, observation: Any, axes: int = 1) -> None:
        """Look at an observation, or at a batch of them, which has one axis more."""
        if self.found:
            return
        # the first value that lies outside, and where it stands
        for path, low, high, slack in self._leaves:
            values = np.asarray(leaf_at(observation, path))
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
    for key, inner in children(space):
        yield from _boxes(inner, (*path, key))
    if isinstance(space, spaces.Box):
        width = space.high.astype(np.float64) - space.low
        near = np.where(np.isfinite(width), _ROUNDING * width, _ROUNDING) if space.dtype.kind == "f" else 0
        yield path, space.low, space.high, near
