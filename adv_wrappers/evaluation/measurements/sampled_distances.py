"""Distances that are too slow for every step: they are computed on a sample of the attacked steps of a run.

Every attacked step has the same chance to be in the sample, and which are depends on the seeds of the episodes alone,
not on the number of environments: a step's priority is drawn from the key of (seed, t), and the smallest are sampled.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.types import Array, Space
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError
from adv_wrappers.evaluation.measurements.image_distances import DISTANCES

MAX_PAIRS = 256  # observations of a run that are compared, at most
_BATCH = 32  # of these, compared at once
_STREAM = 1 << 43  # folded into the key of an episode, so that priorities share no draw with attacks or agents
_EVERY_STEP = ("l2", "linf")  # computed at every attacked step, and columns of their own

Distance = Callable[[Tensor, Tensor], Any]  # (perturbed, true), tensors [B, *S], to B numbers
Pair = tuple[Array, Array]  # (perturbed, true)


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
    found: dict[str, Distance] = {}
    # of images the usual two, as far as the pictures are large enough
    if given is None:
        if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1:
            for usual in ("ssim", "psnr"):
                try:
                    found |= sampled_distances(usual, space, columns)
                except AdvWrappersError:  # pictures that are too small
                    continue
        return found
    for item in given if isinstance(given, (list, tuple)) else [given]:
        if isinstance(item, str) and item in _EVERY_STEP:
            continue
        # a name that is known, or a function with one of its own
        name = item if isinstance(item, str) else getattr(item, "name", getattr(item, "__name__", None))
        known = isinstance(item, str) and item in DISTANCES
        if not known and (isinstance(item, str) or not callable(item) or not isinstance(name, str) or not name):
            raise ValueRangeError(f"distances are {', '.join(DISTANCES)} or functions (x, y) with a name, got {item!r}")
        if name in found or (not known and (name in DISTANCES or name in columns)):
            raise ValueRangeError(f"the name {name!r} of a distance is taken: give the function another .name")
        if not isinstance(space, spaces.Box):
            raise SpaceError(f"the distance {name} compares observations of a Box space, this one is {space}")
        # tried on two blank observations, so that it fails now or never
        found[str(name)] = _with_limits(item, space) if isinstance(item, str) else item
        blank = np.zeros(space.shape, space.dtype)
        _compare(str(name), found[str(name)], [(blank, blank)])
    return found


def _with_limits(name: str, space: spaces.Box) -> Distance:
    """One of ``DISTANCES`` as it is called on observations of ``space``, with the range of floats."""
    if space.dtype == np.uint8:
        return DISTANCES[name]
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SpaceError(f"the distance {name} needs observations with finite bounds, this space is {space}")
    return functools.partial(DISTANCES[name], limits=(low, high))


def _compare(name: str, distance: Distance, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """One number for each pair."""
    x, y = (torch.from_numpy(np.stack(images)) for images in zip(*pairs, strict=True))
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
        self._pairs: list[tuple[int, Array, Array]] = []  # with their priorities, the smallest first
        self._most = MAX_PAIRS if most is None else most
        self._largest = np.uint64(np.iinfo(np.uint64).max)  # priority in the sample, once it is full

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self._pairs)

    def consider(
        self,
        perturbed: Any,
        true: Any,
        rows: NDArray[np.intp],
        episodes: NDArray[np.int64],
        steps: NDArray[np.int64],
    ) -> None:
        """Add the rows of an attacked step that belong into the sample.

        Args:
            perturbed, true: observations ``[N, *S]``.
            rows: numbers of the attacked rows, int ``[n]``.
            episodes, steps: the episode that every row plays, and its step: int ``[N]``.
        """
        priorities = rng.fold(self._roots[episodes[rows]], steps[rows])
        for i in np.flatnonzero(priorities < self._largest).tolist():
            pair = (int(priorities[i]), np.array(perturbed[rows[i]]), np.array(true[rows[i]]))
            bisect.insort(self._pairs, pair, key=itemgetter(0))
            if len(self._pairs) >= self._most:
                del self._pairs[self._most :]
                self._largest = np.uint64(self._pairs[-1][0])

    @staticmethod
    def joined(samples: Sequence[ObservationSample]) -> ObservationSample:
        """The sample of several runs together, each of its own episodes; ties go to the earlier run."""
        found = ObservationSample((), max((sample._most for sample in samples), default=None))
        pairs = [pair for sample in samples for pair in sample._pairs]
        found._pairs = sorted(pairs, key=itemgetter(0))[: found._most]
        return found

    def means(self, distances: Mapping[str, Distance]) -> dict[str, float | None]:
        """By name, the mean of every distance over the pairs where it is finite, or None where there are none."""
        pairs = [(perturbed, true) for _, perturbed, true in self._pairs]
        batches = [pairs[i : i + _BATCH] for i in range(0, len(pairs), _BATCH)]
        found: dict[str, float | None] = {}
        for name, distance in distances.items():
            values = [value for batch in batches for value in _compare(name, distance, batch).tolist()]
            finite = [value for value in values if math.isfinite(value)]
            found[name] = math.fsum(finite) / len(finite) if finite else None
        return found
