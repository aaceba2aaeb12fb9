"""The distances of a run that are too dear to take at every step: they are taken on a sample of the attacked steps.

Every attacked step has the same chance to be in the sample, and which are depends on the seeds of the episodes alone,
not on the number of environments: a step's priority is drawn from the key of (seed, t), and the smallest are kept.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core import keys
from adv_wrappers.core.errors import AdvWrappersError, SpaceError, ValueRangeError
from adv_wrappers.core.session import select
from adv_wrappers.evaluation.perceptual import DISTANCES

IMAGES = 256  # observations of a run that are compared, at most
_PIECE = 32  # of these, compared at once
_SAMPLE = 1 << 43  # folded into the key of an episode, so that priorities share no draw with attacks or agents
_EVERYWHERE = ("l2", "linf")  # taken at every attacked step, and columns of their own

Distance = Callable[..., Any]


def chosen(given: Any, space: spaces.Space[Any], columns: Sequence[str]) -> dict[str, Distance]:
    """The distances that are sampled, by name, each tried out on one observation of ``space``.

    Args:
        given: names of ``DISTANCES`` and functions ``(x, y) -> [B]`` with a ``name``, of tensors ``[B, *S]`` in the
            dtype of the space; None takes ``ssim`` and ``psnr`` for images of uint8, as far as they apply.
        space: of observations.
        columns: names that a report uses otherwise.

    Raises:
        ValueRangeError: for an unknown name, one that is used twice, and a function that cannot compare observations.
        SpaceError: for a space that a distance does not apply to.
    """
    box = isinstance(space, spaces.Box)
    if given is None:
        images = box and space.dtype == np.uint8 and len(space.shape or ()) > 1
        return {name: _made(name, space) for name in ("ssim", "psnr") if images and _applies(name, space)}
    found: dict[str, Distance] = {}
    for item in given if isinstance(given, (list, tuple)) else [given]:
        if isinstance(item, str) and item in _EVERYWHERE:
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
        found[str(name)] = _made(item, space)
        _values(str(name), found[str(name)], [np.zeros(space.shape, space.dtype)] * 2)
    return found


def _made(item: Any, space: Any) -> Distance:
    """A distance as it is called on observations of ``space``: those of the table are told the range of floats."""
    if not isinstance(item, str):
        return item  # type: ignore[no-any-return]
    if space.dtype == np.uint8:
        return DISTANCES[item]
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SpaceError(f"the distance {item} needs observations with finite bounds, this space is {space}")
    return functools.partial(DISTANCES[item], limits=(low, high))


def _applies(name: str, space: Any) -> bool:
    try:
        _values(name, _made(name, space), [np.zeros(space.shape, space.dtype)] * 2)
    except AdvWrappersError:
        return False
    return True


def _values(name: str, distance: Distance, images: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """One number for each pair of images, given in turn: shown, true, shown, true, ..."""
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


class Sample:
    """Pairs of (shown, true) observations at some of the attacked steps of one run.

    Args:
        seeds: of the episodes.
        most: pairs that are kept; None for ``IMAGES``.
    """

    def __init__(self, seeds: Sequence[int], most: int | None = None) -> None:
        self._roots = keys.roots([keys.fold(keys.root(seed), _SAMPLE) for seed in seeds])
        self._kept: list[tuple[int, int, NDArray[Any], NDArray[Any]]] = []  # a heap, the largest priority first
        self._most, self._seen = IMAGES if most is None else most, 0
        self._bar = np.uint64(np.iinfo(np.uint64).max)  # the largest priority that is kept, once there are enough

    def __len__(self) -> int:
        """Pairs that are kept."""
        return len(self._kept)

    def offer(self, shown: Any, true: Any, rows: Any, episodes: NDArray[Any], steps: NDArray[Any]) -> None:
        """Consider an attacked step.

        Args:
            shown, true: observations ``[N, *S]``.
            rows: those that were attacked, int ``[n]``; None for all.
            episodes, steps: which episode every row plays, and its step: int ``[N]``.
        """
        priorities = keys.fold(self._roots[select(episodes, rows)], select(steps, rows))
        for i in np.flatnonzero(priorities <= self._bar).tolist():
            row, place = i if rows is None else int(rows[i]), self._seen
            self._seen += 1
            item = (-int(priorities[i]), place, np.array(shown[row]), np.array(true[row]))
            if len(self._kept) < self._most:
                heapq.heappush(self._kept, item)
            else:
                heapq.heappushpop(self._kept, item)
            if len(self._kept) == self._most:
                self._bar = np.uint64(-self._kept[0][0])

    def means(self, distances: Mapping[str, Distance]) -> dict[str, float | None]:
        """The mean of every distance over the pairs where it is finite, or None where there are none."""
        pairs = [(shown, true) for _, _, shown, true in sorted(self._kept, key=lambda item: -item[0])]
        found: dict[str, float | None] = {}
        for name, distance in distances.items():
            pieces = [pairs[i : i + _PIECE] for i in range(0, len(pairs), _PIECE)]
            values = [_values(name, distance, [image for both in piece for image in both]) for piece in pieces]
            finite = [v for part in values for v in part.tolist() if math.isfinite(v)]
            found[name] = math.fsum(finite) / len(finite) if finite else None
        return found
