"""The episodes of a training, one line each, in a file that survives an interruption.

A training resumes from its last checkpoint: episodes that ended after it are played again, so their lines are dropped.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from adv_wrappers.errors import CardError, OutputError
from adv_wrappers.utils.files import write

HEADER = "steps,return,perturbations,length"


class TrainingEpisode(NamedTuple):
    """One episode of a training.

    Attributes:
        steps: environment steps of the training when it ended, all environments together.
        victim_return: what the victim earned.
        perturbations: the number of steps at which it was attacked.
        length: the number of its steps.
    """

    steps: int
    victim_return: float
    perturbations: int
    length: int


class EpisodeLog:
    """The episodes of a training, in memory and, with a path, in a CSV file, to which each is added as it ends.

    Args:
        path: the file, or None.
        steps: what a training resumes from: later episodes in the file are dropped.

    Attributes:
        rows: the episodes, oldest first.

    Raises:
        CardError: for a file that is no such log.
    """

    def __init__(self, path: Path | None, steps: int) -> None:
        self.path = path
        self.rows: list[TrainingEpisode] = []
        if path is None:
            return
        if path.exists():
            self.rows = [row for row in _read(path) if row.steps <= steps]
        lines = [HEADER, *(",".join(map(repr, row)) for row in self.rows)]
        write(path, ("\n".join(lines) + "\n").encode())

    def add(self, row: TrainingEpisode) -> None:
        """Add an episode.

        Raises:
            OutputError: where its line cannot be written.
        """
        self.rows.append(row)
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(",".join(map(repr, row)) + "\n")
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}") from error


def _read(path: Path) -> list[TrainingEpisode]:
    """The rows of a file; a last line that was being written when its process ended is dropped."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CardError(f"cannot read {path}: {error}") from error
    header, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
    if header != HEADER:
        raise CardError(f"{path} is no log of a training: expected the columns {HEADER}, got {header!r:.80}")
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            steps, victim_return, perturbations, length = line.split(",")
            row = TrainingEpisode(int(steps), float(victim_return), int(perturbations), int(length))
        except ValueError as error:
            raise CardError(f"{path}, line {number}: {error}") from error
        if not math.isfinite(row.victim_return):
            raise CardError(f"{path}, line {number}: the return must be finite, got {line!r:.80}")
        rows.append(row)
    return rows
