"""Trajectories: what a model of an environment is learned from, played or recorded by somebody.

Algorithm 1 of Weng et al. 2020 plays one policy; their algorithm 2 plays two, the victim and random actions, for as
many transitions each. A victim under attack visits states that neither of them does, so every second row of the
victim's plays with noise on its actions here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from safetensors import safe_open
from safetensors.numpy import save

from adv_wrappers.core.types import Array, Info
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rollout import side_by_side
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.utils.reading import decoding
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import AnyVectorEnv


@dataclass(frozen=True)
class Arrays:
    """Arrays by their names, in memory and as a file of safetensors."""

    def part(self, where: slice) -> Self:
        """The same of some entries of every array."""
        return type(self)(**{each.name: getattr(self, each.name)[where] for each in fields(self)})

    def to_bytes(self) -> bytes:
        """As a file of safetensors."""
        return save({each.name: np.ascontiguousarray(getattr(self, each.name)) for each in fields(self)})

    @classmethod
    def read(cls, path: Path) -> Self:
        """The arrays of a file; :class:`CardError` for a file of something else."""
        with decoding(f"{path} as {cls.__name__.lower()}"), safe_open(path, "np") as file:
            return cls(**{each.name: file.get_tensor(each.name) for each in fields(cls)})


@dataclass(frozen=True)
class Trajectories(Arrays):
    """What N environments returned over T steps, arrays ``[T, N, ...]``; ``over`` ends an episode.

    Attributes:
        obs, act: observations ``[T, N, n]``, and the actions ``[T, N, k]`` that the environments received there.
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
        return self.part(slice(None, steps)), self.part(slice(steps, None))


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

    # one after the other: an observation but the last of an episode, and the one after it
    over = joined(np.arange(len(reward)) == len(reward) - 1 for _, _, reward in parts)
    obs, then = (joined(part[0][where] for part in parts) for where in (slice(None, -1), slice(1, None)))
    return Trajectories(obs, joined(part[1] for part in parts), then, joined(part[2] for part in parts), over)


def kept_or_played(
    folder: TrainingFolder,
    environment: Environment,
    victim: Victim | None,
    transitions: int,
    stream: int,
    progress: Callable[[str, int, int], None] | None,
) -> Trajectories:
    """What a training learns from: in its folder, where it keeps what it has played.

    Args:
        folder: of the training, whose ``about["training"]`` says ``num_envs``, ``seed`` and ``noise``.
        environment: how one is made.
        victim: who plays; None for random actions.
        transitions: how many are played, at least.
        stream: the number of the training's stream of draws.
        progress: called as ``progress("victim" or "random", transitions done, of how many)``.
    """
    how, source = folder.about["training"], "random" if victim is None else "victim"
    steps = math.ceil(transitions / how["num_envs"])
    rows = how["num_envs"]
    name = f"trajectories-{source}.safetensors"
    if folder.out is not None and (folder.out / name).exists():
        return Trajectories.read(folder.out / name)

    def tell(done: int) -> None:
        if progress is not None:
            progress(source, done, steps * rows)

    # played now, and kept for the next call
    found = collect(environment, victim, steps, rows, (how["seed"], stream), how["noise"], tell)
    folder.keep(name, found.to_bytes())
    return found


def collect(
    environment: Environment,
    victim: Victim | None,
    steps: int,
    rows: int,
    entropy: tuple[int, ...],
    noise: float = 0.0,
    progress: Callable[[int], None] | None = None,
) -> Trajectories:
    """Play ``steps`` steps in each of ``rows`` environments, in float32. Actions are a Box ``[k]``.

    Args:
        environment: how one is made.
        victim: who acts, as it plays in an evaluation; None for actions drawn evenly from the action space.
        steps, rows: how many of either.
        entropy: integers that all seeds and draws are derived from.
        noise: standard deviation of Gaussian noise on the victim's actions in every second row, as a fraction of half
            their range (of 1 where they are unbounded).
        progress: called with the number of transitions after every step of all rows.

    Raises:
        ValueRangeError: for observations or rewards that are not finite.
    """
    draw = np.random.default_rng(entropy)
    with closing(side_by_side(environment, rows)) as envs:
        space = envs.single_action_space
        assert isinstance(space, spaces.Box)
        # who acts: the victim, disturbed in every second row, or draws from the action space
        actions = _ActionDraws(space, noise, rows, draw)
        runner = None if victim is None else PolicyRunner(victim, rows)
        episodes = ContinuingEpisodes(envs, [] if runner is None else [runner], draw)
        played = list[list[Array]]()

        def choose(obs: Array) -> Array:
            return actions.drawn() if runner is None else actions.disturbed(runner.act(obs))

        # step by step, as the environment had it
        for *step, _, over in episodes.play(steps, choose):
            played.append([*(np.array(part, np.float32) for part in step), over])
            if progress is not None:
                progress(len(played) * rows)
        return Trajectories(*map(np.stack, zip(*played, strict=True)))


