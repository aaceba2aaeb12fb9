"""An evaluator: the cells of one agent in one environment on the same episodes, and their rows as they come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adv_wrappers.environments.dmc import feature_names
from adv_wrappers.environments.environment import Environment, is_named, json_value
from adv_wrappers.errors import SimulationError, ValueRangeError
from adv_wrappers.evaluation.cell_run import CellRun, PlayedCell
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.executor import Executor, Played, Tell, ThisProcess
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.evaluation.measurements.sampled_distances import sampled_distances
from adv_wrappers.evaluation.measurements.target_distance import measure_text, measured_target
from adv_wrappers.evaluation.player import Block, Cell, Player
from adv_wrappers.evaluation.rows.checked_row import CheckedRow
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.report_warnings import find_warnings
from adv_wrappers.evaluation.rows.row import COLUMNS, Row, compared
from adv_wrappers.evaluation.rows.row_key import revision, row_key, versions
from adv_wrappers.evaluation.statistics.confidence_intervals import KnownRange
from adv_wrappers.evaluation.statistics.return_range import known_range
from adv_wrappers.evaluation.threat_stacks import (
    ThreatStack,
    is_worst_action,
    json_form,
    threats_of_environment,
    with_unique_names,
)
from adv_wrappers.victims.victim import Victim

PERTURBED = " (on an environment already perturbed by "  # in the name of the run without a threat


class Evaluator:
    """The cells of one agent in one environment on the same episodes, one for each stack of threats.

    Args:
        victim: the agent.
        environment: how its environments are made.
        stacks: the threats of each cell, aimed at the victim; those with the same name are numbered.
        episodes: how they are played.
        player: plays in this process; None makes one, which :meth:`close` closes.

    Attributes:
        stacks: the threats of each cell, as a report names them.
        cells: what another process needs to play.
        about: the attributes of a report that are known before anything is played.
        player: plays in this process.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that cannot work.
    """

    def __init__(
        self,
        victim: Victim,
        environment: Environment,
        stacks: Sequence[ThreatStack],
        episodes: Episodes,
        player: Player | None = None,
    ) -> None:
        self.victim, self.environment = victim, environment.for_victim(victim)
        self.stacks, self.episodes = with_unique_names(stacks), episodes.fitted(victim)
        self.draws, self.seeds = episodes.draws(self.stacks), episodes.seeds
        # the environments, in which everything else is looked at
        self._own, self.player = player is None, player or Player()
        try:
            venv = self.player.open_environments(self.environment, self.episodes)
            self.under = threats_of_environment(venv, victim)
            self._on_rewards = threats_of_environment(venv, victim, on_rewards=True)
            if self.under:
                first = f"none{PERTURBED}{' + '.join(self.under)})"
                self.stacks = [replace(stack, name=stack.name if stack.layers else first) for stack in self.stacks]
            # a cell for every run, all of which the player gets ready
            self.cells = tuple(Cell(victim, self.environment, stack, self.episodes) for stack in self.stacks)
            self.player.open(self.cells)
            # what is measured beside the return
            name, distances = self.environment.name, episodes.distances
            if not episodes.quantize and distances is None:  # those of images compare whole grey levels
                distances = ()
            self.target = measured_target(episodes.measure, victim, name, feature_names(venv))
            self.sampled = sampled_distances(distances, venv.single_observation_space, COLUMNS)
            # what is known of returns, unless the environment itself is attacked
            rows = getattr(venv, "envs", ())  # none where tasks of the DeepMind Control Suite are stepped directly
            known: KnownRange = known_range(rows[0]) if rows else (None, None)
            self._least, self._known = known[0], (None, None) if self.under else known
        except BaseException:
            self.close()
            raise
        self.about: dict[str, Any] = {
            "versions": versions(),
            "seed": int(episodes.seed),
            "episode_seeds": tuple(self.seeds),
            "git": revision(),
            "device": str(victim.device),
            "episodes": int(episodes.count),
            "env": json_value(self.environment.described),
            "num_envs": venv.num_envs,
            "quantize": bool(episodes.quantize),
            "victim": victim.described(),
            "measure": measure_text(self.target, victim),
            "by": episodes.by,
            **({"metrics": tuple(episodes.metrics)} if episodes.metrics else {}),
        }

    def key(self, i: int) -> str | None:
        """What the row of a cell is known by (see :func:`row_key`); None where nothing distinguishes it from others."""
        layers = [json_form(layer) for layer in self.stacks[i].layers]
        target, seeds = getattr(self.target, "function", None), self.cells[i].seeds
        known = self.victim.is_known and self.environment.is_known and is_named(target)
        about = {**self.about, "episodes": len(seeds), "episode_seeds": tuple(seeds)}
        return row_key(about, layers, self.draws[i], self.sampled) if known else None

    def cell_run(self, i: int) -> CellRun:
        """A cell that is to be played."""
        return CellRun(i, self.cells[i], self.draws[i], self.target, self.sampled, self._known)

    def episode_count(self, i: int) -> int:
        """The number of episodes of a cell, every draw counted."""
        return self.draws[i] * len(self.cells[i].seeds)

    def play(self, i: int) -> Row:
        """The row of a cell, played in this process.

        Raises:
            SimulationError: for a simulation that diverges.
            ValueRangeError: for observations, rewards or distances that are not finite.
        """
        cells = CellsInBlocks(self)
        cells.submit(EvaluatorCell("", i))
        while not (found := cells.collect(None)):
            pass
        played = found[0].value()
        if played.row is None:
            raise SimulationError((played.error or "").partition(": ")[2])
        return played.row

    def report(
        self, rows: Mapping[int, Row], minimum: float | str | None = None, failed: Mapping[int, str] | None = None
    ) -> Report:
        """The report of the cells that have their row.

        Args:
            rows: by index of the cell; that of the first is there.
            minimum: as for :func:`adv_wrappers.evaluate`.
            failed: by index of a cell without a row, why it has none, which becomes a warning.
        """
        if 0 not in rows:
            raise ValueRangeError("a report needs the row of its first run, which the others are compared with")
        # the return that impact counts from
        played = [(self.stacks[i], rows[i]) for i in sorted(rows)]
        fixed = self._least if minimum is None or isinstance(minimum, str) else float(minimum)
        lowest, kind = fixed, "unknown" if fixed is None else "fixed"
        if isinstance(minimum, str):
            lowest = next((row.mean_return for stack, row in played if is_worst_action(stack, self.victim)), None)
            kind = "argmin-Q agent" if self.victim.has_q else "least likely action"
        # what rows say of each other, and what else a reader has to know
        checked = [CheckedRow.of(stack, row) for stack, row in played]
        warnings = find_warnings(checked, self.victim, self.environment.name, self.under, self.seeds)
        if self._on_rewards:
            by = " + ".join(self._on_rewards)
            warnings.append(f"the environment changes rewards, by {by}: what is counted here are its own rewards")
        warnings += [f"{self.stacks[i].name} has no row: {why}" for i, why in sorted((failed or {}).items())]
        return Report(
            **self.about,
            warnings=tuple(warnings),
            minimum={"kind": kind, "value": lowest},
            threats=compared([row for _, row in played], *((None, None) if self.under else (lowest, fixed))),
        )

    def close(self) -> None:
        """Close the environments, unless the player was handed over."""
        if self._own:
            self.player.close()


@dataclass(frozen=True)
class EvaluatorCell:
    """One of the cells of an evaluator, by the key of its row and its index."""

    key: str
    index: int


class CellsInBlocks:
    """The executor of the cells of an evaluator: each is cut into blocks, which go to whoever is free.

    Errors are raised, but for a simulation that diverges under its threats, which ends no other cell.

    Args:
        evaluator: the evaluator.
        blocks: plays blocks; None is this process.
        progress: called with the index of a cell and the number of its finished episodes, first with 0.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        blocks: Executor[Block, BlockMeasurements] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._blocks = blocks or ThisProcess[Block, BlockMeasurements](evaluator.player)
        self._progress = progress
        self._told = dict[int, int]()
        self._cells = dict[int, EvaluatorCell]()
        self._runs = dict[int, CellRun]()
        self._waiting = list[Block]()

    def free(self) -> int:
        """How many more cells may be handed over now: none while blocks wait."""
        return 0 if self._waiting else self._blocks.free()

    def submit(self, task: EvaluatorCell, tell: Tell | None = None) -> None:
        """Hand over a cell, whose blocks go out as far as somebody is free."""
        self._cells[task.index] = task
        run = self._runs[task.index] = self._evaluator.cell_run(task.index)
        self._waiting += run.blocks
        self._hand_out()

    def collect(self, seconds: float | None) -> list[Played[EvaluatorCell, PlayedCell]]:
        """The cells that ended with the blocks that end next, perhaps none; waits for these."""
        ended = list[Played[EvaluatorCell, PlayedCell]]()
        for played in self._blocks.collect(None):
            i, error = played.task.cell, played.error
            run, attacked = self._runs[i], bool(self._evaluator.stacks[i].layers)
            outcome = error if attacked and isinstance(error, SimulationError) else played.value()
            over = run.add(played.task, outcome)
            self._tell(i, 0, run.finished)
            # a cell that ended has a row, an error, or another stage
            if over and run.row is None and run.error is None:
                self._waiting[:0] = run.blocks
            elif over:
                ended.append(Played(self._cells[i], self._played(i, self._runs.pop(i))))
        self._hand_out()
        return ended

    def _hand_out(self) -> None:
        while self._waiting and self._blocks.free() > 0:
            block = self._waiting.pop(0)
            before = self._runs[block.cell].finished
            self._tell(block.cell, 0, 0)
            self._blocks.submit(block, functools.partial(self._tell, block.cell, before))

    def _tell(self, i: int, before: int, more: int) -> None:
        finished = before + more
        if self._progress is not None and finished > self._told.get(i, -1):
            self._told[i] = finished
            self._progress(i, finished)

    def _played(self, i: int, run: CellRun) -> PlayedCell:
        key, name = self._cells[i].key, self._evaluator.stacks[i].name
        if run.row is None:
            return PlayedCell(key, name, None, None, f"{type(run.error).__name__}: {run.error}", 0.0, "")
        return PlayedCell(key, name, self._evaluator.about, run.row, None, run.row.seconds, "")

    def close(self) -> None:
        """Whoever made the evaluator closes it."""
