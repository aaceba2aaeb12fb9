"""What a block measures: how far observations were moved, and whether the environment received another action.

Everything is summed over the steps that count, those of the episodes that are evaluated; rows that have played all
their episodes are left out. At a few steps the victim is asked twice, and gradients of attacks are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.attacks.gradient_attack import GradientAttack
from adv_wrappers.core.arrays import flat_rows
from adv_wrappers.core.engine.engine import Engine
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.spaces import CHOICES, to_victim
from adv_wrappers.core.types import Array, Space
from adv_wrappers.evaluation.measurements.sampled_distances import ObservationSample
from adv_wrappers.evaluation.rows.row import EnvironmentNotes
from adv_wrappers.utils.trees import is_text, select
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.action_recorder import VectorActionRecorder
from adv_wrappers.wrappers.changed_actions import ActionChanges
from adv_wrappers.wrappers.layer import AnyVectorEnv, Layer, layers

_LOOKED_AT = (0, 16, 64)  # steps of a block at which the victim is asked twice, attacked ones for gradients
_ROWS_LOOKED_AT = 8  # rows of these steps
_ROUNDING = 64  # units in the last place by which two equal answers may differ, as on devices that add in any order

Mask = bool | NDArray[np.bool_]  # rows, [B]; True or False for all of them


@dataclass
class BlockMeasurements:
    """What a block measured, per episode and summed over its steps.

    Attributes:
        returns: of every episode, ``[episodes]``.
        lengths: the number of steps of every episode.
        attacked_steps: the number of steps of every episode at which any threat attacked.
        sums: over all steps, by name. ``compared`` is the number of those whose distances are summed, the attacked
            ones; ``l2`` and ``linf`` are the sums of the distances from the true to the perturbed observation (or
            action), of which an entry of a discrete observation that was changed counts as 1; ``changed_actions`` the
            attacked steps at which the environment received another action than the agent would have taken on the true
            observation; ``drew`` how many layers drew random numbers that differ between draws of an episode;
            ``seconds`` the wall clock; the others are those of :class:`.Checks`.
        integers: whether a perturbed observation is made of integers, and not of choices.
        losses: the total loss of the states of every episode, ``[episodes]``, or None where it was not measured.
        metrics: by name what is counted beside the return, of every episode, ``[episodes]``.
        notes: what :mod:`.first_steps` says of the environment.
        sample: of the attacked observations, or None.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    attacked_steps: NDArray[np.int64]
    sums: dict[str, Any] = field(default_factory=Counter)
    integers: bool = False
    losses: NDArray[np.float64] | None = None
    metrics: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    notes: EnvironmentNotes = field(default_factory=EnvironmentNotes)
    sample: ObservationSample | None = None


