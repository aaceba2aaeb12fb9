"""What a run measures: how far observations were moved, and whether the environment was told something else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.arrays import is_text
from adv_wrappers.core.session import select
from adv_wrappers.evaluation.checks import slopes
from adv_wrappers.evaluation.distances import Sample
from adv_wrappers.evaluation.flips import flips
from adv_wrappers.wrappers.layer import layers
from adv_wrappers.wrappers.pilot import Pilot

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
        struck = struck | layer.engine.struck
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

    def __init__(self, run: Run, shell: Any, tap: Any, pilot: Pilot, sample: Sample | None = None) -> None:
        self.run, self.tap, self.pilot, self.sample = run, tap, pilot, sample
        self.strikes = np.zeros(pilot.rows, np.int64)  # steps of the episode under way at which any layer struck
        found = layers(shell)
        self.watched = [layer for layer in found if layer.on == "observation"]
        self.steered = [layer for layer in found if layer.on == "action"]
        run.grid = any(layer.engine.field.grid for layer in self.watched)
        self.seen: Any = False  # rows whose newest observation was struck
        space = pilot.victim.action_space
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
        run, true = self.run, self.tap.obs
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
        return rows, self.pilot.would(true, rows)

    def after(self, rows: Any, meant: Any, actions: NDArray[Any], busy: NDArray[np.bool_], struck: Any) -> None:
        """Count what was done: ``rows`` (None: all) were shown something else and ``meant`` to act otherwise."""
        run, done = self.run, self.tap.actions
        if self.steered:
            acted = busy & _struck(self.steered)
            either = acted | (busy & struck)
            if not self.watched and acted.any() and not self.pilot.victim.discrete:
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
