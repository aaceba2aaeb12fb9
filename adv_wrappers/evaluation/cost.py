"""How long something will take, before it begins: seconds of a step, measured on the spot, times the steps.

A few steps of an agent under an attack in its environment are timed, a few steps of a training or a search. How many
steps there will be is taken from a run without an attack: nobody knows beforehand how long episodes are under one.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.rendering.table import Tabular, TextTable, grouped
from adv_wrappers.utils.number_text import duration
from adv_wrappers.utils.pace import StepTimer
from adv_wrappers.utils.threads import one_thread

STEPS, SECONDS = 20, 0.5  # of an attack that is timed before it is played
LONG = 4000  # passes for one observation; the presets have 500 at most, and a plan of a suite 3040
_NAMED = 4  # parts that a line names


@dataclass(frozen=True)
class Cost:
    """What one part of something takes.

    Attributes:
        name: of an attack, of cells that differ in their seed and budget alone, or of a training or search for them.
        left: how many of it are left; 0 where its row is known.
        each: seconds of one.
        alone: whether one process does it, however many there are.
    """

    name: str
    left: int
    each: float
    alone: bool = False

    @property
    def seconds(self) -> float:
        """Of all that are left, one after another."""
        return self.left * self.each

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return {"name": self.name, "left": self.left, "each": self.each, "seconds": self.seconds}


@dataclass(frozen=True)
class Costs(Tabular):
    """What something will take on this machine.

    Attributes:
        parts: of what is left, and of what is known.
        of: what the parts are, in the plural.
        known: how many rows were there before.
        unknown: names of what is not estimated.
        left_out: by attack that does not apply, the reason.
    """

    parts: tuple[Cost, ...]
    of: str
    known: int = 0
    unknown: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many rows are left."""
        return sum(part.left for part in self.parts if not part.alone)

    @property
    def seconds(self) -> float:
        """Of all that is left, in one process."""
        return sum(part.seconds for part in self.parts)

    def wall_clock(self, processes: int = 1) -> float:
        """Seconds with so many processes, each of which has a core."""
        alone = sum(part.seconds for part in self.parts if part.alone)
        return alone + (self.seconds - alone) / processes

    def line(self, processes: int = 1) -> str:
        """One sentence: how long it will take, and what takes longest of it."""
        order = sorted((part for part in self.parts if part.left), key=lambda part: -part.seconds)
        named, others = (order[:_NAMED], order[_NAMED:]) if len(order) > _NAMED + 1 else (order, [])
        words = [f"{part.name} {duration(part.seconds)}" for part in named]
        if others:
            words.append(f"{len(others)} others {duration(sum(part.seconds for part in others))}")
        text = f"about {duration(self.wall_clock(processes))} on this machine"
        text += f": {', '.join(words)}; less or more where attacks shorten or lengthen episodes" if words else ""
        return text + (f"; not estimated: {', '.join(self.unknown)}" if self.unknown else "")

    def summary(self, processes: int = 1) -> str:
        """:meth:`line`, and how much is left."""
        by = f" with {processes} processes" if processes > 1 else ""
        return f"{self.left} {self.of} are left, {self.known} are known:{by} {self.line(processes)}"

    def table(self, processes: int = 1) -> TextTable:
        """The table, one row a part, :meth:`summary`, and why some attacks do not apply."""
        rows = []
        for part in sorted(self.parts, key=lambda part: -part.seconds):
            numbers = (f"{part.each:.3g}", f"{part.seconds:.3g}") if part.left else ("", "known")
            rows.append((part.name, str(part.left), *numbers))
        columns, first = ("name", "left", "seconds each", "seconds"), ("name", "seconds", "left")
        why = (f"{names}: {reason}" for reason, names in grouped(self.left_out).items())
        notes = self.summary(processes), *why
        return TextTable("", columns, tuple(rows), notes, by_importance=first)


# what is timed


def run_seconds(evaluator: Evaluator, i: int, clean: Row) -> float:
    """Seconds of the run of a cell, by some steps of all its environments side by side.

    Args:
        evaluator: of the cell.
        i: its index.
        clean: the row without an attack, whose episodes those of the cell are taken to be as long as.
    """
    timer = StepTimer(STEPS, SECONDS)  # which leaves out the first, that prepares what others use
    with one_thread():  # as rows are played
        found = evaluator.player.step_seconds(i, evaluator.seeds, timer)
    if not found:  # episodes have a single step
        return clean.seconds
    # steps of all environments at once: those of a block are dealt out in turn
    width, steps = evaluator.player.venv.num_envs, 0
    for block in evaluator.episodes.blocks(len(clean.lengths)):
        lengths = [clean.lengths[n] for n in block]
        steps += max(sum(lengths[row::width]) for row in range(width))
    return statistics.median(found) * steps  # another process may hold up some of them


def warn_of_long_attacks(stacks: Iterable[ThreatStack]) -> None:
    """Warn of stacks, to be played next, that compute a network thousands of times for every observation.

    Warns:
        UserWarning: one for every such stack.
    """
    for stack in stacks:
        count = sum(layer.how.network_passes for layer in stack.layers if isinstance(layer.how, Perturbation))
        if count > LONG:
            warnings.warn(
                f"{stack.name} computes a network {count:,} times at every step that it attacks (pgd: 30 times): "
                "fewer restarts, steps or queries are quicker",
                UserWarning,
                stacklevel=6,
            )
