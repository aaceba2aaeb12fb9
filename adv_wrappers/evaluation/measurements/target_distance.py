"""Total losses of episodes: how near a run came to where an attacker wanted the states.

Weng et al. 2020 compare attacks by the total loss ``sum_t d(s_t, s_target)`` of an episode beside its return. It counts
every control step, of the true states, where an environment that holds its actions tells of them
(:class:`adv_wrappers.environments.dmc.ActionRepeat`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.attacks.targets import Target, TargetLike, VictimValue, as_target, target_of, target_text
from adv_wrappers.core.types import Array
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from adv_wrappers.victims.victim import Victim

Measure = TargetLike | bool | None


def measured_target(measure: Measure, victim: Victim, env: str, feature_names: Sequence[str] = ()) -> Target | None:
    """The target whose loss is measured, with numbers instead of names.

    Args:
        measure: what :func:`.as_target` takes; True or ``"own"`` for the environment's own; None or False for none.
        victim: the agent, with observations ``[n]``.
        env: the environment's id.
        feature_names: its names of the numbers of an observation; none where it has none.

    Raises:
        ThreatError: for what is no target, and where an environment has none of its own.
        SpaceError: for observations that are no vectors.
        ValueRangeError: for a feature that observations do not have.
        VictimError: for the value of a victim that has none.
    """
    if measure is None or measure is False:
        return None
    target = target_of(env) if measure is True or measure == "own" else as_target(measure)
    if target is None:
        raise ThreatError(f"{env} has no target of its own: say where its states are driven to, as in measure='0=1.5'")
    # losses are of numbers, by their place in the observation
    space = victim.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise SpaceError(f"the loss of states is measured of observations [n], these are {space}")
    if isinstance(target, VictimValue) and target.victim is None:
        target = VictimValue(victim)
    return target.named(feature_names, space.shape[0])


def measure_text(target: Target | None, victim: Victim | None = None) -> str | None:
    """What a report says of a target: its text, or the name of a user's function.

    Args:
        target: the loss of a state, or None.
        victim: the agent that is evaluated; the value of another one is said with the beginning of its hash.
    """
    if target is None:
        return None
    function = getattr(target, "function", None)
    if isinstance(target, VictimValue) and target.victim is not None and target.victim is not victim:
        other = target.victim
        return f"{target.name} of {other.ref or type(other).__name__} {other.fingerprint()[:16]}"
    return target_text(target) or getattr(function, "__name__", None) or repr(target)


class EpisodeLosses:
    """Adds up the losses of the episodes of one run.

    Args:
        target: the loss of a state, with numbers instead of names.
        episodes: how many the run has.
        rows: how many are played at once.

    Attributes:
        totals: of the finished episodes, float64 ``[episodes]``.
    """

    def __init__(self, target: Target, episodes: int, rows: int) -> None:
        self.target = target
        self.totals = np.zeros(episodes)
        self._sums = np.zeros(rows)

    def add(self, observations: Array, control: Sequence[Array | None] | None, rewards: Array) -> None:
        """One step.

        Args:
            observations: true ones ``[B, n]``, after the step.
            control: of every row those after each of its control steps, ``[k, n]``, or None where it has none.
            rewards: ``[B]``, of the steps; a control step counts its share.
        """
        states = [observations[i : i + 1] for i in range(len(observations))]
        if control is not None:
            states = [one if given is None else given for one, given in zip(states, control, strict=True)]
        counts = np.array([len(part) for part in states])
        shares = np.repeat(np.asarray(rewards, np.float64) / counts, counts)
        with torch.no_grad():
            found = self.target(torch.from_numpy(np.concatenate(states)), torch.from_numpy(shares))
        with np.errstate(invalid="ignore"):  # what is not finite is refused at the end of the episode
            self._sums += np.add.reduceat(found.double().numpy(), np.cumsum(counts) - counts)

    def finish(self, episodes: NDArray[np.int64], rows: NDArray[np.bool_]) -> None:
        """The rows of a mask ``[B]`` have finished these episodes.

        Raises:
            ValueRangeError: for a loss that is not finite.
        """
        if not np.isfinite(self._sums[rows]).all():
            raise ValueRangeError(f"the loss of states is not finite: {self._sums[rows]}")
        self.totals[episodes] = self._sums[rows]

    def begin(self, rows: NDArray[np.bool_]) -> None:
        """The rows of a mask ``[B]`` begin an episode."""
        self._sums[rows] = 0.0
