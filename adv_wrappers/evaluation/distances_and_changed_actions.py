"""What one run measures: how far observations were moved, and whether the environment received another action.

Everything is summed over the steps that count, those of the episodes that are evaluated; rows that have played all
their episodes are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.spaces import CHOICES
from adv_wrappers.core.types import Array, Rows, Space
from adv_wrappers.evaluation.counts_that_warnings_need import count_unequal_answers, count_zero_gradients
from adv_wrappers.evaluation.distances_on_sampled_steps import ObservationSample
from adv_wrappers.utils.trees import is_text, select
from adv_wrappers.victims.runner import PolicyRunner
from adv_wrappers.wrappers.changed_actions import ActionChanges
from adv_wrappers.wrappers.layer import AnyVectorEnv, Layer, layers
from adv_wrappers.wrappers.record_actions import VectorActionRecorder

_LOOKED_AT = (0, 16, 64)  # steps of a run at which the victim is asked twice, attacked ones for gradients
_ROWS_LOOKED_AT = 8  # rows of these steps

Mask = bool | NDArray[np.bool_]  # rows, [B]; True or False for all of them


@dataclass
class RunMeasurements:
    """What a run measured, per episode and summed over its steps.

    Attributes:
        returns: of every episode, ``[episodes]``.
        lengths: the number of steps of every episode.
        attacked_steps: the number of steps of every episode at which any threat attacked.
        steps: the number of steps of all episodes.
        changed_actions: the attacked steps at which the environment received another action than the agent would have
            taken on the true observation.
        compared: the number of steps whose distances are summed: the attacked ones.
        l2, linf: the sums of the distances from the true to the perturbed observation (or action); an entry of a
            discrete observation that was changed counts as 1.
        unchanged: the compared observations that an attack left as they were.
        gradients: the observations at which the gradient of an attack was looked at.
        zero_gradients: those of them at which it is zero or not finite.
        asked_twice: the observations about which the agent was asked twice.
        unequal_answers: those of them at which the second answer was another one.
        drew: how many layers drew random numbers that differ between draws of an episode.
        seconds: wall clock of the run.
        integers: whether a perturbed observation is made of integers.
        losses: the total loss of the states of every episode, ``[episodes]``, or None where it was not measured.
        unrepeated, outside: what :mod:`.first_steps` says of the environment; "" for nothing.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    attacked_steps: NDArray[np.int64]
    steps: int = 0
    changed_actions: int = 0
    compared: int = 0
    l2: float = 0.0
    linf: float = 0.0
    unchanged: int = 0
    gradients: int = 0
    zero_gradients: int = 0
    asked_twice: int = 0
    unequal_answers: int = 0
    drew: int = 0
    seconds: float = 0.0
    integers: bool = False
    losses: NDArray[np.float64] | None = None
    unrepeated: str = ""
    outside: str = ""

    @property
    def attacked(self) -> int:
        """The steps of all finished episodes at which any threat attacked."""
        return int(self.attacked_steps.sum())


