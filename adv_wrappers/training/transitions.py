"""Trajectories: what a model of an environment is learned from, played or recorded by somebody.

Algorithm 1 of Weng et al. 2020 plays one policy; their algorithm 2 plays two, the victim and random actions, for as
many transitions each. A victim under attack visits states that neither of them does, so every second row of the
victim's plays with noise on its actions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from adv_wrappers.core.spaces import numbered_as
from adv_wrappers.core.types import Array, Space
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.reading import decoding
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import AnyVectorEnv


@dataclass(frozen=True)
class Trajectories:
    """What N environments returned over T steps, arrays ``[T, N, ...]`` in float32; ``over`` ends an episode.

    Attributes:
        obs, act: observations ``[T, N, n]``, and the actions ``[T, N, k]`` that the environments received there, those
            of a Discrete space one-hot.
        next_obs: what they returned, ``[T, N, n]``: the last observation of an episode, not the first of the next.
        reward: ``[T, N]``.
        over: bool ``[T, N]``, whether the episode ended by this step.
    """

    obs: Array
    act: Array
    next_obs: Array
    reward: Array
    over: Array

    def __len__(self) -> int:
        """The number of transitions."""
        return int(self.over.size)

    def split(self, steps: int) -> tuple[Trajectories, Trajectories]:
        """The first ``steps`` steps of every environment, and the others."""
        parts = (
            Trajectories(*(getattr(self, each.name)[where] for each in fields(self)))
            for where in (slice(None, steps), slice(steps, None))
        )
        first, second = parts
        return first, second

    def to_bytes(self) -> bytes:
        """As a file of safetensors."""
        return save({each.name: np.ascontiguousarray(getattr(self, each.name)) for each in fields(self)})

    @classmethod
    def read(cls, path: Path) -> Trajectories:
        """The trajectories of a file; :class:`CardError` for a file of something else."""
        with decoding(f"{path} as trajectories"), safe_open(path, "np") as file:
            return cls(**{each.name: file.get_tensor(each.name) for each in fields(cls)})


def recorded_trajectories(episodes: Iterable[Any], n: int, k: int) -> Trajectories:
    """Episodes that somebody recorded, one after the other as those of one environment, ``[T, 1, ...]``.

    Args:
        episodes: each with ``observations`` ``[T + 1, n]``, ``actions`` ``[T, k]`` and ``rewards`` ``[T]``, as those of
            Minari's datasets have them.
        n, k: how many numbers an observation and an action are.

    Raises:
        ValueRangeError: for episodes of another form, numbers that are not finite, and none at all.
    """
    parts: list[tuple[Array, Array, Array]] = []
    for i, episode in enumerate(episodes):
        try:
            obs, act, reward = (
                np.asarray(getattr(episode, name), np.float32) for name in ("observations", "actions", "rewards")
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueRangeError(
                f"recorded episodes have observations, actions and rewards that are arrays, got "
                f"{type(episode).__name__} as number {i} ({error!s:.200})"
            ) from error
        if reward.ndim != 1 or act.shape != (len(reward), k) or obs.shape != (len(reward) + 1, n):
            raise ValueRangeError(
                f"expected recorded episodes with observations [T + 1, {n}], actions [T, {k}] and rewards [T], got "
                f"{obs.shape}, {act.shape} and {reward.shape} as number {i}"
            )
        if not all(np.isfinite(part).all() for part in (obs, act, reward)):
            raise ValueRangeError(f"the recorded episode number {i} holds numbers that are not finite")
        if len(reward):
            parts.append((obs, act, reward))
    if not parts:
        raise ValueRangeError("there is no transition in the recorded episodes")

    def joined(each: Iterable[Array]) -> Array:
        return np.concatenate(list(each))[:, None]

    over = joined(np.arange(len(reward)) == len(reward) - 1 for _, _, reward in parts)
    obs, then = (joined(part[0][where] for part in parts) for where in (slice(None, -1), slice(1, None)))
    return Trajectories(obs, joined(part[1] for part in parts), then, joined(part[2] for part in parts), over)


MakeEnvs = Callable[[int], AnyVectorEnv]


def collect(
    make_envs: MakeEnvs,
    victim: Victim | None,
    steps: int,
    rows: int,
    entropy: tuple[int, ...],
    noise: float = 0.0,
    progress: Callable[[int], None] | None = None,
) -> Trajectories:
    """Play ``steps`` steps in each of ``rows`` environments, whose actions are a Box of one dimension or Discrete.

    Args:
        make_envs: makes as many environments side by side, in DISABLED autoreset mode.
        victim: who acts, as it plays in an evaluation; None for actions drawn evenly from the action space.
        steps, rows: how many of either.
        entropy: integers that all seeds and draws are derived from.
        noise: standard deviation of Gaussian noise on the victim's actions in every second row, as a fraction of half
            their range (of 1 where they are unbounded); of Discrete actions the share that is drawn evenly instead.
        progress: called with the number of transitions after every step of all rows.

    Raises:
        ValueRangeError: for observations or rewards that are not finite.
    """
    draw = np.random.default_rng(entropy)
    envs = make_envs(rows)
    try:
        space = envs.single_action_space
        space = space if victim is None else numbered_as(victim.action_space, space)
        actions = _ActionDraws(space, noise, rows, draw)
        runner = None if victim is None else PolicyRunner(victim, rows)
        seeds = _seeds(draw, rows)
        obs, _ = envs.reset(seed=seeds)  # type: ignore[arg-type]  # None: no seed
        if runner is not None:
            runner.reset(None, seeds)
        n, k = obs.shape[1], actions.width
        whole = (steps, rows)
        seen, acted, then, reward = (np.zeros((*whole, *size), np.float32) for size in ((n,), (k,), (n,), ()))
        found = Trajectories(seen, acted, then, reward, np.zeros(whole, bool))
        for t in range(steps):
            act = actions.drawn() if runner is None else actions.disturbed(runner.act(obs))
            found.obs[t], found.act[t] = obs, actions.numbers(act)
            obs, reward, ended, cut, _ = envs.step(act)
            over = ended | cut
            found.next_obs[t], found.reward[t], found.over[t] = obs, reward, over
            if not (np.isfinite(found.next_obs[t]).all() and np.isfinite(found.reward[t]).all()):
                raise ValueRangeError(f"the environment returned what is not finite: {obs}, rewards {reward}")
            if over.any():
                obs = _reset(envs, runner, over, draw)
            if progress is not None:
                progress((t + 1) * rows)
        return found
    finally:
        envs.close()


class _ActionDraws:
    """Actions drawn evenly from a space, and those of a victim with noise in every second row."""

    def __init__(self, space: Space, noise: float, rows: int, draw: np.random.Generator) -> None:
        self.space, self.rows, self.draw = space, rows, draw
        odd = np.arange(rows) % 2
        if isinstance(space, spaces.Discrete):
            self.width, self.share = int(space.n), noise * odd
            return
        assert isinstance(space, spaces.Box)
        self.low, self.high = space.low.astype(np.float64), space.high.astype(np.float64)
        bounded = np.isfinite(self.high - self.low)
        self.half = np.where(bounded, (self.high - self.low) / 2, 1.0)
        self.least = np.where(bounded, self.low, -1.0)
        self.width, self.spread = len(self.half), noise * self.half * odd[:, None]

    def drawn(self) -> Array:
        """Native actions, ``[rows, ...]``."""
        if isinstance(self.space, spaces.Discrete):
            return self.draw.integers(self.width, size=self.rows) + int(self.space.start)
        shape = self.rows, self.width
        return (self.least + self.draw.random(shape) * 2 * self.half).astype(self.space.dtype)

    def disturbed(self, act: Array) -> Array:
        """The victim's actions with noise."""
        if isinstance(self.space, spaces.Discrete):
            return np.where(self.draw.random(self.rows) < self.share, self.drawn(), act)
        noisy = act + self.spread * self.draw.standard_normal((self.rows, self.width))
        return np.clip(noisy, self.low, self.high).astype(self.space.dtype)

    def numbers(self, act: Array) -> Array:
        """Native actions as numbers, ``[rows, k]``."""
        if isinstance(self.space, spaces.Discrete):
            one_hot: Array = np.eye(self.width)[act - int(self.space.start)]
            return one_hot
        return act


def _seeds(draw: np.random.Generator, rows: int) -> list[int | None]:
    return [int(seed) for seed in draw.integers(2**31, size=rows)]


def _reset(
    envs: AnyVectorEnv, runner: PolicyRunner | None, over: NDArray[np.bool_], draw: np.random.Generator
) -> Array:
    """The observations after the rows of ``over`` have begun new episodes."""
    seeds = [seed if ended else None for seed, ended in zip(_seeds(draw, len(over)), over, strict=True)]
    obs, _ = envs.reset(seed=seeds, options={"reset_mask": over})  # type: ignore[arg-type]  # None: no seed
    if runner is not None:
        runner.reset(over, seeds)
    return np.asarray(obs)
