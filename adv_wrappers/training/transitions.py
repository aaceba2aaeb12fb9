"""What a victim does, as Sarsa learns from it: state, action, reward, and the state and action that truly follow."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core import keys
from adv_wrappers.core.arrays import fits
from adv_wrappers.core.errors import ValueRangeError, VictimError
from adv_wrappers.victims.families import DeterministicFamily
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.pilot import Pilot

Array = NDArray[Any]


class _Noisy(DeterministicFamily):
    """A deterministic actor's action with Gaussian noise, clipped to the action box."""

    def __init__(self, std: Tensor, low: Tensor, high: Tensor) -> None:
        self.std, self.low, self.high = std, low, high

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        noise = keys.normal(keys.fold(key, 0), tuple(params.shape[1:]), params.dtype)
        return (params + self.std * noise).clamp(self.low, self.high)


def exploring(victim: Victim, noise: float) -> Victim:
    """The victim with every action drawn: a Gaussian one's own policy, else its action with noise.

    Args:
        noise: standard deviation of a deterministic victim's noise, as a fraction of half the range of its actions
            (of 1 where they are unbounded).

    Raises:
        VictimError: unless actions and observations are ``Box`` of one dimension.
        ValueRangeError: for a deterministic victim without noise: the value of other actions could not be learned.
    """
    space, seen = victim.action_space, victim.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise VictimError(f"a Robust Sarsa critic is for continuous actions, this victim acts in {space}")
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise VictimError(f"a Robust Sarsa critic takes observations of one dimension, this victim sees {seen}")
    other = copy.copy(victim)
    other.select = "sample"
    if victim.kind == "mean":
        if not noise > 0:
            raise ValueRangeError(f"a deterministic victim explores by noise above 0, got {noise!r}")
        low, high = (torch.as_tensor(b, dtype=victim.dtype, device=victim.device) for b in (space.low, space.high))
        half = (high - low) / 2
        other.family = _Noisy(noise * torch.where(half.isfinite(), half, torch.ones_like(half)), low, high)
    return other


@dataclass
class Transitions:
    """Steps of N environments side by side, arrays ``[T, N, ...]``; ``returns`` of the episodes that ended.

    Attributes:
        obs, act, reward: what was seen, done and got.
        next_obs, next_act: the same episode's next state, and the action there; for an episode that was cut short the
            action it would have taken, for one that ended zeros.
        ended: the episode ended by itself: there is no value after it.
        over: it ended or was cut short.
    """

    obs: Array
    act: Array
    reward: Array
    next_obs: Array
    next_act: Array
    ended: Array
    over: Array
    returns: list[float]


class Collector:
    """Plays a victim in environments side by side, on and on: an episode goes through several calls.

    Args:
        one: makes one environment.
        victim: who acts, made by :func:`exploring`.
        rows: number of environments.
        entropy: integers that all seeds come from.
    """

    def __init__(
        self, one: Callable[[], gym.Env[Any, Any]], victim: Victim, rows: int, entropy: tuple[int, ...]
    ) -> None:
        self.venv = SyncVectorEnv([one] * rows, autoreset_mode=AutoresetMode.DISABLED)
        try:
            fits(victim, self.venv.single_observation_space, self.venv.single_action_space)
        except VictimError:
            self.venv.close()
            raise
        self.pilot, self.rows = Pilot(victim, rows), rows
        self._draw = np.random.default_rng(entropy)
        self.score = np.zeros(rows)
        seeds = self._seeds()
        self.obs, _ = self.venv.reset(seed=seeds)
        self.pilot.reset(None, seeds)

    def _seeds(self) -> list[int | None]:
        return [int(seed) for seed in self._draw.integers(2**31, size=self.rows)]

    def collect(self, steps: int) -> Transitions:
        """``steps`` steps of every environment.

        Raises:
            ValueRangeError: for observations or rewards that are not finite.
        """
        shape, seen, acted = (steps, self.rows), self.obs.shape[1:], self.venv.single_action_space.shape or ()
        obs, act, reward, after, then = (np.zeros((*shape, *size)) for size in (seen, acted, (), seen, acted))
        taken = Transitions(obs, act, reward, after, then, np.zeros(shape, bool), np.zeros(shape, bool), [])
        for t in range(steps):
            act = self.pilot.act(self.obs)
            taken.obs[t], taken.act[t] = self.obs, act
            if t:
                went_on = ~taken.over[t - 1]
                taken.next_act[t - 1][went_on] = act[went_on]
            obs, reward, ended, cut, _ = self.venv.step(act)
            if not np.isfinite(reward).all():
                raise ValueRangeError(f"the environment handed out a reward that is not finite: {reward}")
            over = ended | cut
            taken.reward[t], taken.next_obs[t], taken.ended[t], taken.over[t] = reward, obs, ended, over
            self.score += reward
            self._follow(taken.next_act[t], obs, cut & ~ended)
            if over.any():
                taken.returns += self.score[over].tolist()
                self.score[over] = 0.0
                seeds = [seed if o else None for seed, o in zip(self._seeds(), over, strict=True)]
                obs, _ = self.venv.reset(seed=seeds, options={"reset_mask": over})
                self.pilot.reset(over, seeds)
            self.obs = obs
        self._follow(taken.next_act[-1], self.obs, ~taken.over[-1])
        return taken

    def _follow(self, into: Array, obs: Array, mask: Array) -> None:
        """Write the actions that rows of ``mask`` would take at ``obs``; what is acted next is the same draw."""
        rows = np.flatnonzero(mask)
        if len(rows):
            into[rows] = self.pilot.would(obs, rows)
