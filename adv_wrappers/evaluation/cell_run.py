"""A cell while it is played: its blocks, stage by stage, and the row that they add up to.

Where an episode has several draws, the best of them counts: what a random attack can do that is tried again and again.
Weng et al. 2020 compare with noise that is drawn 1000 times (their rand-U and rand-B), of which the trajectory with the
smallest loss, or return, counts. Each draw plays the same episode, under its seed, with random numbers of its own: the
attack is told afterwards which draw was the best, which no attacker knows beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.attacks.targets import Target
from adv_wrappers.errors import SimulationError
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.evaluation.measurements.sampled_distances import Distance, ObservationSample
from adv_wrappers.evaluation.player import Block, Cell
from adv_wrappers.evaluation.rows.row import Checks, DrawResults, Row
from adv_wrappers.evaluation.statistics import confidence_intervals
from adv_wrappers.evaluation.statistics.confidence_intervals import KnownRange
from adv_wrappers.evaluation.threat_stacks import json_form


@dataclass(frozen=True)
class PlayedCell:
    """What became of a cell.

    Attributes:
        key: its key.
        name: its text.
        about: what a report says of all its rows; None where there is an error.
        row: its row, or None.
        error: kind and text of the error that it ended with, or None.
        seconds: wall clock of the playing.
        worker: the process that played it, as ``host:pid``.
    """

    key: str
    name: str
    about: Mapping[str, Any] | None
    row: Row | None
    error: str | None
    seconds: float
    worker: str


class CellRun:
    """What is left of a cell, and what was measured of it.

    Two draws of every episode are played first, if there are several, and the others where something in these was
    random.

    Args:
        index: of the cell among those of its player.
        cell: the cell.
        draws: how often every episode is drawn.
        target: the loss of states that is measured, or None.
        distances: those that are measured of a sample of observations.
        known: the range of returns, at which the interval is cut.

    Attributes:
        blocks: those of the present stage.
        finished: how many episodes are, every draw counted.
        row: the columns that the cell decides, once it is played; others depend on other runs (see :func:`.compared`).
        error: of the first block whose simulation diverged, which ends the cell.
    """

    def __init__(
        self,
        index: int,
        cell: Cell,
        draws: int,
        target: Target | None,
        distances: Mapping[str, Distance],
        known: KnownRange,
    ) -> None:
        self.index = index
        self.cell = cell
        self.draws = draws
        self.target = target
        self.distances, self.known = distances, known
        self.finished = 0
        self.row: Row | None = None
        self.error: SimulationError | None = None
        self._blocks = list[BlockMeasurements]()
        self._begin(range(min(draws, 2)))

    def _begin(self, draws: range) -> None:
        """A stage: the blocks of these draws, all episodes of a draw one after another."""
        seeds = self.cell.seeds
        plays = [(seed, draw) for draw in draws for seed in seeds]
        sampled = bool(self.distances) and draws.start == 0
        self.blocks = list[Block]()
        for part in self.cell.episodes.blocks(len(plays)):
            of_seeds, of_draws = zip(*plays[part.start : part.stop], strict=True)
            self.blocks.append(Block(self.index, of_seeds, of_draws, sampled, self.target))
        self._outcomes = dict[int, BlockMeasurements | SimulationError]()

    def add(self, block: Block, outcome: BlockMeasurements | SimulationError) -> bool:
        """Add what became of a block; whether it ended its stage, after which there are others, a row or an error."""
        self._outcomes[next(n for n, one in enumerate(self.blocks) if one is block)] = outcome
        self.finished += len(block.seeds)
        if len(self._outcomes) < len(self.blocks):
            return False
        # in the order of the blocks, whichever ended first
        for n in range(len(self.blocks)):
            found = self._outcomes[n]
            if isinstance(found, SimulationError):
                self.error = found
                return True
            self._blocks.append(found)
        # two draws tell whether there is anything random to draw again
        run, episodes = joined_blocks(self._blocks), len(self.cell.seeds)
        alike = False
        if self.draws > 1 and not run.sums["drew"]:
            alike = all((x[:episodes] == x[episodes : 2 * episodes]).all() for x in (run.returns, run.lengths))
        if len(run.returns) < self.draws * episodes and not alike:
            self._begin(range(2, self.draws))
        else:
            self.row = self._row(run, alike)
        return True

    def _row(self, run: BlockMeasurements, alike: bool) -> Row:
        """The row of all draws.

        Args:
            run: what was measured of them.
            alike: whether nothing random was drawn, and the first two are alike.
        """
        threats, sums = self.cell.threats, run.sums
        # of every episode the draw that counts
        by_draw = (-1, len(self.cell.seeds))
        scores = run.losses if self.cell.episodes.by == "loss" and run.losses is not None else run.returns
        best = scores.reshape(by_draw).argmin(0) * by_draw[1] + np.arange(by_draw[1])
        returns, lengths = run.returns[best], run.lengths[best]
        fractions = run.attacked_steps[best] / lengths
        losses = None if run.losses is None else run.losses[best]
        # totals over all draws
        steps, attacked = int(run.lengths.sum()), int(run.attacked_steps.sum())
        sample = ObservationSample.joined([one.sample for one in self._blocks if one.sample is not None])
        # what warnings look at
        checks = Checks(
            attacked=sums["compared"],
            unchanged=sums["unchanged"],
            gradients=sums["gradients"],
            zero_gradients=sums["zero_gradients"],
            integers=run.integers,
            alike=alike,
            asked_twice=sums["asked_twice"],
            unequal_answers=sums["unequal_answers"],
            **run.notes,
        )
        draws: DrawResults | None = None
        if self.draws > 1:
            draws = DrawResults(
                returns=run.returns.reshape(by_draw).tolist(),
                losses=None if run.losses is None else run.losses.reshape(by_draw).tolist(),
            )
        return Row(
            threat=threats.name,
            **confidence_intervals.summary(returns, self.known),
            caveat=confidence_intervals.caveat(returns),
            attacked_fraction=attacked / steps,
            e_adv=float(fractions.mean()),
            e_adv_std=_deviation(fractions),
            action_change=sums["changed_actions"] / attacked if attacked else None,
            l2=sums["l2"] / sums["compared"] if sums["compared"] else None,
            linf=sums["linf"] / sums["compared"] if sums["compared"] else None,
            distances=sample.means(self.distances),
            distance_images=len(sample),
            ms_per_step=1000 * sums["seconds"] / steps,
            episodes=len(returns),
            mean_length=float(lengths.mean()),
            transfer=threats.transfer,
            layers=[json_form(threat) for threat in threats.layers],
            returns=returns.tolist(),
            lengths=lengths.tolist(),
            attacked_fractions=fractions.tolist(),
            loss=None if losses is None else float(losses.mean()),
            loss_std=None if losses is None else _deviation(losses),
            losses=None if losses is None else losses.tolist(),
            metrics={name: values[best].tolist() for name, values in run.metrics.items()},
            best_of=self.draws,
            draws=draws,
            checks=checks,
        )


def _deviation(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def joined_blocks(blocks: Sequence[BlockMeasurements]) -> BlockMeasurements:
    """What several blocks measured, as that of one: episodes one after another, sums added."""
    sums = Counter[str]()
    for block in blocks:
        sums.update(block.sums)
    names = ("returns", "lengths", "attacked_steps")
    returns, lengths, attacked = (np.concatenate([getattr(block, name) for block in blocks]) for name in names)
    losses = [block.losses for block in blocks if block.losses is not None]
    return BlockMeasurements(
        returns,
        lengths,
        attacked,
        sums,
        integers=any(block.integers for block in blocks),
        losses=np.concatenate(losses) if losses else None,
        metrics={name: np.concatenate([block.metrics[name] for block in blocks]) for name in blocks[0].metrics},
        notes=next((block.notes for block in blocks if block.notes), blocks[0].notes),
    )
