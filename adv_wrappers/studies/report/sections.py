"""Rows of a report sorted by what they vary: the sections of a page.

A row's layers (``ThreatModel.to_dict``) say what it is. They are read as plain dictionaries: a row whose threat can no
longer be made, or has no JSON form, still has its place.

- ``sweep``: one layer on observations, at every step, under the whole of a budget that has a radius.
- ``feature``: the same under a budget whose scale leaves some features alone.
- ``entries``: the same under a budget that counts entries (``L0``) or allows every value (``Valid``), at every step or
  at a share of them: what discrete observations have in place of a radius.
- ``moment``: one layer whose timing is a window of steps; ``few``: one whose timing is at most so many steps.
- ``action``, ``daylight``, ``fault`` and ``dynamics``: one layer on actions, one that is a transform of images, one
  that is a fault of sensors or channels, and one on the dynamics.
- ``other``: stacks, other timings, other budgets.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from adv_wrappers.core.serialization import Value
from adv_wrappers.errors import StoreError, ValueRangeError
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store
from adv_wrappers.evaluation.statistics.confidence_intervals import KnownRange, MeanWithInterval, cut, paired_difference
from adv_wrappers.evaluation.statistics.return_range import described_range
from adv_wrappers.studies.report.choices import ReportChoices, read_choices
from adv_wrappers.studies.report.eps_search import strongest_by_eps
from adv_wrappers.studies.report.trials import Trial, shown_text, text_without
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.number_text import counted

Kind = Literal[
    "clean", "sweep", "feature", "entries", "moment", "few", "action", "daylight", "fault", "dynamics", "other"
]
_NONE_MADE = ReportChoices()
_SUITE_PARTS = {"evaluation": "", "tie_break": "tie break", "fresh": "fresh episodes"}  # folders of a suite


@dataclass(frozen=True)
class AttackRow(Trial):
    """A row of a report, and what it varies.

    Attributes:
        change: paired difference of its returns to those without an attack.
        known: the range of returns of the environment.
        kind: the section that it belongs to.
        label: what it is called on pages: its text without a long scale, with the features and steps that may change.
        ball: the budget without its radius, if it has one, and the keys.
        keys: of a Dict or Tuple observation, those that are attacked; empty for the whole observation.
        features: the indices of the features that may change; empty for all of them.
        names: of these features.
        window: the first step that may be attacked, and the first that may not any more; or None.
        count: the number of steps that may be attacked, or None.
    """

    change: MeanWithInterval
    known: KnownRange
    kind: Kind = "other"
    label: str = ""
    ball: str = ""
    keys: tuple[str, ...] = ()
    features: tuple[int, ...] = ()
    names: str = ""
    window: tuple[int, int] | None = None
    count: int | None = None

    @property
    def name(self) -> str:
        """Its whole text."""
        return self.row.label.replace("<recorded>", "episode search")

    @property
    def identity(self) -> tuple[str, str]:
        """Its text, and its budgets in numbers: a text may count them in the unit of its own agent."""
        return self.name, json.dumps([layer and layer.get("within") for layer in self.row.layers], sort_keys=True)

    @property
    def returned(self) -> MeanWithInterval:
        """Its mean return; of a row of fewer episodes than the clean one :attr:`mean`, with what the change may be."""
        row, change = self.row, self.change
        if row.episodes >= self.clean.episodes:
            return MeanWithInterval(row.mean_return, row.low, row.high, row.caveat)
        ends = self.clean.mean_return + change.low, self.clean.mean_return + change.high
        return MeanWithInterval(self.mean, *cut(ends, self.mean, self.known), change.caveat)


@dataclass(frozen=True)
class Sweep:
    """Attacks under one budget over its radius.

    Attributes:
        budget: the budget in words.
        rows: in rising order of the radius.
        clean: the row without an attack.
        keys: of a Dict or Tuple observation, those that the budget is of; empty for the whole observation.
    """

    budget: str
    rows: tuple[AttackRow, ...]
    clean: AttackRow
    keys: tuple[str, ...] = ()

    @cached_property
    def strongest(self) -> Mapping[float, AttackRow]:
        """By radius, 0 first, the row of the lowest mean among those with this radius or less."""
        return strongest_by_eps([self.clean, *self.rows])


@dataclass(frozen=True)
class AgentSections:
    """One report, sorted.

    Attributes:
        report: the report.
        choices: what was chosen for it; empty where that is not known.
        rows: all its rows, the one without an attack first.
        part: what its episodes are for, where they are not those of the whole: of a suite, which chooses the strongest
            attack on some and measures it on others.
    """

    report: Report
    choices: ReportChoices
    rows: tuple[AttackRow, ...]
    part: str = ""

    def of(self, kind: Kind) -> tuple[AttackRow, ...]:
        """Its rows of a kind."""
        return tuple(row for row in self.rows if row.kind == kind)

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Its sweeps by budget, that which the choices are of first, and then those with the most rows."""
        balls = defaultdict[str, list[AttackRow]](list)
        for row in sorted(self.of("sweep"), key=lambda row: row.eps or 0.0):
            balls[row.ball].append(row)
        groups = sorted(balls.values(), key=lambda rows: (rows[0].keys == self.choices.at, len(rows)), reverse=True)
        return tuple(
            Sweep(_budget_words(rows[0], self.choices), tuple(rows), self.clean, rows[0].keys) for rows in groups
        )

    @property
    def strongest(self) -> dict[float, AttackRow]:
        """By eps above 0, the strongest row of the first sweep up to there; none without any."""
        return {eps: row for sweep in self.sweeps[:1] for eps, row in sweep.strongest.items() if eps > 0}

    @property
    def swept(self) -> tuple[AttackRow, ...]:
        """The rows of the first sweep; none without any."""
        return self.sweeps[0].rows if self.sweeps else ()

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
    def episodes(self) -> str:
        """Which episodes it is of."""
        return f"seed {self.report.seed}" + (f", {self.part}" if self.part else "")

    @property
    def environment(self) -> str:
        """The id of the environment."""
        return str(self.report.env["id"])


