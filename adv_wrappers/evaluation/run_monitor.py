"""What one run measures: how far observations were moved, and whether the environment received another action.

Everything is summed over the steps that count, those of the episodes that are evaluated; rows that have played all
their episodes are left out.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.spaces import CHOICES
from adv_wrappers.core.types import Array, Rows, Space
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError
from adv_wrappers.evaluation.image_distances import DISTANCES
from adv_wrappers.evaluation.warning_counts import count_unequal_answers, count_zero_gradients
from adv_wrappers.utils.trees import is_text, select
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.action_recorder import VectorActionRecorder
from adv_wrappers.wrappers.changed_actions import ActionChanges
from adv_wrappers.wrappers.layer import AnyVectorEnv, Layer, layers

# ----------------------------------------------------------------------------------------------------------------------
# Distances that are too slow for every step: they are computed on a sample of the attacked steps.
#
# Every attacked step has the same chance to be in the sample, and which are depends on the seeds of the episodes alone,
# not on the number of environments: a step's priority is drawn from the key of (seed, t), and the smallest are sampled.
# ----------------------------------------------------------------------------------------------------------------------


MAX_PAIRS = 256  # observations of a run that are compared, at most
_BATCH = 32  # of these, compared at once
_STREAM = 1 << 43  # folded into the key of an episode, so that priorities share no draw with attacks or agents
_EVERY_STEP = ("l2", "linf")  # computed at every attacked step, and columns of their own

Distance = Callable[[Tensor, Tensor], Any]  # (perturbed, true), tensors [B, *S], to B numbers


def sampled_distances(given: Any, space: Space, columns: Sequence[str]) -> dict[str, Distance]:
    """The distances that are sampled, by name, each tried out on one observation of ``space``.

    Args:
        given: names of ``DISTANCES`` and functions ``(x, y) -> [B]`` with a ``name``, of tensors ``[B, *S]`` in the
            dtype of the space; None takes ``ssim`` and ``psnr`` for images of uint8, as far as they apply.
        space: the observation space.
        columns: names that are taken by other columns of a report.

    Raises:
        ValueRangeError: for an unknown name, one that is used twice, and a function that cannot compare observations.
        SpaceError: for a space that a distance does not apply to.
    """
    if given is None:
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) < 2:
            return {}
        return {name: DISTANCES[name] for name in ("ssim", "psnr") if _applies(DISTANCES[name], space)}
    found: dict[str, Distance] = {}
    for item in given if isinstance(given, (list, tuple)) else [given]:
        if isinstance(item, str) and item in _EVERY_STEP:
            continue
        name = item if isinstance(item, str) else getattr(item, "name", getattr(item, "__name__", None))
        known = isinstance(item, str) and item in DISTANCES
        if not known and (isinstance(item, str) or not callable(item) or not isinstance(name, str) or not name):
            raise ValueRangeError(
                f"distances are {', '.join(DISTANCES)} or functions (x, y) with a name, such as an Lpips, got {item!r}"
            )
        if name in found or (not known and (name in DISTANCES or name in columns)):
            raise ValueRangeError(f"the name {name!r} of a distance is taken: give the function another .name")
        if not isinstance(space, spaces.Box):
            raise SpaceError(f"the distance {name} compares observations of a Box space, this one is {space}")
        found[str(name)] = _with_limits(item, space) if isinstance(item, str) else item
        _compare(str(name), found[str(name)], [np.zeros(space.shape, space.dtype)] * 2)
    return found


def _with_limits(name: str, space: spaces.Box) -> Distance:
    """One of ``DISTANCES`` as it is called on observations of ``space``, with the range of floats."""
    if space.dtype == np.uint8:
        return DISTANCES[name]
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SpaceError(f"the distance {name} needs observations with finite bounds, this space is {space}")
    return functools.partial(DISTANCES[name], limits=(low, high))


def _applies(distance: Distance, space: spaces.Box) -> bool:
    try:
        _compare("", distance, [np.zeros(space.shape, space.dtype)] * 2)
    except AdvWrappersError:
        return False
    return True


def _compare(name: str, distance: Distance, images: Sequence[Array]) -> NDArray[np.float64]:
    """One number for each pair of images, given in turn: perturbed, true, perturbed, true, ..."""
    x, y = (torch.from_numpy(np.stack(images[i::2])) for i in range(2))
    try:
        values = np.asarray(torch.as_tensor(distance(x, y)).detach().cpu().double())
    except AdvWrappersError:
        raise
    except Exception as error:  # whatever a user's function may raise
        raise ValueRangeError(f"the distance {name} cannot compare observations {tuple(x.shape)}: {error}") from error
    if values.shape != (len(x),) or np.isnan(values).any():
        raise ValueRangeError(f"the distance {name} must return {len(x)} numbers for {len(x)} pairs, got {values}")
    return values


class ObservationSample:
    """Pairs of (perturbed, true) observations at some of the attacked steps of one run.

    Args:
        seeds: the seeds of the episodes.
        most: the number of pairs that are sampled; None for ``MAX_PAIRS``.
    """

    def __init__(self, seeds: Sequence[int], most: int | None = None) -> None:
        self._roots = rng.roots([rng.fold(rng.root(seed), _STREAM) for seed in seeds])
        self._pairs: list[tuple[int, int, Array, Array]] = []  # a heap, the largest priority first
        self._most, self._considered = MAX_PAIRS if most is None else most, 0
        self._largest = np.uint64(np.iinfo(np.uint64).max)  # priority in the sample, once it is full

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self._pairs)

    def consider(
        self,
        perturbed: Any,
        true: Any,
        rows: Rows,
        episodes: NDArray[np.int64],
        steps: NDArray[np.int64],
    ) -> None:
        """Add the rows of an attacked step that belong into the sample.

        Args:
            perturbed, true: observations ``[N, *S]``.
            rows: numbers of the attacked rows, int ``[n]``; None for all.
            episodes, steps: the episode that every row plays, and its step: int ``[N]``.
        """
        priorities = rng.fold(self._roots[select(episodes, rows)], select(steps, rows))
        for i in np.flatnonzero(priorities <= self._largest).tolist():
            row, place = i if rows is None else int(rows[i]), self._considered
            self._considered += 1
            item = (-int(priorities[i]), place, np.array(perturbed[row]), np.array(true[row]))
            if len(self._pairs) < self._most:
                heapq.heappush(self._pairs, item)
            else:
                heapq.heappushpop(self._pairs, item)
            if len(self._pairs) == self._most:
                self._largest = np.uint64(-self._pairs[0][0])

    @staticmethod
    def joined(samples: Sequence[ObservationSample]) -> ObservationSample:
        """The sample of several runs together, each of its own episodes; ties go to the earlier run."""
        found = ObservationSample((), max(sample._most for sample in samples))
        pairs = [(-pair[0], i, pair) for i, part in enumerate(samples) for pair in part._pairs]
        chosen = sorted(pairs, key=lambda item: (item[0], item[1], item[2][1]))[: found._most]
        found._pairs = [(key, place, x, true) for place, (_, _, (key, _, x, true)) in enumerate(chosen)]
        heapq.heapify(found._pairs)
        return found

    def means(self, distances: Mapping[str, Distance]) -> dict[str, float | None]:
        """By name, the mean of every distance over the pairs where it is finite, or None where there are none."""
        pairs = [(perturbed, true) for _, _, perturbed, true in sorted(self._pairs, key=lambda item: -item[0])]
        found: dict[str, float | None] = {}
        for name, distance in distances.items():
            batches = [pairs[i : i + _BATCH] for i in range(0, len(pairs), _BATCH)]
            values = [_compare(name, distance, [image for pair in batch for image in pair]) for batch in batches]
            finite = [v for part in values for v in part.tolist() if math.isfinite(v)]
            found[name] = math.fsum(finite) / len(finite) if finite else None
        return found


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
        metrics: by name what is counted beside the return, of every episode, ``[episodes]``.
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
    metrics: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
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
        measurements.integers = any(layer.engine.applied.field.grid for layer in self.on_observations)
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
