"""Rows of stores, folders and reports, each with the columns that figures and statistics over many rows group by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adv_wrappers.environments.environment import environment_text
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.report import Report, victim_name, victim_text
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store

RowSource = Store | Report | str | Path | Sequence[Report]


@dataclass(frozen=True)
class StoredRow:
    """A row of a report, and what it is about.

    Attributes:
        row: the row, as :attr:`adv_wrappers.Report.threats` describes it.
        clean: the clean row of the same episodes; None where there is none.
        described_env: what a report says of the environment.
        threat: the threat as text, with whatever else tells it from others; ``none`` for the clean run.
        attack: that without its eps.
        eps: the radius of its budget; 0 for the clean run, None where there is none.
        victim: the agent's reference, with whatever is not as usual.
        env: the environment with its keyword arguments, as text.
        seed: the seed of the episodes.
        training_steps: how long the agent had been trained, where a callback of its training measured the row; None
            else.
    """

    row: Row
    clean: Row | None
    described_env: Mapping[str, Any]
    threat: str
    attack: str
    eps: float | None
    victim: str
    env: str
    seed: int
    training_steps: int | None = None

    @property
    def is_clean(self) -> bool:
        """Whether this is a run without a threat."""
        return self.row.is_clean


def read_rows(source: RowSource) -> list[StoredRow]:
    """The rows of a source, one for every victim, environment, seed and threat.

    Where there are several, as with other numbers of episodes, that of the most episodes counts, and the last of
    those: they share episodes, which must not be counted twice.

    Args:
        source: a :class:`~adv_wrappers.studies.Store` or its file, a folder that ``evaluate(out=...)`` wrote, a
            report or its file (``.json``), or several reports.

    Raises:
        ValueRangeError: for a file or folder that is not there, one without rows, and what is none of these.
        StoreError: for a file that is damaged, no store, or of another release.
        OutputError: for a store that is locked or cannot be opened.
    """
    pairs = [*_pairs(source)]
    if not pairs:
        where = source.path if isinstance(source, Store) else source
        raise ValueRangeError(f"{where if isinstance(where, (str, Path)) else 'the source'} holds no rows")
    # clean rows of the same run, and agents that share a name
    runs = [json.dumps({**about, "git": None}, sort_keys=True, default=str) for about, _ in pairs]
    clean = {run: row for run, (_, row) in zip(runs, pairs, strict=True) if row.is_clean}
    hashes: dict[str, set[str]] = {}
    for about, _ in pairs:
        hashes.setdefault(victim_name(about["victim"]), set()).add(str(about["victim"].get("fingerprint")))
    found: dict[tuple[str, str, int, str], StoredRow] = {}
    layers: dict[tuple[str, str, str], list[str]] = {}  # of threats that have one text, such as two trained adversaries
    for run, (about, row) in zip(runs, pairs, strict=True):
        # a row with the columns that it can be grouped by
        several = len(hashes[victim_name(about["victim"])]) > 1  # agents of one name
        victim = victim_text(about, *([str(about["victim"]["fingerprint"])[:8]] if several else []))
        env, threat = environment_text(about["env"]), row.label
        same = layers.setdefault((victim, env, threat), [])
        if (own := json.dumps(row.layers, sort_keys=True)) not in same:
            same.append(own)
        number = f" #{same.index(own) + 1}" if same.index(own) else ""
        made = StoredRow(
            row=row,
            clean=clean.get(run),
            described_env=about["env"],
            threat=threat + number,
            attack=row.attack() + row.marks + number,
            eps=row.eps,
            victim=victim,
            env=env,
            seed=int(about["seed"]),
            training_steps=about["victim"].get("training_steps"),
        )
        # of several for one cell that of most episodes
        known = (made.victim, made.env, made.seed, made.threat)
        if known not in found or len(found[known].row.returns) <= len(row.returns):
            found[known] = made
    return [*found.values()]


def _pairs(source: RowSource) -> Iterator[tuple[Mapping[str, Any], Row]]:
    """What a report says of all its rows, and a row, of every row."""
    if isinstance(source, Store):
        yield from source.rows()
    elif isinstance(source, Report):
        about = source.to_dict()
        yield from ((about, row) for row in source.threats)
    elif isinstance(source, (str, Path)):
        # a folder, a report or a store, by what lies there
        path = Path(source)
        if path.is_dir():
            path = path / ROWS_FILE
        if not path.is_file():
            expected = f"expected a store of rows, or a folder with the {ROWS_FILE} of one"
            raise ValueRangeError(f"there is no file {path}: {expected}")
        if path.suffix == ".json":
            yield from _pairs(Report.from_json(path))
            return
        with Store(path, read_only=True) as store:
            yield from store.rows()
    elif isinstance(source, Sequence) and all(isinstance(report, Report) for report in source):
        # several reports, one after the other
        for report in source:
            yield from _pairs(report)
    else:
        expected = "a Store, the path of one or of a folder, or reports"
        raise ValueRangeError(f"expected {expected}, got {type(source).__name__}")