@dataclass(frozen=True)
class StoredReports:
    """What a folder or file holds.

    Attributes:
        path: the folder or file.
        agents: a report of every victim, environment and seed.
        left_out: names of rows that have no run without an attack to be compared with.
        errors: by the name of a cell that failed, its error.
    """

    path: Path
    agents: tuple[AgentSections, ...]
    left_out: tuple[str, ...]
    errors: Mapping[str, str]

    @property
    def own(self) -> AgentSections | None:
        """What a report has played here, if one has; the others may be of other releases."""
        return next((one for one in self.agents if one.choices.played), None)


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
    agents = list[AgentSections]()
    errors = dict[str, str]()
    names = Counter[str]()
    for part, file in _stores(path).items():
        # every store, with the choices of the one that a report has played
        choices = read_choices(file.parent) if file.name == ROWS_FILE else ReportChoices()
        with Store(file, read_only=True) as store:
            reports = store.reports()
            errors |= store.errors()
            names.update(row.threat for _, row in store.rows())
        theirs = _own_report(choices, reports)
        for report in reports:
            # what remains are rows without a clean run beside them
            names.subtract(without_number(row.threat) for row in report.threats)
            agents.append(replace(sorted_report(report, choices if report is theirs else _NONE_MADE), part=part))
    if not agents:
        what = "its rows lack the run without an attack" if +names else "it has no rows yet"
        raise ValueRangeError(f"nothing can be shown of {path}: {what}")
    return StoredReports(path, tuple(agents), tuple((+names).elements()), errors)


def _own_report(choices: ReportChoices, reports: Sequence[Report]) -> Report | None:
    """The report that some choices belong to: the one that they name, else the one of most rows."""
    if (known := choices.identity) is not None:
        own = [known.get(name) for name in ("victim", "env", "seed")]
        reports = [one for one in reports if own == [one.victim, one.env, one.seed]]
    return max(reports, key=lambda report: len(report.threats), default=None)


