"""Rows of a report sorted by what they vary: the sections of a page.

A row's layers (``ThreatModel.to_dict``) say what it is. They are read as plain dictionaries: a row whose threat can no
longer be made, or has no JSON form, still has its place.

- ``sweep``: one layer on observations, at every step, under the whole of a budget that has a radius.
- ``feature``: the same under a budget whose scale leaves some features alone.
- ``moment``: one layer whose timing is a window of steps; ``few``: one whose timing is at most so many steps.
- ``action`` and ``daylight``: one layer on actions, and one that is a transform of images.
- ``other``: stacks, other timings, other budgets.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adv_wrappers.agent_report.choices_file import ReportChoices, read_choices
from adv_wrappers.core.json_values import Value
from adv_wrappers.errors import StoreError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.report import Report, Row
from adv_wrappers.evaluation.statistics import caveat, mean_interval
from adv_wrappers.evaluation.store import ROWS_FILE, Store
from adv_wrappers.format_threat_text import without_number
from adv_wrappers.utils.parse_values import split_arguments

Kind = Literal["clean", "sweep", "feature", "moment", "few", "action", "daylight", "other"]
JsonDict = Mapping[str, Any]
_NONE_MADE = ReportChoices()


@dataclass(frozen=True)
class MeanWithInterval:
    """A mean over episodes with its interval of 95%, and why that is none of 95% (``caveat``), if it is not."""

    mean: float
    low: float
    high: float
    caveat: str | None


@dataclass(frozen=True)
class AttackRow:
    """A row of a report, and what it varies.

    Attributes:
        row: the row.
        kind: the section that it belongs to.
        attack: its text without what that section varies.
        group: the same for rows that differ in nothing else.
        ball: of sweeps, the budget without its radius.
        eps: the radius of the budget, or None.
        features: the indices of the features that may change; empty for all of them.
        window: the first step that may be attacked, and the first that may not any more; or None.
        count: the number of steps that may be attacked, or None.
        change: paired difference of its returns to those without an attack.
    """

    row: Row
    kind: Kind
    attack: str
    group: str
    ball: str
    eps: float | None
    features: tuple[int, ...]
    window: tuple[int, int] | None
    count: int | None
    change: MeanWithInterval

    @property
    def name(self) -> str:
        """Its text."""
        draws = f" (best of {self.row['best_of']})" if self.row.get("best_of", 1) > 1 else ""
        return str(self.row["threat"]) + draws + (" (transfer)" if self.row.get("transfer") else "")

    @property
    def returned(self) -> MeanWithInterval:
        """Its mean return."""
        row = self.row
        return MeanWithInterval(row["mean_return"], row["low"], row["high"], row.get("caveat"))


@dataclass(frozen=True)
class Curve:
    """Rows of one group, in the order of what they vary."""

    attack: str
    rows: tuple[AttackRow, ...]


@dataclass(frozen=True)
class Sweep:
    """Attacks under one budget over its radius.

    Attributes:
        budget: the budget in words.
        curves: one an attack.
        clean: the row without an attack.
    """

    budget: str
    curves: tuple[Curve, ...]
    clean: AttackRow

    @cached_property
    def strongest(self) -> tuple[tuple[float, AttackRow], ...]:
        """By radius, 0 first, the row of the lowest mean among those with this radius or less."""
        rows = sorted((row for curve in self.curves for row in curve.rows), key=lambda row: row.eps or 0.0)
        found, best = {0.0: self.clean}, self.clean
        for row in rows:
            best = row if row.row["mean_return"] < best.row["mean_return"] else best
            found[row.eps or 0.0] = best
        return tuple(found.items())


@dataclass(frozen=True)
class AgentSections:
    """One report, sorted.

    Attributes:
        report: the report.
        choices: what was chosen for it; empty where that is not known.
        rows: all its rows, the one without an attack first.
        sweeps: by budget, that with the most rows first.
        features, moments, few: groups of rows.
        actions, daylight, other: rows.
    """

    report: Report
    choices: ReportChoices
    rows: tuple[AttackRow, ...]
    sweeps: tuple[Sweep, ...]
    features: tuple[Curve, ...]
    moments: tuple[Curve, ...]
    few: tuple[Curve, ...]
    actions: tuple[AttackRow, ...]
    daylight: tuple[AttackRow, ...]
    other: tuple[AttackRow, ...]

    @property
    def clean(self) -> AttackRow:
        """The row without an attack."""
        return self.rows[0]

    @property
    def attacked(self) -> tuple[AttackRow, ...]:
        """The other rows."""
        return self.rows[1:]

    @property
    def victim(self) -> str:
        """The agent, by its reference, or by its weights where it has none."""
        ref, known = self.report.victim.get("ref"), str(self.report.victim.get("fingerprint") or "")
        return str(ref or (f"agent {known[:12]}" if known else "an agent without a name"))

    @property
    def environment(self) -> str:
        """The id of the environment."""
        return str(self.report.env["id"])


@dataclass(frozen=True)
class StoredReports:
    """What a folder or file holds.

    Attributes:
        path: the file of rows.
        agents: a report of every victim, environment and seed.
        left_out: names of rows that have no run without an attack to be compared with.
        errors: by the name of a cell that failed, its error.
    """

    path: Path
    agents: tuple[AgentSections, ...]
    left_out: tuple[str, ...]
    errors: Mapping[str, str]


def read_reports(source: str | Path) -> StoredReports:
    """Read the rows of a folder that ``evaluate``, a suite or a report wrote, or of a store, and sort them.

    Args:
        source: a folder with ``rows.db``, and with ``choices.json`` where a report was played; or a file of rows.

    Raises:
        ValueRangeError: where there is none, or it has no run without an attack.
        StoreError: for a file that is damaged, something else, or of another release.
        OutputError: for one that cannot be opened.
    """
    path = Path(source)
    if path.is_dir():
        if not (path / ROWS_FILE).is_file():
            raise ValueRangeError(f"the folder {path} holds no {ROWS_FILE}, which evaluate, suite and report write")
        path = path / ROWS_FILE
    if not path.is_file():
        raise ValueRangeError(f"there is no folder or file {path}: expected a folder with {ROWS_FILE}, or a store")
    if path.stat().st_size == 0:
        raise StoreError(f"{path} is empty, and no store of rows")
    choices = read_choices(path.parent) if path.name == ROWS_FILE else ReportChoices()
    with Store(path, shared=False) as store:
        reports = store.reports()
        errors = store.errors()
        names = Counter(str(row["threat"]) for _, row in store.rows())
    if not reports:
        what = "its rows lack the run without an attack" if names else "it has no rows yet"
        raise ValueRangeError(f"nothing can be shown of {path}: {what}")
    for report in reports:
        names.subtract(without_number(str(row["threat"])) for row in report.threats)
    largest = max(range(len(reports)), key=lambda place: len(reports[place].threats))
    agents = (sorted_report(one, choices if place == largest else ReportChoices()) for place, one in enumerate(reports))
    return StoredReports(path, tuple(agents), tuple((+names).elements()), errors)


def sorted_report(report: Report, choices: ReportChoices = _NONE_MADE) -> AgentSections:
    """A report in sections."""
    used = _usable_features(report.threats)
    clean = report.threats[0]
    rows = tuple(_attack_row(row, clean, used) for row in report.threats)
    by_kind = defaultdict[Kind, list[AttackRow]](list)
    for row in rows:
        by_kind[row.kind].append(row)
    balls = defaultdict[str, list[AttackRow]](list)
    for row in by_kind["sweep"]:
        balls[row.ball].append(row)
    by_rows = sorted(balls.values(), key=len, reverse=True)
    return AgentSections(
        report,
        choices,
        rows,
        tuple(Sweep(_budget_words(group[0]), _curves(group), rows[0]) for group in by_rows),
        _curves(by_kind["feature"]),
        _curves(by_kind["moment"]),
        _curves(by_kind["few"]),
        tuple(by_kind["action"]),
        tuple(by_kind["daylight"]),
        tuple(by_kind["other"]),
    )


def paired_difference(returns: Sequence[float], others: Sequence[float]) -> MeanWithInterval:
    """The mean of ``returns - others``, episode by episode."""
    difference = np.asarray(returns, np.float64) - np.asarray(others, np.float64)
    return MeanWithInterval(float(difference.mean()), *mean_interval(difference), caveat(difference))


def _attack_row(row: Row, clean: Row, usable: frozenset[int]) -> AttackRow:
    layers = row["layers"]
    made = AttackRow(
        row,
        "other",
        without_number(row["threat"]),
        "",
        "",
        None,
        (),
        None,
        None,
        paired_difference(row["returns"], clean["returns"]),
    )
    if not layers:
        return replace(made, kind="clean")
    if len(layers) > 1 or not isinstance(layers[0], Mapping):
        return made
    layer = layers[0]
    within, when = layer.get("within"), layer.get("when")
    ball, eps, scale = _ball(within)
    made = replace(made, eps=eps)
    if layer.get("on") == "action":
        return replace(made, kind="action")
    if _is_daylight(layer.get("how")):
        return replace(made, kind="daylight")
    always = when is None or _type(when) == "always"
    varied = frozenset(place for place, unit in enumerate(scale) if unit) if scale else usable
    features = () if varied == usable else tuple(sorted(varied))
    if isinstance(when, Mapping) and _type(when) == "window":
        window = (int(when["a"]), int(when["b"]))
        rest = {**layer, "when": None}
        return replace(made, kind="moment", window=window, attack=_text(made, "when"), group=_key(rest, row))
    count = None if always else _at_most(when)
    if count is not None:
        rest = {**layer, "when": _without_count(when)}
        return replace(made, kind="few", count=count, attack=_text(made, "atmost"), group=_key(rest, row))
    if not always or eps is None:
        return made
    if features:
        rest = {**layer, "within": _type(within)}
        return replace(
            made, kind="feature", features=features, attack=_text(made, "eps", "scale"), group=_key(rest, row)
        )
    rest = {**layer, "within": ball}
    return replace(made, kind="sweep", ball=ball, attack=_text(made, "eps", "scale", "norm"), group=_key(rest, row))


def _type(value: object) -> str:
    return str(value.get("type")) if isinstance(value, Mapping) else ""


def _ball(within: object) -> tuple[str, float | None, tuple[float, ...]]:
    """A budget without its radius as text, the radius, and its scale where that has a number a feature."""
    if not isinstance(within, Mapping):
        return "", None, ()
    inner = within.get("within") if _type(within) == "newest" else within
    if not isinstance(inner, Mapping) or _type(inner) not in ("linf", "l2"):
        return "", None, ()
    scale = inner.get("scale")
    numbers = tuple(map(float, scale)) if isinstance(scale, (list, tuple)) else ()
    rest = {key: value for key, value in inner.items() if key != "eps"}
    outer = {key: value for key, value in within.items() if key != "within"} if inner is not within else None
    return json.dumps([rest, outer], sort_keys=True), float(inner["eps"]), numbers


def _usable_features(rows: Iterable[Row]) -> frozenset[int]:
    """The features that some budget of a report may change, as far as a budget has a number a feature."""
    found = set[int]()
    for row in rows:
        for layer in row["layers"]:
            scale = _ball(layer.get("within"))[2] if isinstance(layer, Mapping) else ()
            found |= {place for place, unit in enumerate(scale) if unit}
    return frozenset(found)


def _is_daylight(how: object) -> bool:
    kind = Value.kinds.get(_type(how))
    return kind is not None and kind.__module__.startswith("adv_wrappers.daylight.")


def _at_most(when: object) -> int | None:
    """The largest number of attacks that a timing allows, as far as it says so by itself or joined with others."""
    if _type(when) == "atmost" and isinstance(when, Mapping):
        return int(when["n"])
    if _type(when) == "and" and isinstance(when, Mapping):
        counts = [count for part in ("a", "b") if (count := _at_most(when.get(part))) is not None]
        return min(counts, default=None)
    return None


def _without_count(when: Any) -> Any:
    if _type(when) == "atmost":
        return {**when, "n": None}
    return {**when, "a": _without_count(when["a"]), "b": _without_count(when["b"])} if _type(when) == "and" else when


def _key(layer: JsonDict, row: Row) -> str:
    return json.dumps([layer, row.get("transfer"), row.get("best_of")], sort_keys=True)


def _text(row: AttackRow, *left_out: str) -> str:
    """A threat's text without some of its arguments, or without the part of its timing that counts."""
    name, colon, arguments = row.attack.partition(":")
    try:
        parts = split_arguments(arguments)
    except ThreatError:
        return row.attack
    if "atmost" in left_out:
        parts = [re.sub(r"&atmost\(\d+\)|atmost\(\d+\)&?", "", part) for part in parts]
        left_out = ("when",) if "when=" in parts else ()
    kept = ",".join(part for part in parts if part.partition("=")[0].strip() not in left_out)
    draws = f" (best of {row.row['best_of']})" if row.row.get("best_of", 1) > 1 else ""
    return name + (colon + kept if kept else "") + draws + (" (transfer)" if row.row.get("transfer") else "")


def _budget_words(row: AttackRow) -> str:
    inner, outer = json.loads(row.ball)
    scale = inner.get("scale")
    unit = ""
    if isinstance(scale, (list, tuple)):
        unit = ", in units of each feature's scale"
    elif scale is not None:
        unit = f", in units of {scale:g}" if isinstance(scale, (int, float)) else f", in units of {scale}"
    norm = {"linf": "every feature may move by eps", "l2": "the Euclidean norm of the change is at most eps"}[
        inner["type"]
    ]
    return norm + unit + (", in the newest frame alone" if outer else "")


def _curves(rows: Sequence[AttackRow]) -> tuple[Curve, ...]:
    groups = defaultdict[str, list[AttackRow]](list)
    for row in rows:
        groups[row.group].append(row)

    def order(row: AttackRow) -> tuple[float, ...]:
        return (row.eps or 0.0, *(row.window or ()), row.count or 0, *row.features)

    names = Counter(group[0].attack for group in groups.values())
    made = []
    for group in groups.values():
        attack = group[0].attack
        if names[attack] > 1:  # what differs was left out of their texts
            attack = group[0].name
        made.append(Curve(attack, tuple(sorted(group, key=order))))
    return tuple(made)