class RunMonitor:
    """Compares true with perturbed observations, and the agent's actions with those that the environment received.

    Args:
        measurements: the sums that are added to.
        env: the vector environment under all wrappers.
        recorder: the wrapper beneath all others, which remembers true observations and received actions.
        runner: acts for the agent.
        sample: considers every attacked observation, or None.

    Attributes:
        attacked: rows whose newest observation was attacked.
        attacked_steps: attacked steps of the present episode of every row, int ``[B]``.
        on_observations, on_actions, on_dynamics: the wrappers that perturb, innermost first.
    """

    def __init__(
        self,
        measurements: RunMeasurements,
        env: AnyVectorEnv,
        recorder: VectorActionRecorder,
        runner: PolicyRunner,
        sample: ObservationSample | None = None,
    ) -> None:
        self.measurements, self.recorder, self.runner, self.sample = measurements, recorder, runner, sample
        self.attacked_steps = np.zeros(runner.rows, np.int64)
        found = layers(env)
        self.on_observations = [layer for layer in found if layer.on == "observation"]
        self.on_actions = [layer for layer in found if layer.on == "action"]
        self.on_dynamics = [layer for layer in found if layer.on == "dynamics"]
        measurements.integers = any(layer.engine.field.grid for layer in self.on_observations)
        self.attacked: Mask = False
        self._differ = ActionChanges(runner.victim.action_space)
        self._steps = self._compared_steps = 0

    def new_observation(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Note which observations were attacked, after a step or a reset of the rows of ``mask`` (None for all)."""
        if self.on_observations:
            fresh = _attacked(self.on_observations)
            self.attacked = fresh if mask is None else np.where(mask, fresh, self.attacked)

    def before_step(
        self,
        obs: Any,
        busy: NDArray[np.bool_],
        everyone: bool,
        episodes: NDArray[np.int64],
        steps: NDArray[np.int64],
    ) -> tuple[Rows, Array | None]:
        """Compare the observations on which the agent acts next with the true ones.

        Args:
            obs: the observations that the agent receives.
            busy: rows that count, bool ``[B]``.
            everyone: whether all rows do.
            episodes, steps: the episode and the step that every row is at, int ``[B]``.

        Returns:
            The attacked rows that count, and the actions that the agent would take there on the true observations;
            both None where no row was attacked.
        """
        if self._steps in _LOOKED_AT:
            numbers = np.flatnonzero(busy)[:_ROWS_LOOKED_AT]
            count, unequal = count_unequal_answers(self.runner, obs, numbers)
            self.measurements.asked_twice += count
            self.measurements.unequal_answers += unequal
        self._steps += 1
        if not self.on_observations or self.attacked is False:
            return None, None
        rows = (
            None
            if everyone and (self.attacked is True or self.attacked.all())
            else np.flatnonzero(self.attacked & busy)
        )
        if rows is not None and len(rows) == 0:
            return rows, None
        sums, true = self.measurements, self.recorder.observation
        difference = _differences(select(obs, rows), select(true, rows), self.runner.victim.observation_space)
        largest = difference.max(1)
        sums.l2 += float(np.sqrt(np.einsum("ij,ij->i", difference, difference)).sum())
        sums.linf += float(largest.sum())
        sums.compared += len(largest)
        sums.unchanged += int(np.count_nonzero(largest == 0))
        if self.sample is not None:
            self.sample.consider(obs, true, rows, episodes, steps)
        numbers = np.arange(len(busy)) if rows is None else rows
        for layer in self.on_observations if self._compared_steps in _LOOKED_AT else ():
            count, zero = count_zero_gradients(layer.engine, true, numbers[:_ROWS_LOOKED_AT])
            sums.gradients, sums.zero_gradients = sums.gradients + count, sums.zero_gradients + zero
        self._compared_steps += 1
        return rows, self.runner.peek(true, rows)

    def after_step(
        self, rows: Rows, on_true: Array | None, actions: Array, busy: NDArray[np.bool_], attacked: Mask
    ) -> None:
        """Compare the actions that the environment received with those that the agent would take unattacked.

        Args:
            rows, on_true: what :meth:`before_step` returned.
            actions: the agent's actions.
            busy: rows that count, bool ``[B]``.
            attacked: rows whose observations were attacked before this step.
        """
        sums, received = self.measurements, self.recorder.action
        if self.on_actions or self.on_dynamics:
            attacked_actions = busy & _attacked(self.on_actions)
            either = attacked_actions | (busy & (attacked | _attacked(self.on_dynamics)))
            if not self.on_observations and attacked_actions.any() and not self.runner.victim.discrete:
                difference = np.abs(_flat(received) - _flat(actions))[attacked_actions].astype(np.float64)
                sums.l2 += float(np.sqrt((difference * difference).sum(1)).sum())
                sums.linf += float(difference.max(1).sum())
                sums.compared += len(difference)
            unattacked = actions
            if on_true is not None:
                unattacked = actions.copy()
                unattacked[slice(None) if rows is None else rows] = on_true
            self.attacked_steps += either
            sums.changed_actions += int(np.count_nonzero(self._differ(unattacked, received) & either))
        elif on_true is not None:
            self.attacked_steps[slice(None) if rows is None else rows] += 1
            sums.changed_actions += int(np.count_nonzero(self._differ(on_true, select(received, rows))))


def _attacked(wrappers: Sequence[Layer]) -> Mask:
    """Rows that any of the wrappers attacked."""
    attacked: Any = False
    for wrapper in wrappers:
        attacked = attacked | wrapper.engine.attacked
    found: Mask = attacked
    return found


def _differences(one: Any, two: Any, space: Space | None) -> Array:
    """How far apart the numbers of two batches are, ``[B, n]``; choices have no distance, another one counts as 1."""
    if isinstance(one, (dict, tuple)):
        inner: Any = space.spaces if isinstance(space, (spaces.Dict, spaces.Tuple)) else {}
        keys = one if isinstance(one, dict) else range(len(one))
        return np.concatenate([_differences(one[k], two[k], inner[k]) for k in keys if not is_text(one[k])], 1)
    difference: Array = np.abs(_flat(one) - _flat(two))
    return np.minimum(difference, 1) if isinstance(space, CHOICES) else difference


def _flat(tree: Any) -> Array:
    """``[B, n]`` floats of a batch, or of a dictionary of batches."""
    if isinstance(tree, dict):
        return np.concatenate([_flat(leaf) for leaf in tree.values() if not is_text(leaf)], 1)
    array = np.asarray(tree)
    array = array.reshape(len(array), -1)
    return array if array.dtype.kind == "f" else array.astype(np.float32)