class ContinuingEpisodes:
    """Episodes side by side in environments that policies see: where one ends, another follows.

    Args:
        envs: the environments, in DISABLED autoreset mode.
        runners: of the policies, which begin their episodes with the environments.
        seeds: of the episodes: a generator, which draws for all rows whenever some begin, or seeds one by one.

    Attributes:
        obs: the present observations ``[N, *S]``.
    """

    def __init__(
        self, envs: AnyVectorEnv, runners: Sequence[PolicyRunner], seeds: np.random.Generator | Iterator[int]
    ) -> None:
        self.envs = envs
        self.runners = runners
        self._seeds = seeds
        self.obs: Array
        self._reset(np.ones(envs.num_envs, bool), None)

    def step(self, act: Array) -> tuple[Array, Array, Array, Array]:
        """Step all rows; returns observations, rewards, which episodes terminated, and which ended in any way."""
        self.obs, reward, ended, cut, _ = self.envs.step(act)
        return self.obs, reward, ended, ended | cut

    def play(self, steps: int, choose: Callable[[Array], Array]) -> Iterator[tuple[Array, ...]]:
        """Play; new episodes begin once a step was looked at.

        Args:
            steps: how many, of all rows.
            choose: the actions at observations.

        Yields:
            Of every step the observations, the actions there, and what :meth:`step` returns.

        Raises:
            ValueRangeError: for observations or rewards that are not finite.
        """
        for _ in range(steps):
            before = self.obs
            act = choose(before)
            after, reward, ended, over = self.step(act)
            if not (np.isfinite(after).all() and np.isfinite(reward).all()):
                raise ValueRangeError(f"the environment returned what is not finite: {after}, rewards {reward}")
            yield before, act, after, reward, ended, over
            self.begin(over)

    def begin(self, over: Array) -> None:
        """Begin new episodes in the rows of ``over``, bool ``[N]``."""
        if over.any():
            self._reset(over, {"reset_mask": over})

    def _reset(self, over: Array, options: Info | None) -> None:
        if isinstance(self._seeds, np.random.Generator):
            drawn = self._seeds.integers(2**31, size=len(over)).tolist()
            seeds = [seed if each else None for seed, each in zip(drawn, over, strict=True)]
        else:
            seeds = [next(self._seeds) if each else None for each in over]
        self.obs, _ = self.envs.reset(seed=seeds, options=options)  # type: ignore[arg-type]  # None: no seed
        for runner in self.runners:
            runner.reset(over, seeds)


class _ActionDraws:
    """Actions drawn from a Box, in [-1, 1] where it has no bounds; a victim's with noise in every second row."""

    def __init__(self, space: spaces.Box, noise: float, rows: int, draw: np.random.Generator) -> None:
        self.space = space
        self.rows = rows
        self.draw = draw
        self.low, self.high = space.low.astype(np.float64), space.high.astype(np.float64)
        bounded = np.isfinite(self.high - self.low)
        self.half = np.where(bounded, (self.high - self.low) / 2, 1.0)
        self.least = np.where(bounded, self.low, -1.0)
        self.spread = noise * self.half * (np.arange(rows) % 2)[:, None]

    def drawn(self) -> Array:
        """Actions ``[rows, k]``."""
        shape = self.rows, len(self.half)
        return (self.least + self.draw.random(shape) * 2 * self.half).astype(self.space.dtype)

    def disturbed(self, act: Array) -> Array:
        """The victim's actions with noise."""
        noisy = act + self.spread * self.draw.standard_normal((self.rows, len(self.half)))
        return np.clip(noisy, self.low, self.high).astype(self.space.dtype)