def _stores(path: Path) -> dict[str, Path]:
    """By what their episodes are for, the files of rows that a report is read from."""
    places = {"": path / ROWS_FILE} if path.is_dir() else {"": path}
    # a suite's folder has its rows in parts
    if path.is_dir() and not places[""].is_file():
        parts = {words: path / part / ROWS_FILE for part, words in _SUITE_PARTS.items()}
        places = {words: file for words, file in parts.items() if file.is_file()}
        if not places:
            raise ValueRangeError(f"the folder {path} holds no {ROWS_FILE}, which evaluate, suite and report write")
    for file in places.values():
        if not file.is_file():
            raise ValueRangeError(f"there is no folder or file {file}: expected a folder with {ROWS_FILE}, or a store")
        if file.stat().st_size == 0:
            raise StoreError(f"{file} is empty, and no store of rows")
    return places


def sorted_report(report: Report, choices: ReportChoices = _NONE_MADE) -> AgentSections:
    """A report in sections."""
    known = described_range(report.env)
    made = [_attack_row(row, report.threats[0], known, choices) for row in report.threats]
    made = [replace(row, label=row.label + held(row, made[0])) for row in made]
    count = Counter(row.label for row in made)  # where the text without its scale is not enough, all of it is shown
    rows = [row if count[row.label] == 1 else replace(row, label=row.name + held(row, made[0])) for row in made]
    return AgentSections(report, choices, tuple(rows))


def held(row: AttackRow, clean: AttackRow) -> str:
    """How many of the episodes a row holds, where it has fewer than the one without an attack; else ""."""
    count, whole = (len(one.row.returns) for one in (row, clean))
    return f" on {count} of {whole} episodes" if count < whole else ""


def _attack_row(row: Row, clean: Row, known: KnownRange, choices: ReportChoices) -> AttackRow:
    """A row with what it varies, read from its layer."""
    change = paired_difference(row.returns, clean.returns, known)
    made = AttackRow(row, clean, change, known, label=row.label)
    # rows without an attack, and stacks, vary nothing
    if not row.layers:
        return replace(made, kind="clean", label="no attack" if row.label == "none" else row.label)
    layer = row.layers[0]
    if len(row.layers) > 1 or layer is None:
        return made

    # which features and steps it may change, and how far
    how, within, when = (layer.get(name) or {} for name in ("how", "within", "when"))
    ball, scale = _ball(within)
    keys = _keys(layer)
    timing = _type(when)
    window = (int(when["a"]), int(when["b"])) if timing == "window" else None
    count = int(when["n"]) if timing == "atmost" else None
    made = replace(made, ball=f"{ball} {keys}", keys=keys, window=window, count=count)
    kind = _kind(layer, made, bool(ball))
    features = tuple(how.get("features") or ()) if kind == "fault" else ()
    if scale and layer.get("on") == "observation":
        usable = choices.scale if keys == choices.at and choices.scale else itertools.repeat(1.0)
        whole = all(unit or not own for unit, own in zip(scale, usable, strict=False))
        features = () if whole else tuple(i for i, unit in enumerate(scale) if unit)
        kind = "feature" if kind == "sweep" and features else kind
    names = _feature_names(features, keys, choices)

    # how it is called, by what stands in its text or beside it
    left_out = ["scale"] if scale else []
    left_out += ["at"] if keys and keys == choices.at else []
    left_out += ["at", "features"] if kind == "fault" and features else []
    words = f" on {names}" if features else ""
    if window or count is not None:
        left_out.append("when")
        words += f" in steps {window[0]} to {window[1] - 1}" if window else f" in at most {counted(count or 0, 'step')}"
    if kind in ("entries", "moment", "few") and _type(within) in ("l0", "valid"):
        left_out += ["norm", "eps", "at", "when", "p"]
        much = f"{within['k']} {'entry' if within['k'] == 1 else 'entries'}" if "k" in within else "any value"
        share = f" at {100 * float(when['p']):.3g}% of steps" if timing == "bernoulli" else ""
        words = f", {much}{' of ' if keys else ''}{', '.join(keys)}{words}{share}"
    label = text_without(shown_text(row.threat), *left_out) + words + row.marks if left_out else row.label
    label = re.sub(r"^fixed-dynamics:values=([\d.]+),at=(?!force|wind)([\w.]+)$", r"\2 times \1", label)
    return replace(made, kind=kind, label=label, features=features, names=names)


