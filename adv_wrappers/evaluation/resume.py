"""Resuming an evaluation: rows that a folder holds are not played again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from adv_wrappers.core.types import JSON
from adv_wrappers.evaluation.report import COLUMNS, Report, Row
from adv_wrappers.evaluation.threat_stacks import ThreatStack, json_form
from adv_wrappers.utils.files import move
from adv_wrappers.victims.victim import Victim

# What a report says of all its rows; but for git, which moves with every commit of a checkout.
_SAME = (
    "victim",
    "env",
    "seed",
    "episode_seeds",
    "episodes",
    "num_envs",
    "quantize",
    "device",
    "versions",
    "measure",
    "by",
)


class StoredRows:
    """The rows in a folder that can be taken over; writing a new report there loses no row of another.

    A row is that of a run if its report is of the same victim, environment, episodes and versions, and its threats have
    the same dictionaries, hashes of trained adversaries and critics included. Threats without a dictionary, and victims
    without weights, which a file cannot tell from others, are always played.

    Args:
        folder: the folder of ``report.json``, and of ``report-1.json``, ..., which hold rows of other runs.
        about: the attributes of the new report, without its rows.
        victim: the agent.
        stacks: the runs.
        distances: names of the distances that are sampled.
        draws: of every run how many draws of an episode there are, of which the best counts.

    Attributes:
        rows: the row of every run, or None where it has to be played.

    Raises:
        ValueRangeError: for a file of these names that is no report.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, object], victim: Victim, stacks: Sequence[ThreatStack],
        distances: Collection[str], draws: Sequence[int],
    ) -> None:  # fmt: skip
        self.folder, self.rows = folder, list[Row | None]([None] * len(stacks))
        self._others = False  # whether report.json holds rows of other runs
        mine = _plain({key: about[key] for key in _SAME})
        runs = [_plain([json_form(layer) for layer in stack.layers]) for stack in stacks]
        for path in (folder / "report.json", *sorted(folder.glob("report-[0-9]*.json"))):
            if not path.exists():
                continue
            report = Report.from_json(path)
            found, theirs = report.to_dict()["threats"], {key: getattr(report, key) for key in _SAME}
            if _plain(theirs) != mine or not victim.modules():
                found = []
            known = [row for row in found if {*row} == {*COLUMNS} and {*row["distances"]} == {*distances}]
            wanted = list(zip(runs, draws, strict=True))
            taken = [row for row in known if None not in row["layers"] and (row["layers"], row["best_of"]) in wanted]
            for i, (stack, want) in enumerate(zip(stacks, wanted, strict=True)):
                row = next((row for row in taken if (row["layers"], row["best_of"]) == want), None)
                if self.rows[i] is None and row is not None:
                    self.rows[i] = {**row, "threat": stack.name, "transfer": stack.transfer}
            if path.name == "report.json":
                self._others = len(taken) < len(report.threats)

    def write(self, report: Report) -> None:
        """Write ``report.json``; one with rows of other runs gets a name of its own before."""
        path = self.folder / "report.json"
        if self._others:
            names = (self.folder / f"report-{i}.json" for i in itertools.count(1))
            move(path, next(name for name in names if not name.exists()))
            self._others = False
        report.to_json(path)


def _plain(value: object) -> JSON:
    """A value as a report's file holds it."""
    return json.loads(json.dumps(value, default=repr))