class BlockMonitor:
    """Compares true with perturbed observations, and the agent's actions with those that the environment received.

    Args:
        measurements: the sums that are added to.
        env: the vector environment under all wrappers.
        recorder: the wrapper beneath all others, which remembers true observations and received actions.
        runner: acts for the agent.

    Attributes:
        attacked: rows whose newest observation was attacked.
        attacked_steps: attacked steps of the present episode of every row, int ``[B]``.
        on_observations, on_actions, on_dynamics: the wrappers that perturb, innermost first.
    """

    def __init__(
        self,
        measurements: BlockMeasurements,
        env: AnyVectorEnv,
        recorder: VectorActionRecorder,
        runner: PolicyRunner,
    ) -> None:
        self.measurements = measurements
        self.recorder = recorder
        self.runner = runner
        self.attacked_steps = np.zeros(runner.rows, np.int64)
        # the layers by what they attack
        found = layers(env)
        self.on_observations = [layer for layer in found if layer.on == "observation"]
        self.on_actions = [layer for layer in found if layer.on == "action"]
        self.on_dynamics = [layer for layer in found if layer.on == "dynamics"]
        fields = [layer.engine.applied.field for layer in self.on_observations]
        measurements.integers = any(field.grid and not field.discrete for field in fields)
        self.attacked: Mask = False
        self._differ = ActionChanges(runner.victim.action_space)
        self._steps = self._compared_steps = 0

    def new_observation(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Note which observations were attacked, after a step or a reset of the rows of ``mask`` (None for all)."""
        if self.on_observations:
            fresh = _attacked(self.on_observations)
            self.attacked = fresh if mask is None else np.where(mask, fresh, self.attacked)

    def before_step(
        self, obs: Any, busy: NDArray[np.bool_], episodes: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], Array | None]:
        """Compare the observations on which the agent acts next with the true ones.

        Args:
            obs: the observations that the agent receives.
            busy: rows that count, bool ``[B]``.
            episodes, steps: the episode and the step that every row is at, int ``[B]``.

        Returns:
            The numbers of the attacked rows that count, int ``[n]``, and the actions that the agent would take there
            on the true observations; None where there are none.
        """
        sums = self.measurements.sums
        # whether the agent answers the same when it is asked twice, at a few steps
        if self._steps in _LOOKED_AT:
            count, unequal = count_unequal_answers(self.runner, obs, np.flatnonzero(busy)[:_ROWS_LOOKED_AT])
            sums["asked_twice"] += count
            sums["unequal_answers"] += unequal
        self._steps += 1
        rows = np.flatnonzero(self.attacked & busy)
        if len(rows) == 0:
            return rows, None
        # how far attacked observations were moved
        true = self.recorder.observation
        difference = _differences(select(obs, rows), select(true, rows), self.runner.victim.observation_space)
        self._add_distances(difference)
        sums["unchanged"] += int(np.count_nonzero(difference.max(1) == 0))
        if self.measurements.sample is not None:
            self.measurements.sample.consider(obs, true, rows, episodes, steps)
        # whether the attack's gradients are zero there
        for layer in self.on_observations if self._compared_steps in _LOOKED_AT else ():
            count, zero = count_zero_gradients(layer.engine, true, rows[:_ROWS_LOOKED_AT])
            sums["gradients"] += count
            sums["zero_gradients"] += zero
        self._compared_steps += 1
        return rows, self.runner.peek(true, rows)

    def after_step(
        self,
        rows: NDArray[np.intp],
        on_true: Array | None,
        actions: Array,
        busy: NDArray[np.bool_],
        attacked: Mask,
    ) -> NDArray[np.bool_]:
        """Compare the actions that the environment received with those that the agent would take unattacked.

        Args:
            rows, on_true: what :meth:`before_step` returned.
            actions: the agent's actions.
            busy: rows that count, bool ``[B]``.
            attacked: rows whose observations were attacked before this step.

        Returns:
            The rows that count and that any threat attacked, bool ``[B]``.
        """
        if not (self.on_observations or self.on_actions or self.on_dynamics):
            return np.zeros(len(busy), np.bool_)
        # attacks on continuous actions alone have their distance here
        received, attacked_actions = self.recorder.action, busy & _attacked(self.on_actions)
        if not self.on_observations and attacked_actions.any() and not self.runner.victim.discrete:
            difference = _differences(received, actions, self.runner.victim.action_space)
            self._add_distances(difference[attacked_actions].astype(np.float64))
        # what the agent would do unattacked, beside what the environment received
        unattacked = actions
        if on_true is not None:
            unattacked = actions.copy()
            unattacked[rows] = on_true
        either: NDArray[np.bool_] = attacked_actions | (busy & (attacked | _attacked(self.on_dynamics)))
        self.attacked_steps += either
        self.measurements.sums["changed_actions"] += int(np.count_nonzero(self._differ(unattacked, received) & either))
        return either

    def _add_distances(self, difference: Array) -> None:
        """Add the distances of attacked rows, from absolute differences ``[n, F]``."""
        sums = self.measurements.sums
        sums["l2"] += float(np.sqrt(np.einsum("ij,ij->i", difference, difference)).sum())
        sums["linf"] += float(difference.max(1).sum())
        sums["compared"] += len(difference)


def count_zero_gradients(engine: Engine, obs: Any, rows: NDArray[np.intp]) -> tuple[int, int]:
    """The number of observations at which an attack's gradient was computed, and of those where it is zero.

    A gradient that is not finite counts as zero. It is that of the attack's own objective for the true observation,
    taken a little beside it: a divergence has no slope at the true observation itself.

    Args:
        engine: the engine of a wrapper on observations.
        obs: true observations ``[B, *S]``, or a dictionary of them.
        rows: numbers of the rows that are looked at, int ``[n]``.
    """
    how: Any = engine.threat.how
    victim, field = getattr(how, "victim", None), engine.applied.field
    if not isinstance(how, Perturbation) or not hasattr(how, "objective") or victim is None:
        return 0, 0
    # the victim at the true observations, with all that is not attacked around them
    full = to_victim(select(obs, rows), victim.dtype, victim.device, True, space=victim.observation_space)
    x: Any = field.take(full, True)
    fill = None if field.keys is None else (lambda part: field.give(full, part, True))
    bound = VictimView(victim, engine.hidden_state(victim, rows), fill, full)
    # a little beside them, along a direction of mixed signs
    signs = torch.ones(x[0].numel(), dtype=x.dtype, device=x.device)
    signs[1::2] = -1
    beside = x + signs.view(x.shape[1:]) * (1.0 if field.grid else 1e-3 * x.abs().clamp(min=1.0))
    with torch.no_grad():
        loss = how.objective(x, bound)
        gradient_of = how.gradient(bound, loss) if isinstance(how, GradientAttack) else bound.gradient(loss)
        gradient = flat_rows(gradient_of(beside))
    zero = ~gradient.ne(0).any(1) | ~torch.isfinite(gradient).all(1)
    return len(rows), int(zero.sum())


def count_unequal_answers(runner: PolicyRunner, obs: Any, rows: NDArray[np.intp]) -> tuple[int, int]:
    """The number of observations about which the victim is asked twice, and of those where its answers differ.

    Differences of a few units in the last place, of the largest number of an answer, count as none.

    Args:
        runner: acts for the victim.
        obs: observations ``[B, *S]``, or a dictionary of them.
        rows: numbers of the rows that are looked at, int ``[n]``.

    Raises:
        ValueRangeError: for observations that are not finite.
        VictimError: for answers that are not what was promised.
    """
    first, second = runner.params(obs, rows), runner.params(obs, rows)
    largest = torch.where(first.isfinite(), first.abs(), 0.0).amax(1, keepdim=True)
    near = (first - second).abs() <= _ROUNDING * torch.finfo(first.dtype).eps * largest
    return len(first), int((~(near | (first == second)).all(1)).sum())


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


def _flat(batch: Any) -> Array:
    """``[B, n]`` floats of a batch."""
    array = np.asarray(batch)
    array = array.reshape(len(array), -1)
    return array if array.dtype.kind == "f" else array.astype(np.float32)