def _kind(layer: Mapping[str, Any], row: AttackRow, has_radius: bool) -> Kind:
    """The section of a row with one layer."""
    how = layer.get("how")
    budget = _type(layer.get("within"))
    timing = _type(layer.get("when"))
    # by what it attacks, then by its timing and its budget
    if _is_of(how, "faults.sensors", "faults.delays", "faults.trigger"):
        return "fault"
    if layer.get("on") in ("action", "dynamics"):
        return "action" if layer["on"] == "action" else "dynamics"
    if _is_of(how, "daylight"):
        return "daylight"
    if row.window or row.count is not None:
        return "moment" if row.window else "few"
    if budget in ("l0", "valid") and timing in ("", "always", "bernoulli"):
        return "entries"
    return "sweep" if timing in ("", "always") and has_radius else "other"


def _feature_names(features: Sequence[int], keys: tuple[str, ...], choices: ReportChoices) -> str:
    """The names of some features, the first ones of many."""
    known = [one.name for one in choices.features or ()] if keys == choices.at else []
    named = [known[i] if i < len(known) else f"feature {i}" for i in features[:4]]
    where = f" of {', '.join(keys)}" if keys and not known else ""
    return ", ".join(named) + where + (f" and {len(features) - 4} more" if len(features) > 4 else "")


def _type(part: Mapping[str, Any] | None) -> str:
    """What a part of a layer is; "" without one."""
    return str((part or {}).get("type", ""))


def _keys(layer: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of an observation that a layer attacks; none where it attacks all of it, or something else."""
    at = layer.get("at")
    if at is None or layer.get("on") != "observation":
        return ()
    return tuple(map(str, at)) if isinstance(at, (list, tuple)) else (str(at),)


def _ball(within: Any) -> tuple[str, tuple[float, ...]]:
    """A budget without its radius as text, "" where it has none, and its scale where that has a number a feature."""
    newest = _type(within) == "newest"
    inner = within.get("within") if newest else within
    if _type(inner) not in ("linf", "l2"):
        return "", ()
    scale = inner.get("scale")
    numbers = tuple(map(float, scale)) if isinstance(scale, (list, tuple)) else ()
    ball = json.dumps([{**inner, "eps": None}, newest and {**within, "within": None}], sort_keys=True)
    return ball, numbers


def _is_of(how: Mapping[str, Any] | None, *modules: str) -> bool:
    """Whether a perturbation's class is of one of these modules or packages."""
    kind = Value.kinds.get(_type(how))
    return kind is not None and f"{kind.__module__}.".startswith(tuple(f"adv_wrappers.{name}." for name in modules))


def _budget_words(row: AttackRow, choices: ReportChoices) -> str:
    """The budget of a sweep in words: what may move, and how far at an eps of 1."""
    within, own = row.row.layers[0]["within"], row.keys == choices.at
    newest = _type(within) == "newest"
    inner = within["within"] if newest else within
    scale, where = inner.get("scale"), f" of {', '.join(row.keys)}" if row.keys else ""
    what, far = "feature", "eps, in its own unit"
    # how far at an eps of 1, by the budget's scale
    if isinstance(scale, (list, tuple)):
        far = f"eps times its scale ({', '.join(f'{unit:.3g}' for unit in scale[:8])}{', ...' if scale[8:] else ''})"
        far = "eps times its range" if own and tuple(scale) == choices.scale else far
    elif scale is not None:
        far = f"eps times {scale}"
    elif own and choices.unit and choices.features is None:
        what, far = "pixel", f"eps {choices.unit}"
    words = f"every {what}{where} may move by {far}"
    if inner["type"] == "l2":
        words = f"the Euclidean norm of the change{where} is at most eps, in the observation's own unit"
    return words + (", in the newest frame alone" if newest else "")
