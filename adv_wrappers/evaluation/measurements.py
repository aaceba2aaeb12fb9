"""The distances of a run that are too dear to take at every step: they are taken on a sample of the attacked steps.

Every attacked step has the same chance to be in the sample, and which are depends on the seeds of the episodes alone,
not on the number of environments: a step's priority is drawn from the key of (seed, t), and the smallest are kept.

What a run measures: how far observations were moved, and whether the environment was told something else.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core import rng
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError
from adv_wrappers.evaluation.checks import flips, slopes
from adv_wrappers.evaluation.perceptual import DISTANCES
from adv_wrappers.utils.trees import is_text, select
from adv_wrappers.victims.runner import PolicyRunner
from adv_wrappers.wrappers.base import layers
from adv_wrappers.wrappers.recorder import VectorActionRecorder

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
        self._roots = rng.roots([rng.fold(rng.root(seed), _SAMPLE) for seed in seeds])
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
        priorities = rng.fold(self._roots[select(episodes, rows)], select(steps, rows))
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


_LOOKS = (0, 16, 64)  # steps of a run at which gradients are looked at
MOVED = 0.05  # of the range of an action: from here on a continuous action counts as changed


@dataclass
class Run:
    """What a run leaves: per episode, and summed over the steps that were counted."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    strikes: NDArray[np.int64]  # steps at which any layer struck
    steps: int = 0
    changed: int = 0  # of these, steps at which the environment was told something else than the agent meant
    moved: int = 0  # steps with a distance
    l2: float = 0.0
    linf: float = 0.0
    still: int = 0  # struck observations that came out as they went in
    slopes: int = 0  # observations at which the gradient of an attack was looked at
    flat: int = 0  # of these, those where it is zero
    lowered: int = 0  # observations that an attack in lower precision was made at
    flipped: int = 0  # of these, those where the agent would act otherwise in that precision
    seconds: float = 0.0
    grid: bool = False  # whether a perturbed observation is made of integers

    @property
    def struck(self) -> int:
        """Steps at which any layer struck, of all episodes that are finished."""
        return int(self.strikes.sum())


def _struck(found: Sequence[Any]) -> Any:
    struck: Any = False
    for layer in found:
        struck = struck | layer.engine.attacked
    return struck


def _flat(tree: Any) -> NDArray[Any]:
    """``[B, n]`` floats of a batch, or of a dictionary of them."""
    if isinstance(tree, dict):
        return np.concatenate([_flat(leaf) for leaf in tree.values() if not is_text(leaf)], 1)
    array = np.asarray(tree)
    array = array.reshape(len(array), -1)
    return array if array.dtype.kind == "f" else array.astype(np.float32)


class Meter:
    """Compares what was true with what was handed out, and what was meant with what was done."""

    def __init__(
        self, run: Run, shell: Any, recorder: VectorActionRecorder, runner: PolicyRunner, sample: Sample | None = None
    ) -> None:
        self.run, self.recorder, self.runner, self.sample = run, recorder, runner, sample
        self.strikes = np.zeros(runner.rows, np.int64)  # steps of the episode under way at which any layer struck
        found = layers(shell)
        self.watched = [layer for layer in found if layer.on == "observation"]
        self.steered = [layer for layer in found if layer.on == "action"]
        run.grid = any(layer.engine.field.grid for layer in self.watched)
        self.seen: Any = False  # rows whose newest observation was struck
        space = runner.victim.action_space
        self._step: Any = None  # smallest change of a continuous action that counts
        if isinstance(space, spaces.Box):
            width = space.high.astype(np.float64) - space.low
            self._step = np.where(np.isfinite(width), MOVED * width, MOVED).reshape(-1)
        self._looks = 0

    def observed(self, mask: Any = None) -> None:
        """A new observation is out, in the rows of ``mask`` (None for all)."""
        if self.watched:
            fresh = _struck(self.watched)
            self.seen = fresh if mask is None else np.where(mask, fresh, self.seen)

    def before(
        self, obs: Any, busy: NDArray[np.bool_], everyone: bool, episodes: NDArray[Any], steps: NDArray[Any]
    ) -> tuple[Any, Any]:
        """Count the distance of what is handed to the agent; rows struck, and what it would have done there.

        ``episodes`` and ``steps`` say which step of which episode every row is at.
        """
        if not self.watched or self.seen is False:
            return None, None
        rows = None if everyone and (self.seen is True or self.seen.all()) else np.flatnonzero(self.seen & busy)
        if rows is not None and len(rows) == 0:
            return rows, None
        run, true = self.run, self.recorder.observation
        gap = np.abs(_flat(select(obs, rows)) - _flat(select(true, rows)))
        largest = gap.max(1)
        run.l2 += float(np.sqrt(np.einsum("ij,ij->i", gap, gap)).sum())
        run.linf += float(largest.sum())
        run.moved += len(largest)
        run.still += int(np.count_nonzero(largest == 0))
        if self.sample is not None:
            self.sample.offer(obs, true, rows, episodes, steps)
        if self._looks in _LOOKS:
            for layer in self.watched:
                looked, flat = slopes(layer.engine, true, (np.arange(len(busy)) if rows is None else rows)[:8])
                run.slopes, run.flat = run.slopes + looked, run.flat + flat
        self._looks += 1
        for layer in self.watched:
            lowered, flipped = flips(layer.engine, true, np.arange(len(busy)) if rows is None else rows)
            run.lowered, run.flipped = run.lowered + lowered, run.flipped + flipped
        return rows, self.runner.peek(true, rows)

    def after(self, rows: Any, meant: Any, actions: NDArray[Any], busy: NDArray[np.bool_], struck: Any) -> None:
        """Count what was done: ``rows`` (None: all) were shown something else and ``meant`` to act otherwise."""
        run, done = self.run, self.recorder.action
        if self.steered:
            acted = busy & _struck(self.steered)
            either = acted | (busy & struck)
            if not self.watched and acted.any() and not self.runner.victim.discrete:
                gap = np.abs(_flat(done) - _flat(actions))[acted].astype(np.float64)
                run.l2 += float(np.sqrt((gap * gap).sum(1)).sum())
                run.linf += float(gap.max(1).sum())
                run.moved += len(gap)
            if meant is not None:
                intended = actions.copy()
                intended[slice(None) if rows is None else rows] = meant
            else:
                intended = actions
            self.strikes += either
            run.changed += int(np.count_nonzero(self._differ(intended, done) & either))
        elif meant is not None:
            self.strikes[slice(None) if rows is None else rows] += 1
            run.changed += int(np.count_nonzero(self._differ(meant, select(done, rows))))

    def _differ(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
        a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
        different = a != b if self._step is None else np.abs(a - b) > self._step
        return different.any(1)  # type: ignore[no-any-return]
