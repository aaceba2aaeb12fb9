"""A store of rows: one SQLite file, which may be shared by several runs and survives their deaths.

Every cell has one row, written in one transaction as soon as it is played. The journal is a write-ahead log with
``synchronous=NORMAL``: a process that is killed loses nothing that was committed, and a machine that loses its power at
most the last rows. A file that is shared lies on a local disk: a write-ahead log does not work on network file systems.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import AdvWrappersError, OutputError, StoreError
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.evaluation.evaluator import PERTURBED
from adv_wrappers.evaluation.rows.checked_row import CheckedRow
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.report_warnings import find_warnings
from adv_wrappers.evaluation.rows.row import Row, compared
from adv_wrappers.evaluation.statistics.return_range import described_range
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.threats.text import unique
from adv_wrappers.utils.parsing import split_stack
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.references import load_referenced

ROWS_FILE = "rows.db"  # in the folder of an evaluation
SCHEMA = 1  # the user_version of the file
_APPLICATION = 0x61647657  # "advW", by which the file is known as a store
_TABLES = """
CREATE TABLE runs (id TEXT PRIMARY KEY, about TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE cells (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, run TEXT, row TEXT, error TEXT, seconds REAL, worker TEXT, finished REAL
);
CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, heartbeat REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE places (place INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
"""
_PLACED = "JOIN places ON places.key = cells.key"  # the order of rows
_HEARTBEAT = 5.0  # seconds between two signs of life of a run
_STALE = 20.0  # seconds without one, after which the claims of a run are free
_BUSY = 60.0  # seconds to wait for another writer


_stores = itertools.count()  # of this process


def unknown_key() -> str:
    """A key for a row that nothing distinguishes: unlike all others, so that it is kept and never taken over."""
    return f"unknown-{uuid.uuid4().hex}"


def process_name() -> str:
    """This process, as ``host:pid``."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Store:
    """The rows of one file. One thread writes; a second connection keeps the claims of this process alive.

    Args:
        path: the file, which is made where it is missing.
        shared: whether several runs may write to it at once; without, it may lie on a network file system, as far as
            that locks files.
        read_only: only read it: it is never changed or made, and may lie on a disk that nothing can be written to.

    Raises:
        StoreError: for a file that is damaged, no store, or of another release.
        OutputError: for one that cannot be written to.

    >>> from adv_wrappers.studies import Plan, Store, run
    >>> short = {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 50}}
    >>> plan = Plan.of(victims=["zoo:cartpole-dqn"], environments=[short], threats=["noise:eps=0.1"], seeds=[0, 1])
    >>> with Store(":memory:") as store:
    ...     summary = run(plan, store)
    ...     reports = store.reports()
    >>> summary.played, [report.seed for report in reports]
    (4, [0, 1])
    """

    def __init__(self, path: str | Path, shared: bool = True, read_only: bool = False) -> None:
        self._shared, self._read_only = shared and not read_only, read_only
        self.path, self.owner = Path(path), f"{process_name()}/{next(_stores)}"
        self._own_memory = str(path) == ":memory:"
        self._claimed: set[str] = set()
        self._ended = threading.Event()
        if not self._own_memory and not read_only:
            with _named_errors(self.path), contextlib.suppress(FileExistsError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
        # tables are made in a new file; a shared one tells others that this run is alive
        with _named_errors(self.path, "open" if read_only else "write"):
            self._connection = self._connect()
            self._open()
        if not self._own_memory and self._shared:
            threading.Thread(target=self._keep_alive, daemon=True).start()

    def _connect(self) -> sqlite3.Connection:
        if not self._read_only:
            return sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None)
        path = self.path.resolve()
        # where no file can be made beside it, SQLite cannot follow other writers, and there are none
        still = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
        return sqlite3.connect(f"{path.as_uri()}?mode=ro{still}", timeout=_BUSY, isolation_level=None, uri=True)

    def _open(self) -> None:
        """Check the file, or make its tables: in one transaction, as another run may do so at the same moment."""
        execute = self._connection.execute
        try:
            with contextlib.nullcontext() if self._read_only else self._transaction():  # raises where it cannot write
                tables = {name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                (form,), (version,) = (
                    execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
                )
                # an empty file becomes a store, any other has to be one of this form
                if not tables and self._read_only:
                    raise StoreError(f"{self.path} is empty, and no store of rows")
                if not tables:
                    for statement in _TABLES.split(";")[:-1]:
                        execute(statement)
                    execute(f"PRAGMA application_id = {_APPLICATION}")
                    execute(f"PRAGMA user_version = {SCHEMA}")
                elif form != _APPLICATION:
                    raise StoreError(f"{self.path} is a database of something else, with {', '.join(sorted(tables))}")
                elif version != SCHEMA:
                    wrote = "a newer" if version > SCHEMA else "an older"
                    raise StoreError(
                        f"{self.path} has form {version} and not {SCHEMA}: {wrote} release of adv_wrappers wrote it; "
                        "use that release, or another folder, where all rows are played again"
                    )
            # others may read while this run writes
            if self._shared:
                execute("PRAGMA journal_mode = WAL")
                execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            self._connection.close()
            raise

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with _named_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _keep_alive(self) -> None:
        """Renew the claims of this process until the store is closed."""
        with contextlib.closing(self._connect()) as connection:
            while not self._ended.wait(_HEARTBEAT):
                with contextlib.suppress(sqlite3.Error):  # the next one may succeed, and a claim outlives a few
                    connection.execute("UPDATE claims SET heartbeat = ? WHERE owner = ?", (time.time(), self.owner))

    @property
    def trainings(self) -> str | None:
        """The folder beside the file where attacks that cells train are kept; None for a store in memory."""
        return None if self._own_memory else str(self.path.absolute().with_name(f"{self.path.name}.trainings"))

    def place(self, keys: Iterable[str]) -> None:
        """Give these cells their places, one after another, whoever plays them first, or has.

        They begin where the first of them stood before, or else behind all others.
        """
        block = dict.fromkeys(keys)
        with self._transaction():
            placed = [key for (key,) in self._connection.execute("SELECT key FROM places ORDER BY place")]
            first = next((i for i, key in enumerate(placed) if key in block), len(placed))
            order = [*placed[:first], *block, *(key for key in placed[first:] if key not in block)]
            if order != placed:
                self._connection.execute("DELETE FROM places")
                self._connection.executemany("INSERT INTO places (key) VALUES (?)", [(key,) for key in order])

    def claim(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that have no row, and that no other living process has claimed; they are claimed now.

        Of a store that is not shared all are.
        """
        if not (self._shared or self._read_only):
            return [*keys]
        now = time.time()
        claim = (
            "INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, "
            "heartbeat = excluded.heartbeat WHERE claims.owner = excluded.owner OR claims.heartbeat <= ?"
        )
        with self._transaction():
            done = self.done(keys)
            execute = self._connection.execute
            return [
                key for key in keys if key not in done and execute(claim, (key, self.owner, now, now - _STALE)).rowcount
            ]

    def add(self, played: Sequence[PlayedCell], replace: bool = False) -> None:
        """Write what became of some cells, all or none, and give up their claims; a row is never replaced by an error.

        Args:
            played: the cells.
            replace: whether a row takes the place of one with its key.

        Raises:
            OutputError: where that cannot be written, with the cells as its ``report``.
        """
        try:
            with self._transaction():
                for cell in played:
                    self._add(cell, replace)
        except OutputError as error:
            error.report = list(played)
            raise

    def _add(self, cell: PlayedCell, replace: bool) -> None:
        execute = self._connection.execute
        run = row = None
        if cell.about is not None and cell.row is not None:
            about, row = json.dumps(cell.about, sort_keys=True), json.dumps(cell.row.to_dict(), allow_nan=False)
            run = sha256(about.encode()).hexdigest()[:16]
            execute("INSERT OR IGNORE INTO runs VALUES (?, ?)", (run, about))
        # the first row of a cell stays, unless it is an error or is to be replaced
        values = (cell.key, cell.name, run, row, cell.error, cell.seconds, cell.worker, time.time())
        execute(
            "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET run = excluded.run, "
            "row = excluded.row, error = excluded.error, seconds = excluded.seconds, worker = excluded.worker, "
            "finished = excluded.finished WHERE cells.error IS NOT NULL OR ?",
            (*values, replace and cell.error is None),
        )
        execute("INSERT OR IGNORE INTO places (key) VALUES (?)", (cell.key,))
        execute("DELETE FROM claims WHERE key = ?", (cell.key,))

    def _texts(self, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Of the keys that have a row, the key and the row as it is written."""
        find = "SELECT key, row FROM cells WHERE key = ? AND error IS NULL"
        with _named_errors(self.path):
            for key in keys:
                yield from self._connection.execute(find, (key,))

    def done(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have a row."""
        return {key for key, _ in self._texts(keys)}

    def found(self, keys: Iterable[str]) -> dict[str, Row]:
        """By key, the rows that there are of these."""
        return {key: Row.from_dict(json.loads(text)) for key, text in self._texts(keys)}

    def errors(self) -> dict[str, str]:
        """By the name of a cell that failed, kind and text of its error; cells of one name are numbered."""
        find = f"SELECT name, error FROM cells {_PLACED} WHERE error IS NOT NULL ORDER BY place"
        with _named_errors(self.path):
            found = self._connection.execute(find).fetchall()
        return dict(zip(unique(name for name, _ in found), (error for _, error in found), strict=True))

    def rows(self) -> Iterator[tuple[Mapping[str, Any], Row]]:
        """Of every row what a report says of all its rows, and the row, as it was played."""
        return ((cell.about or {}, cell.row) for cell in self.played() if cell.row is not None)

    def reports(self) -> list[Report]:
        """A report of every victim, environment and seed, with the warnings of :mod:`.report_warnings`.

        Rows whose run without a threat is not there (yet) have nothing to be compared with, and are in none. Of
        the revisions of a checkout that played the rows of a report, ``git`` is that of its last row.
        """
        groups: dict[str, tuple[dict[str, Any], list[Row]]] = {}
        for about, row in self.rows():
            known = json.dumps([{**about, "git": None}, sorted(row.distances)], sort_keys=True)
            first, rows = groups.setdefault(known, (dict(about), []))
            rows.append(row)
            first["git"] = about["git"]
        ordered = [(about, sorted(rows, key=lambda row: not row.is_clean)) for about, rows in groups.values()]
        return [_report(about, rows) for about, rows in ordered if rows[0].is_clean]

    def played(self) -> Iterator[PlayedCell]:
        """Every cell that has a row, in the order of :meth:`place`."""
        find = (
            "SELECT cells.key, cells.name, runs.about, cells.row, cells.seconds, cells.worker FROM cells "
            f"JOIN runs ON runs.id = cells.run {_PLACED} ORDER BY place"
        )
        with _named_errors(self.path):
            for key, name, about, row, seconds, worker in self._connection.execute(find):
                yield PlayedCell(key, name, json.loads(about), Row.from_dict(json.loads(row)), None, seconds, worker)

    def __len__(self) -> int:
        with _named_errors(self.path):
            return int(self._connection.execute("SELECT COUNT(*) FROM cells WHERE error IS NULL").fetchone()[0])

    def close(self) -> None:
        """Give up what this process has claimed, and close the file."""
        if not self._ended.is_set():
            self._ended.set()
            if not self._read_only:
                with contextlib.suppress(AdvWrappersError), self._transaction():
                    self._connection.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))
            self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _report(about: Mapping[str, Any], rows: Sequence[Row]) -> Report:
    """The report of some rows, the clean one first, for whose warnings its victim and threats are loaded again."""
    names = unique(row.threat for row in rows)
    rows = [replace(row, threat=name) for row, name in zip(rows, names, strict=True)]
    _, perturbed, texts = rows[0].threat.partition(PERTURBED)
    under = split_stack(texts[:-1]) if perturbed else []  # threats that the environment has itself
    lowest = None if under else described_range(about["env"])[0]
    return Report(
        **{**about, **{name: tuple(about.get(name, ())) for name in ("episode_seeds", "metrics")}},
        warnings=tuple(_warnings(about, rows, under)),
        minimum={"kind": "unknown" if lowest is None else "fixed", "value": lowest},
        threats=compared(rows, lowest, lowest),
    )


def _warnings(about: Mapping[str, Any], rows: Sequence[Row], under: Sequence[str]) -> list[str]:
    ref = about["victim"]["ref"]
    if "training_steps" in about["victim"]:
        return [f"nothing was checked: {ref} was measured while it was trained, and is not kept"]
    if ref is None:
        return ["nothing was checked: the agent has no reference that it could be loaded by again"]
    try:
        victim = load_victim(ref, select=about["victim"]["select"])
    except AdvWrappersError as error:
        return [f"nothing was checked, as {ref} cannot be loaded: {error}"]
    # threats are made again from their dictionaries, as far as they can be
    checked, left_out = [], []
    loaded = functools.cache(load_referenced)  # most rows name the same victim
    for row in rows:
        try:
            layers = tuple(ThreatModel.from_dict(layer, loaded) for layer in row.layers)
        except AdvWrappersError as error:  # such as one that was searched for these very episodes
            left_out.append(f"{row.threat} was not checked, as it cannot be loaded: {error}")
            continue
        checked.append(CheckedRow.of(ThreatStack(row.threat, layers, row.transfer), row))
    return [*find_warnings(checked, victim, about["env"]["id"], under, about["episode_seeds"]), *left_out]


@contextlib.contextmanager
def _named_errors(path: Path, do: str = "write") -> Iterator[None]:
    """Errors of SQLite as those of this package."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OutputError(f"cannot {do} the store {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is damaged, or no store: {error}") from error
    except OSError as error:
        if isinstance(error, AdvWrappersError):
            raise
        raise OutputError(f"cannot write the store {path}: {(error.strerror or str(error)).lower()}") from error
