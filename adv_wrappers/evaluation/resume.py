"""Resuming an evaluation: rows that a folder holds are not played again."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from adv_wrappers.core.types import JSON
from adv_wrappers.evaluation.report import COLUMNS, Report, Row
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.utils.files import move

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


def row_key(about: Mapping[str, object], layers: Sequence[JSON], draws: int, distances: Collection[str]) -> str | None:
    """What a row is known by among those of all evaluations: the sha256 of everything that it depends on.

    Args:
        about: of the attributes of a report at least those that all its rows share.
        layers: the dictionaries of its threats, in which trained adversaries and critics have their hashes.
        draws: how often every episode was drawn.
        distances: names of the distances that were sampled.

    Returns:
        64 hexadecimal digits; None where a threat has no dictionary.
    """
    if None in layers:
        return None
    shared = {key: about[key] for key in _SAME}
    text = json.dumps([shared, list(layers), draws, sorted(distances)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def rows_by_key(report: Report) -> dict[str | None, Row]:
    """The rows of a report by :func:`row_key`; None has one of those that nothing is known by, if there are any."""
    data = report.to_dict()
    found: dict[str | None, Row] = {}
    for row in data["threats"]:
        whole = {*row} == {*COLUMNS}  # not one of an older release
        key = row_key(data, row["layers"], row["best_of"], [*row["distances"]]) if whole else None
        found.setdefault(key, row)
    return found


def is_known(report: Report) -> bool:
    """Whether the rows of a report can be told from all others: its agent and its environment are no bare functions."""
    victim, make = report.victim, str(report.env.get("make", "module:function"))
    named = make.rpartition(":")[2].rpartition(".")[2].isidentifier()
    return victim.get("structure", "") is not None and named and "<" not in str(report.measure)


class StoredRows:
    """The rows in a folder that can be taken over; writing a new report there loses no row of another.

    A row is that of a run if its report is of the same victim, environment, episodes and versions, and its threats have
    the same dictionaries, hashes of trained adversaries and critics included. Threats without a dictionary, and victims
    that are functions, which a file cannot tell from others, are always played.

    Args:
        folder: the folder of ``report.json``, and of ``report-1.json``, ..., which hold rows of other runs.
        keys: of every run, what its row is known by (:func:`row_key`); None for one that is always played.
        stacks: the runs.

    Attributes:
        rows: by index of the run, the rows that were found.

    Raises:
        ValueRangeError: for a file of these names that is no report.
    """

    def __init__(self, folder: Path, stacks: Sequence[ThreatStack], keys: Sequence[str | None]) -> None:
        self.folder, self.rows = folder, dict[int, Row]()
        self._others = False  # whether report.json holds rows of other runs
        for path in (folder / "report.json", *sorted(folder.glob("report-[0-9]*.json"))):
            if not path.exists():
                continue
            found = rows_by_key(Report.from_json(path))
            for i, (stack, key) in enumerate(zip(stacks, keys, strict=True)):
                if key is not None and key in found:
                    self.rows.setdefault(i, {**found[key], "threat": stack.name, "transfer": stack.transfer})
            if path.name == "report.json":
                self._others = any(key not in keys for key in found) or None in found

    def write(self, report: Report) -> None:
        """Write ``report.json``; one with rows of other runs gets a name of its own before."""
        path = self.folder / "report.json"
        if self._others:
            names = (self.folder / f"report-{i}.json" for i in itertools.count(1))
            move(path, next(name for name in names if not name.exists()))
            self._others = False
        report.to_json(path)
